// `agent admin events`: the audit log of an organization, or the events that belong to none.

import { eventsApi, type Event, type EventQuery } from "../../api/events.ts";
import { brand } from "../../brand.ts";
import { parseDuration, parseMoment } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import { oneLine } from "../../base/unprintable.ts";
import { membersApi } from "../../api/members.ts";
import { nodesApi } from "../../api/nodes.ts";
import { serviceTokensApi } from "../../api/tokens/service-tokens.ts";
import { usersApi } from "../../api/users.ts";
import type { System } from "../../base/system.ts";
import type { Implementation } from "../command.ts";
import { jsonLine } from "../output.ts";
import { switchFlag, valueFlag, wordArg, type Values } from "../values.ts";
import { read, type Api } from "./api.ts";

/** An event appears at most this much later. */
const followMs = 2000;

export const command: Implementation = {
  notes: `The newest events, oldest first; \`before\` and \`after\` hold only what changed. With --follow and --json each line is one
event. Without ORG: what belongs to no organization, such as disabled users, passwords and second factors; only for
staff. The actor of a change on the machine of the control plane is the operator, with the number of its user there.`,
  args: {
    ORG: wordArg("The organization's slug (default: what belongs to no organization)", { required: false }),
    lines: valueFlag("N", "How many events, at most 100000", { default: "100" }),
    type: valueFlag("TYPE", "Only events of this type, such as node.revoked or node.* (repeatable)", {
      repeatable: true,
    }),
    since: valueFlag(
      "TIME",
      "Only events from this time on: 24h (ago), 2026-11-22 or 2026-11-22T08:00:00Z, in UTC",
    ),
    until: valueFlag("TIME", "Only events before this time"),
    follow: switchFlag("Wait for new events, until Ctrl-C", { alias: "f" }),
  },
  examples: [
    `${brand.executable} admin events acme`,
    `${brand.executable} admin events acme --type 'node.*' --follow`,
    `${brand.executable} admin events --type user.disabled`,
    `${brand.executable} admin events acme --type 'rule.*' --type 'group.*' --type 'policy.*' --since 2026-11-22 --until 2026-11-23`,
  ],
  async run(context) {
    const { values, words, output, system } = context;
    const [slug = ""] = words;
    const sinceMs = timeMsOf(values, "since", system);
    const untilMs = timeMsOf(values, "until", system);
    if (untilMs !== undefined && values.on("follow"))
      throw new AppError("usage", "--until does not go with --follow");
    // If a time is given, read back to it and leave out no event. The default of --lines is only shown in the help.
    const most = values.integer("lines", 0, 100_000) ?? (sinceMs === undefined ? 100 : 100_000);
    const isType = ofTypes(values.list("type"));
    const isWanted = (event: Event) => isType(event) && Date.parse(event.at) < (untilMs ?? Infinity);
    await read(context, async (api) => {
      const names = await namesOf(api, slug);
      const newest = await newestEvents(api, slug, { most, sinceMs, isWanted });
      if (!values.on("follow")) {
        const rows = newest.events.map((each) => {
          const { by, changes } = textsOf(each, names);
          return [each.at, each.type, names.get(each.subject) ?? each.subject, by, changes];
        });
        const columns = ["TIME", "TYPE", "SUBJECT", "BY", "CHANGES"];
        const none = `${slug === "" ? "The control plane" : slug} has no such events.`;
        return output.list({ events: newest.events }, { columns, rows, none });
      }
      const show = (event: Event) => output.raw(output.json ? jsonLine(event) : lineOf(event, names));
      newest.events.forEach(show);
      for (let after = newest.newestId; ; await system.sleep(followMs)) {
        const page = await pageOf(api, slug, { after, limit: 1000 });
        page.filter(isWanted).forEach(show);
        after = page.at(-1)?.id ?? after;
      }
    });
  },
};

function pageOf(api: Api, slug: string, query: Partial<EventQuery>): Promise<Event[]> {
  const texts = Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return slug === ""
    ? api.call(eventsApi.listOfControlPlane, {}, texts)
    : api.call(eventsApi.list, { slug }, texts);
}

/** Higher than the id of every event: 15 digits, the API's maximum. */
const aboveAllIds = 999_999_999_999_999;

/**
 * The newest `most` events that are wanted, oldest first, and the id of the newest event of all (0: there is none). Read
 * backwards: a log can have millions.
 */
