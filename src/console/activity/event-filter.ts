// Which events of the audit log a page shows: the filter in its address, the names that events give, and words about what was found.
// Pure.

import { actorOf, isAbout, type Names } from "./actor.ts";
import { eventKinds, type Event as AuditEvent } from "../../api/events.ts";
import type { Span } from "./read-back.ts";
import { dayOf } from "../words/ago.ts";
import { hasWords, searchWords } from "../words/search.ts";

/**
 * Words of the address. `from` and `to` are days of the browser's zone, both included, or hours: "2026-11-26T08" means the beginning
 * of that hour, so that the hour of `to` is not included. `about`: one of the parts below, or `failures`.
 */
export type Filter = {
  about: string;
  search: string;
  actor: string;
  type: string;
  subject: string;
  from: string;
  to: string;
};
export const filterKeys = ["about", "search", "actor", "type", "subject", "from", "to"] as const;

/** What events are about, as the pages of the console are: the title of each part, and the first words of its types. */
export const parts = {
  nodes: ["Nodes", ["enrollment", "name", "node", "registration", "rollout", "token"]],
  access: ["Access", ["flows", "group", "policy", "rule"]],
  people: ["Members", ["domain", "member", "provider", "security", "user"]],
  certificates: ["Certificates", ["blocklist", "ca", "certificate", "tls"]],
} as const;
export type Part = keyof typeof parts;
export const failures = "failures";
export const isFailure = (type: string): boolean =>
  (eventKinds as Readonly<Record<string, { fails?: true }>>)[type]?.fails === true;

const dayPattern = /^\d{4}-\d\d-\d\d(T\d\d)?$/;

/** The filter from the address, which may contain anything. */
export function filterOf(words: URLSearchParams): Filter {
  const of = (key: keyof Filter) => words.get(key) ?? "";
  const day = (key: "from" | "to") => (dayPattern.test(of(key)) ? of(key) : "");
  return {
    about: of("about"),
    search: of("search"),
    actor: of("actor"),
    type: of("type"),
    subject: of("subject"),
    from: day("from"),
    to: day("to"),
  };
}

/** Names by subject: `node/7`. */
export type Things = ReadonlyMap<string, string>;
const nothing: Things = new Map();

/** The names in the events, with former names. `events`: the newest first. */
export function thingsOf(events: readonly AuditEvent[]): Things {
  const found = new Map<string, Set<string>>();
  for (const { subject, before, after } of events) {
    const names = found.get(subject) ?? new Set();
    for (const name of [after?.["name"], before?.["name"]]) if (typeof name === "string") names.add(name);
    if (names.size > 0) found.set(subject, names);
  }
  const words = ([subject, [newest = "", ...former]]: [string, Set<string>]): [string, string] => [
    subject,
    former.length === 0 ? newest : `${newest} (once ${former.join(", ")})`,
  ];
  return new Map([...found].map(words));
}

/** The name that the event, or another one about the same thing, gives, beside the subject, which has the id. */
export function subjectOf({ subject, before, after }: AuditEvent, things = nothing): string {
  const name = after?.["name"] ?? before?.["name"] ?? things.get(subject);
  return typeof name === "string" ? `${name} (${subject})` : subject;
}

/** The beginning of a day or hour in the browser's zone, ms since 1970; undefined for another text. `days`: so many days later, for a day without an hour. */
function beginningOf(text: string, days = 0): number | undefined {
  if (!dayPattern.test(text)) return undefined;
  const [year = 0, month = 0, day = 0, hour] = text.split(/[-T]/).map(Number);
  return new Date(year, month - 1, hour === undefined ? day + days : day, hour ?? 0).getTime();
}

/** The file of an export: its name says which days it covers. `found`: the newest first. */
export function exportName(
  slug: string,
  { from, to, ...words }: Filter,
  found: readonly AuditEvent[],
  isAll = true,
): string {
  const dayAt = (event: AuditEvent | undefined) => (event === undefined ? "" : dayOf(Date.parse(event.at)));
  const days = [isAll && from !== "" ? from : dayAt(found.at(-1)), to || dayAt(found[0])].filter(
    (day) => day !== "",
  );
  const part = Object.values(words).every((word) => word === "") ? [] : ["filtered"];
  return `${[slug, "events", ...days, ...part].join("-")}.csv`;
}

/** The shown part of the log. `read`: events that the page has read; `found`: those that match. */
export function foundWords(
  { found, read }: { found: number; read: number },
  { isFiltered, isAll }: Record<"isFiltered" | "isAll", boolean>,
): string {
  const matches = found === 1 ? "event matches" : "events match";
  if (isAll) return isFiltered ? `${found} ${matches}` : `All ${read} events`;
  const words = isFiltered ? `${found} of the newest ${read} events match` : `The newest ${read} events`;
  return `${words}; an export reads the others, too`;
}

export const spanOf = ({ from, to }: Filter): Span => ({ start: beginningOf(from), end: beginningOf(to, 1) });

/**
 * The searched text of an event. Hashes, fingerprints and times are left out, because nearly every number is in one
 * of them.
 */
const searchedIn = ({ type, actor, subject, before, after }: AuditEvent) =>
  JSON.stringify([type, actor, subject, before, after]).replaceAll(/"[0-9a-f]{64}"/g, '""');

/** Whether an event passes. A type may end with an asterisk, as in webhooks. `say`: its sentence, with who did it. */
export function makeMatch(
  filter: Filter,
  names: Names,
  things = nothing,
  say: (event: AuditEvent) => string = () => "",
): (event: AuditEvent) => boolean {
  const [search, actor] = [searchWords(filter.search), searchWords(filter.actor)];
  // A search for a hash, such as one that was kept elsewhere, finds its event.
  const isHash = /^[0-9a-f]{64}$/.test(search.join(" "));
  // A whole subject, such as node/5, does not mean node/50.
  const isOneThing = /^\w+\/\d+$/.test(filter.subject);
  const subject = searchWords(filter.subject);
  const type = filter.type.trim().toLowerCase();
  const isType = (of: string) => (type.endsWith("*") ? of.startsWith(type.slice(0, -1)) : of === type);
  const [startMs, endMs] = [beginningOf(filter.from), beginningOf(filter.to, 1)];
  const kinds: readonly string[] | undefined = Object.hasOwn(parts, filter.about)
    ? parts[filter.about as Part][1]
    : undefined;
  // The control plane's own notes for questions about the past follow each change: they would hide the others.
  const hidesNotes = type === "" && search.length === 0;
  return (event) => {
    if (hidesNotes && event.type === "policy.recorded") return false;
    const at = Date.parse(event.at);
    if ((startMs !== undefined && at < startMs) || (endMs !== undefined && at >= endMs)) return false;
    if (type !== "" && !isType(event.type)) return false;
    if (kinds?.includes(event.type.slice(0, event.type.indexOf("."))) === false) return false;
    if (filter.about === failures && !isFailure(event.type)) return false;
    if (!hasWords(actorOf(event, names), actor)) return false;
    if (isOneThing ? !isAbout(event, filter.subject) : !hasWords(subjectOf(event, things), subject))
      return false;
    const text = searchedIn(event) + say(event) + (isHash ? event.hash : "");
    return search.length === 0 || hasWords(text, search);
  };
}
