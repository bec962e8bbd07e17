// `agent admin rule …`: firewall rules, for the person at the machine.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { missingGroups, onOrganization, onlyPlanned, sayNewGroups } from "./data.ts";
import type { Command } from "../command.ts";
import { dataFlags } from "../server-flags.ts";

const organization = { name: "ORG", description: "the organization's slug", required: true } as const;

export const list: Command = {
  name: "admin rule list",
  summary: "List the firewall rules; what none permits is refused",
  flags: dataFlags,
  words: [organization],
  examples: [`${brand.executable} admin rule list acme`],
  async run(context) {
    const { listRules } = await import("../../server/policy/rules.ts");
    const rules = await onOrganization(context, context.words[0] ?? "", ({ db }, org) => listRules(db, org));
    const side = (value: object) =>
      Object.entries(value).map(([key, of]) => (of === true ? key : `${key}:${of}`));
    const lines = rules.map(
      ({ id, direction, protocol, ports, peer, target, description }) =>
        `${id}\t${direction}\t${protocol}\t${ports}\tpeer ${side(peer).join()}\ttarget ${side(target).join()}\t${description}\n`,
    );
    context.output.result({ rules }, lines.join(""));
  },
};

export const create: Command = {
  name: "admin rule create",
  summary: "Permit something; every node takes it up at once",
  flags: {
    direction: {
      type: "string",
      valueHint: "inbound|outbound",
      default: "inbound",
      description: "As the target sees it",
    },
    protocol: { type: "string", valueHint: "any|tcp|udp|icmp", default: "any", description: "The protocol" },
    ports: {
      type: "string",
      valueHint: "P",
      default: "any",
      description: "any, a port, or a range such as 8000-8010",
    },
    peer: {
      type: "string",
      valueHint: "WHO",
      default: "any",
      description: "The other end: any, group:G, node:NAME or a network",
    },
    target: {
      type: "string",
      valueHint: "WHO",
      default: "any",
      description: "Whose firewall: any, group:G or node:NAME",
    },
    description: { type: "string", valueHint: "TEXT", description: "What it is for" },
    ...dataFlags,
  },
  words: [organization],
  examples: [
    `${brand.executable} admin rule create acme --protocol tcp --ports 5432 --peer group:web --target group:db`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const { RuleRequest } = await import("../../server/policy/firewall.ts");
    const { createRule } = await import("../../server/policy/rules.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    // The defaults together would open everything to everybody; whoever wants that says so.
    if (["protocol", "ports", "peer", "target"].every((name) => values.text(name) === undefined)) {
      throw new AppError("usage", "Say what is permitted: --protocol, --ports, --peer or --target", {
        hint: "Everything from everybody is --peer any.",
      });
    }
    const description = values.text("description");
    const request = async (idOf: (name: string) => Promise<number>) =>
      parse(RuleRequest, {
        direction: values.text("direction") ?? "inbound",
        protocol: values.text("protocol") ?? "any",
        ports: values.text("ports") ?? "any",
        peer: await readSide(values.text("peer") ?? "any", idOf),
        target: await readSide(values.text("target") ?? "any", idOf),
        ...(description === undefined ? {} : { description }),
      });
    // Wrong words are told before anything is opened; which node has a name is known only then.
    await request(async () => 1);
    if (await onlyPlanned(context)) return;
    const rule = await onOrganization(context, words[0] ?? "", async (admin, org) => {
      const { findNodeByName } = await import("../../server/nodes/nodes.ts");
      const idOf = async (name: string) => (await findNodeByName(admin.db, org.id, name)).id;
      const wanted = await request(idOf);
      const groups = [wanted.peer, wanted.target].flatMap((side) => ("group" in side ? [side.group] : []));
      const new_groups = await missingGroups(admin, org, groups);
      return { ...(await createRule(admin, org, wanted, operator)), new_groups };
    });
    sayNewGroups(output, rule.new_groups);
    output.result(rule, `Made rule ${rule.id}\n`);
  },
};

/** `any`, `group:web`, `node:db` or a network, as the API writes it. */
async function readSide(text: string, idOf: (name: string) => Promise<number>): Promise<object> {
  const [kind, name] = text.split(/:(.*)/s);
  if (text === "any") return { any: true };
  if (kind === "group" && name !== undefined) return { group: name };
  if (kind === "node" && name !== undefined) return { node: await idOf(name) };
  return { cidr: text };
}

export const remove: Command = {
  name: "admin rule delete",
  summary: "Take a rule back",
  flags: dataFlags,
  words: [organization, { name: "ID", description: "the rule's number", required: true }],
  examples: [`${brand.executable} admin rule delete acme 3`],
  async run(context) {
    const [slug = "", id = ""] = context.words;
    if (!/^\d{1,15}$/.test(id)) throw new AppError("usage", `ID is a number, not "${id}"`);
    const { deleteRule } = await import("../../server/policy/rules.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context)) return;
    await onOrganization(context, slug, (admin, org) => deleteRule(admin, org, Number(id), operator));
    context.output.result({ id: Number(id), deleted: true }, `Deleted rule ${id}\n`);
  },
};