async function newestEvents(
  api: Api,
  slug: string,
  {
    most,
    sinceMs = -Infinity,
    isWanted,
  }: { most: number; sinceMs: number | undefined; isWanted: (event: Event) => boolean },
): Promise<{ events: Event[]; newestId: number }> {
  const limit = Math.min(1000, Math.max(1, most));
  let events: Event[] = [];
  let newestId: number | undefined;
  // Also if `most` is 0, one page is read: it has the newest id.
  for (let before = aboveAllIds; events.length < most || newestId === undefined;) {
    const page = await pageOf(api, slug, { before, limit });
    newestId ??= page.at(-1)?.id ?? 0;
    const [first] = page;
    if (first === undefined) break;
    events = [...page.filter((event) => Date.parse(event.at) >= sinceMs && isWanted(event)), ...events];
    if (Date.parse(first.at) < sinceMs) break;
    before = first.id;
  }
  return { events: most === 0 ? [] : events.slice(-most), newestId };
}

/** Whether an event has one of the types. `node.*` and `node` mean all types of that family. */
function ofTypes(types: readonly string[]): (event: Event) => boolean {
  if (types.length === 0 || types.includes("*")) return () => true;
  return ({ type }) =>
    types.some((each) => type === each || type.startsWith(`${each.replace(/\.\*$/, "")}.`));
}

/** The time of a flag, in ms since 1970. A duration counts back from now. */
function timeMsOf(values: Values, flag: string, { now }: Pick<System, "now">): number | undefined {
  const text = values.text(flag);
  if (text === undefined) return undefined;
  const agoS = parseDuration(text);
  if (agoS !== undefined) return now() - agoS * 1000;
  const timeMs = parseMoment(text);
  if (timeMs !== undefined) return timeMs;
  throw new AppError(
    "usage",
    `--${flag} must be a time such as 24h, 2026-11-22 or 2026-11-22T08:00:00Z, not "${text}"`,
  );
}

/** The same in ISO 8601, as queries have it. */
export function momentOf(...given: Parameters<typeof timeMsOf>): string | undefined {
  const timeMs = timeMsOf(...given);
  return timeMs === undefined ? undefined : new Date(timeMs).toISOString();
}

/** What an event calls its subject or actor → what is shown: `node/17` → `node laptop`, `person/3` → `ada@example.org`. */
type Names = ReadonlyMap<string, string>;

/** Only names that the caller may read: a service token may not list users. */
async function namesOf(api: Api, slug: string): Promise<Names> {
  const orNone = <T>(list: Promise<T[]>): Promise<T[]> => list.catch(() => []);
  // Staff also get the names of users who left.
  const users = (await orNone(api.all(usersApi.list, {}))).map(
    ({ id, email }) => [`person/${id}`, email] as const,
  );
  if (slug === "") return new Map(users);
  const nodes = await api.all(nodesApi.list, { slug });
  const revoked = await orNone(api.all(nodesApi.list, { slug }, { revoked: "true" }));
  const members = await orNone(api.all(membersApi.list, { slug }));
  const services = await orNone(api.all(serviceTokensApi.list, { slug }));
  return new Map([
    ...[...revoked, ...nodes].map(({ id, name }) => [`node/${id}`, `node ${name}`] as const),
    ...members.map(({ user_id: id, email }) => [`person/${id}`, email] as const),
    ...users,
    ...services.map(({ id, name }) => [`service/${id}`, `service token ${name}`] as const),
  ]);
}

function textsOf({ actor, before, ...event }: Event, names: Names): { by: string; changes: string } {
  const { noted_rows: noted } = event.after ?? {};
  // These can be thousands of rows of the database: show their number.
  const after = Array.isArray(noted) ? { noted_rows: noted.length } : event.after;
  const changes = [
    ...(before === null ? [] : [`- ${JSON.stringify(before)}`]),
    ...(after === null ? [] : [`+ ${JSON.stringify(after)}`]),
  ];
  return { by: actorOf(actor, names), changes: changes.join("  ") };
}

/** One event as --follow prints it. The widths of later events are unknown, so there are no columns. */
function lineOf(event: Event, names: Names): string {
  const { at, type, subject } = event;
  const { by, changes } = textsOf(event, names);
  const fields = [at, type, names.get(subject) ?? subject, `by ${by}`, ...(changes === "" ? [] : [changes])];
  return `${fields.map(oneLine).join("  ")}\n`;
}

function actorOf({ kind, id, ip }: Event["actor"], names: Names): string {
  const from = ip === null || ip === "" ? "" : ` from ${ip}`;
  if (kind === "operator") return id === null ? "the operator" : `the operator (uid ${id})`;
  if (kind === "server") return "the server";
  if (kind === "nobody") return `an anonymous caller${from}`;
  return `${names.get(`${kind}/${id ?? ""}`) ?? `${kind} ${id ?? ""}`}${from}`;
}
