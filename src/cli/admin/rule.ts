// `agent admin rule …`: firewall rules.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { missingGroups, onOrganization, onlyPlanned, readId, sayNewGroups } from "./data.ts";
import { tableLine } from "../../log.ts";
import type { Implementation } from "../command.ts";
import { dataFlags, orgArg } from "../server-flags.ts";

export const list: Implementation = {
  args: { ...orgArg, ...dataFlags },
  examples: [`${brand.executable} admin rule list acme`],
  async run(context) {
    const { listRules } = await import("../../server/policy/rules.ts");
    const rules = await onOrganization(context, context.words[0] ?? "", ({ db }, org) => listRules(db, org));
    const side = (value: object) =>
      Object.entries(value).map(([key, of]) => (of === true ? key : `${key}:${of}`));
    const lines = rules.map(({ id, direction, protocol, ports, peer, target, description }) =>
      tableLine([
        id,
        direction,
        protocol,
        ports,
        `peer ${side(peer).join()}`,
        `target ${side(target).join()}`,
        description,
      ]),
    );
    context.output.result({ rules }, lines.join(""));
  },
};

export const create: Implementation = {
  args: {
    ...orgArg,
    direction: {
      type: "string",
      valueHint: "inbound|outbound",
      default: "inbound",
      description: "Direction, seen from the target",
    },
    protocol: { type: "string", valueHint: "any|tcp|udp|icmp", default: "any", description: "Protocol" },
    ports: {
      type: "string",
      valueHint: "P",
      default: "any",
      description: "any, a port, or a range such as 8000-8010",
    },
    peer: {
      type: "string",
      valueHint: "SIDE",
      default: "any",
      description: "The other side: any, group:G, node:NAME or a network",
    },
    target: {
      type: "string",
      valueHint: "SIDE",
      default: "any",
      description: "The nodes with this rule: any, group:G or node:NAME",
    },
    description: { type: "string", valueHint: "TEXT", description: "A description" },
    ...dataFlags,
  },
  examples: [
    `${brand.executable} admin rule create acme --protocol tcp --ports 5432 --peer group:web --target group:db`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const { RuleRequest } = await import("../../server/policy/firewall.ts");
    const { createRule } = await import("../../server/policy/rules.ts");
    const { parse } = await import("../../server/http/route.ts");
    const { operator } = await import("../../server/audit/record.ts");
    // All defaults together would allow all traffic. That must be said explicitly.
    if (["protocol", "ports", "peer", "target"].every((name) => values.text(name) === undefined)) {
      throw new AppError("usage", "Say what the rule allows: --protocol, --ports, --peer or --target", {
        hint: "To allow all traffic from all nodes, give --peer any.",
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
    // Check the flags before the database is opened. Only then can node names be resolved.
    await request(async () => 1);
    if (await onlyPlanned(context, { org: words[0] })) return;
    const rule = await onOrganization(context, words[0] ?? "", async (admin, org) => {
      const { findNodeByName } = await import("../../server/nodes/nodes.ts");
      const idOf = async (name: string) => (await findNodeByName(admin.db, org.id, name)).id;
      const body = await request(idOf);
      const groups = [body.peer, body.target].flatMap((side) => ("group" in side ? [side.group] : []));
      const new_groups = await missingGroups(admin, org, groups);
      return { ...(await createRule(admin, org, body, operator)), new_groups };
    });
    sayNewGroups(output, rule.new_groups);
    output.result(rule, `Created rule ${rule.id}\n`);
  },
};

/** `any`, `group:web`, `node:db` or a network in the form of the API. */
async function readSide(text: string, idOf: (name: string) => Promise<number>): Promise<object> {
  const [kind, name] = text.split(/:(.*)/s);
  if (text === "any") return { any: true };
  if (kind === "group" && name !== undefined) return { group: name };
  if (kind === "node" && name !== undefined) return { node: await idOf(name) };
  return { cidr: text };
}

export const remove: Implementation = {
  args: { ...orgArg, ID: { type: "positional", description: "The rule's number" }, ...dataFlags },
  examples: [`${brand.executable} admin rule delete acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const id = readId(word);
    const { deleteRule } = await import("../../server/policy/rules.ts");
    const { operator } = await import("../../server/audit/record.ts");
    if (await onlyPlanned(context, { org: slug })) return;
    await onOrganization(context, slug, (admin, org) => deleteRule(admin, org, id, operator));
    context.output.result({ id, deleted: true }, `Deleted rule ${id}\n`);
  },
};
