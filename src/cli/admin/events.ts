// `agent admin events`: the audit log of an organization.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { oneLine } from "../../log.ts";
import { Node } from "../../protocol.ts";
import type { Implementation } from "../command.ts";
import { jsonLine } from "../output.ts";
import { orgArg } from "../server-flags.ts";
import { Event, ServiceToken } from "./answers.ts";
import { inOrg, read, type Api } from "./api.ts";
import { targetFlags } from "./target.ts";

/** An event appears at most this much later. */
const followMs = 2000;

export const command: Implementation = {
  notes: `The newest events, oldest first; \`before\` and \`after\` hold only what changed. With --follow and --json each line is one
event. The actor of a change on the machine of the control plane is the operator, with the number of its user there.`,
  args: {
    ...orgArg,
    lines: { type: "string", valueHint: "N", default: "100", description: "How many events, at most 100000" },
    type: {
      type: "string",
      valueHint: "TYPE",
      description: "Only events of this type, such as node.revoked or node.*",
    },
    follow: { type: "boolean", alias: "f", description: "Wait for new events, until Ctrl-C" },
    ...targetFlags,
  },
  examples: [
    `${brand.executable} admin events acme`,
    `${brand.executable} admin events acme --type 'node.*' --follow`,
  ],
  async run(context) {
    const { values, words, output, system } = context;
    const [slug = ""] = words;
    const most = values.integer("lines", 0, 100_000) ?? 100;
    const isWanted = wanted(values.text("type"));
    await read(context, async (api) => {
      const names = await namesOf(api, slug);
      let newest: Event[] = [];
      let after = 0;
      const next = async (take: (event: Event) => void) => {
        for (;;) {
          const page = await api.get(inOrg(slug, `events/?after=${after}&limit=1000`), v.array(Event));
          for (const event of page) if (isWanted(event.type)) take(event);
          const last = page.at(-1)?.id;
          if (last === undefined) return;
          after = last;
        }
      };
      await next((event) => {
        newest.push(event);
        // Not at each event: a log has millions.
        if (newest.length > 2 * most) newest = newest.slice(newest.length - most);
      });
      newest = most === 0 ? [] : newest.slice(-most);
      if (!values.on("follow"))
        return output.result({ events: newest }, newest.map((each) => lineOf(each, names)).join(""));
      const show = (event: Event) => output.raw(output.json ? jsonLine(event) : lineOf(event, names));
      newest.forEach(show);
      for (;;) {
        await system.sleep(followMs);
        await next(show);
      }
    });
  },
};

function wanted(type: string | undefined): (type: string) => boolean {
  if (type === undefined || type === "*") return () => true;
  return type.endsWith(".*") ? (each) => each.startsWith(type.slice(0, -1)) : (each) => each === type;
}

/** `node/17` → `node laptop`, `person/3` → `ada@example.org`. */
type Names = ReadonlyMap<string, string>;

/** Only what the caller may see: a service token may not list people. */
async function namesOf(api: Api, slug: string): Promise<Names> {
  const orNone = <T>(list: Promise<T[]>): Promise<T[]> => list.catch(() => []);
  const nodes = await api.list(inOrg(slug, "nodes/"), Node);
  const revoked = await orNone(api.list(inOrg(slug, "nodes/"), Node, { revoked: "true" }));
  const services = await orNone(api.list(inOrg(slug, "service_tokens/"), ServiceToken));
  return new Map([
    ...[...revoked, ...nodes].map(({ id, name }) => [`node/${id}`, `node ${name}`] as const),
    ...services.map(({ id, name }) => [`service/${id}`, `service token ${name}`] as const),
  ]);
}

function lineOf(event: Event, names: Names): string {
  const { at, type, actor, subject, before, after } = event;
  const by = actorOf(actor, names);
  const changes = [
    before === null ? "" : `- ${JSON.stringify(before)}`,
    after === null ? "" : `+ ${JSON.stringify(after)}`,
  ];
  const fields = [
    at,
    type,
    names.get(subject) ?? subject,
    `by ${by}`,
    ...changes.filter((each) => each !== ""),
  ];
  return `${fields.map(oneLine).join("  ")}\n`;
}

function actorOf({ kind, id, ip }: Event["actor"], names: Names): string {
  const from = ip === null || ip === "" ? "" : ` from ${ip}`;
  if (kind === "operator") return id === null ? "the operator" : `the operator (uid ${id})`;
  if (kind === "server") return "the server";
  if (kind === "nobody") return `an anonymous caller${from}`;
  return `${names.get(`${kind}/${id ?? ""}`) ?? `${kind} ${id ?? ""}`}${from}`;
}
