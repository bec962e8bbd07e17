// `agent admin events`: the audit log of an organization.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { oneLine } from "../../log.ts";
import { Node } from "../../protocol.ts";
import type { Implementation } from "../command.ts";
import { jsonLine } from "../output.ts";
import { orgArg } from "../server-flags.ts";
import { Event, Member, ServiceToken, User } from "./answers.ts";
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
      const newest = await newestEvents(api, slug, most, isWanted);
      if (!values.on("follow"))
        return output.result(
          { events: newest.events },
          newest.events.map((each) => lineOf(each, names)).join(""),
        );
      const show = (event: Event) => output.raw(output.json ? jsonLine(event) : lineOf(event, names));
      newest.events.forEach(show);
      for (let { last } = newest; ; await system.sleep(followMs)) {
        const page = await api.get(inOrg(slug, `events/?after=${last}&limit=1000`), v.array(Event));
        page.filter(isWanted).forEach(show);
        last = page.at(-1)?.id ?? last;
      }
    });
  },
};

/** Higher than the id of every event: 15 digits, the API's maximum. */
const newestId = 999_999_999_999_999;

/** The newest events, oldest first, and the id of the last event of all. Read backwards: a log can have millions. */
async function newestEvents(
  api: Api,
  slug: string,
  most: number,
  isWanted: (event: Event) => boolean,
): Promise<{ events: Event[]; last: number }> {
  const limit = Math.min(1000, Math.max(1, most));
  let events: Event[] = [];
  let last: number | undefined;
  for (let before = newestId; events.length < most || last === undefined;) {
    const page = await api.get(inOrg(slug, `events/?before=${before}&limit=${limit}`), v.array(Event));
    last ??= page.at(-1)?.id ?? 0;
    const [first] = page;
    if (first === undefined) break;
    events = [...page.filter(isWanted), ...events];
    before = first.id;
  }
  return { events: most === 0 ? [] : events.slice(-most), last };
}

function wanted(type: string | undefined): (event: Event) => boolean {
  if (type === undefined || type === "*") return () => true;
  const family = type.endsWith(".*") ? type.slice(0, -1) : undefined;
  return (event) => (family === undefined ? event.type === type : event.type.startsWith(family));
}

/** `node/17` → `node laptop`, `person/3` → `ada@example.org`. */
type Names = ReadonlyMap<string, string>;

/** Only what the caller may see: a service token may not list people. */
async function namesOf(api: Api, slug: string): Promise<Names> {
  const orNone = <T>(list: Promise<T[]>): Promise<T[]> => list.catch(() => []);
  const nodes = await api.list(inOrg(slug, "nodes/"), Node);
  const revoked = await orNone(api.list(inOrg(slug, "nodes/"), Node, { revoked: "true" }));
  const members = await orNone(api.list(inOrg(slug, "members/"), Member));
  // Also those who left, for staff.
  const users = await orNone(api.list("/api/users/", User));
  const services = await orNone(api.list(inOrg(slug, "service_tokens/"), ServiceToken));
  return new Map([
    ...[...revoked, ...nodes].map(({ id, name }) => [`node/${id}`, `node ${name}`] as const),
    ...members.map(({ user_id: id, email }) => [`person/${id}`, email] as const),
    ...users.map(({ id, email }) => [`person/${id}`, email] as const),
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
