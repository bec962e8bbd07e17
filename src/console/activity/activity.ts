// Events of the audit log: filters, what changed as a readable difference, and the chain of hashes. Pure.

import { hashedTexts } from "../../protocol/hashed-texts.ts";
import { isObject } from "../../base/is-object.ts";
import { actorOf, isAbout, type Names } from "./actor.ts";
import { eventKinds, type Event as AuditEvent, type EventHour } from "../../api/events.ts";
import type { Span } from "./read-back.ts";
import { dayOf as dayAtMs } from "../words/ago.ts";
import { hasWords, searchWords } from "../words/search.ts";

/**
 * Words of the address. `from` and `to` are days of the browser's zone, both included, or hours of a day: "2026-11-26T08",
 * whose beginnings they mean. `about`: one of the parts below.
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

/** What the events are about, by the first words of their types, as the pages of the console are. */
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

/** The beginning of a day or hour in the browser's zone, ms; undefined for none. `days`: later, of a whole day. */
function dayOf(text: string, days = 0): number | undefined {
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
  const dayAt = (event: AuditEvent | undefined) => (event === undefined ? "" : dayAtMs(Date.parse(event.at)));
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

export const spanOf = ({ from, to }: Filter): Span => ({ start: dayOf(from), end: dayOf(to, 1) });

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
  const isWhole = /^\w+\/\d+$/.test(filter.subject);
  const subject = searchWords(filter.subject);
  const type = filter.type.trim().toLowerCase();
  const isType = (of: string) => (type.endsWith("*") ? of.startsWith(type.slice(0, -1)) : of === type);
  const [first, last] = [dayOf(filter.from), dayOf(filter.to, 1)];
  const kinds: readonly string[] | undefined = Object.hasOwn(parts, filter.about)
    ? parts[filter.about as Part][1]
    : undefined;
  // The control plane's own notes for questions about the past follow each change: they would hide the others.
  const hidesNotes = type === "" && search.length === 0;
  return (event) => {
    if (hidesNotes && event.type === "policy.recorded") return false;
    const at = Date.parse(event.at);
    if ((first !== undefined && at < first) || (last !== undefined && at >= last)) return false;
    if (type !== "" && !isType(event.type)) return false;
    if (kinds?.includes(event.type.slice(0, event.type.indexOf("."))) === false) return false;
    if (filter.about === failures && !isFailure(event.type)) return false;
    if (!hasWords(actorOf(event, names), actor)) return false;
    if (isWhole ? !isAbout(event, filter.subject) : !hasWords(subjectOf(event, things), subject))
      return false;
    const text = searchedIn(event) + say(event) + (isHash ? event.hash : "");
    return search.length === 0 || hasWords(text, search);
  };
}

/** `field`: the way to it, "tun mtu". Without `removed` it was added, without `added` it was removed. */
export type Change = { field: string; removed: readonly string[]; added: readonly string[] };

const maxDepth = 4;
/** Words of the pages that differ from those of the API. */
const pageWords = new Map([["subnets", "networks behind it"]]);
/** "external_port" as "external port"; other names, such as of flags, stay as they are. */
const wordsOf = (key: string) => pageWords.get(key) ?? key.replaceAll(/(?<=[a-z0-9])_(?=[a-z0-9])/g, " ");

/** The changes: added and removed items of lists, and the fields of records that differ. */
export function changesOf({ before, after }: Pick<AuditEvent, "before" | "after">): Change[] {
  return recordChanges(before ?? {}, after ?? {}, "", maxDepth);
}

function recordChanges(
  before: Readonly<Record<string, unknown>>,
  after: Readonly<Record<string, unknown>>,
  path: string,
  depth: number,
): Change[] {
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return keys.flatMap((key): Change[] => {
    const was = Object.hasOwn(before, key) ? before[key] : undefined;
    const is = Object.hasOwn(after, key) ? after[key] : undefined;
    const field = `${path}${wordsOf(key)}`;
    // Leaves out counts of zero in the event of a policy.
    if (path === "counts " && was === undefined && is === 0) return [];
    if (
      depth > 0 &&
      (isObject(was) || isObject(is)) &&
      isOrNone(was) &&
      isOrNone(is) &&
      !isSide(was) &&
      !isSide(is)
    )
      return recordChanges(was ?? {}, is ?? {}, `${field} `, depth - 1);
    const [removed, added] = [textsOf(was), textsOf(is)];
    const [wasSet, isSet] = [new Set(removed), new Set(added)];
    const change = {
      field,
      removed: removed.filter((text) => !isSet.has(text)),
      added: added.filter((text) => !wasSet.has(text)),
    };
    return change.removed.length + change.added.length === 0 ? [] : [change];
  });
}

const isOrNone = (value: unknown): value is Record<string, unknown> | undefined =>
  value === undefined || isObject(value);

function textsOf(value: unknown): string[] {
  if (value === undefined) return [];
  if (Array.isArray(value)) return value.map(textOf);
  return [textOf(value)];
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value === "" ? "(empty)" : value;
  if (value === null) return "none";
  if (isSide(value)) return "any" in value ? "any" : sideText(value);
  if (isObject(value))
    return Object.entries(value)
      .filter(([, each]) => each !== "")
      .map(([key, each]) => `${wordsOf(key)} ${isSide(each) ? textOf(each) : plainText(each)}`)
      .join(", ");
  return JSON.stringify(value);
}

const plainText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
const sideText = (side: Readonly<Record<string, unknown>>): string =>
  Object.entries(side)
    .map(([key, value]) => `${key} ${plainText(value)}`)
    .join("");

/** A side of a rule: `{"any": true}`, `{"group": "web"}`, `{"node": 7}`, `{"cidr": "10.0.0.0/8"}`. */
function isSide(value: unknown): value is Record<string, unknown> {
  const [key, ...more] = isObject(value) ? Object.keys(value) : [];
  return key !== undefined && more.length === 0 && ["any", "group", "node", "cidr"].includes(key);
}

/** Hours that one press on the week chooses: a single one would be too narrow for a finger. */
export const pressHours = 6;
const weekDays = 7;

/** `place`: from the beginning of the week, in hours of the browser's zone. */
export type WeekHour = { place: number; count: number; failures: number };
export type WeekDay = {
  /** Its beginning, in ms. */
  start: number;
  /** The words of the address for each part of it, and what happened then. */
  spans: readonly { from: string; to: string; count: number; failures: number }[];
};

/** The last seven days, today the last one, with the hours in which something happened. */
export function weekOf(hours: readonly EventHour[], now: number): { bars: WeekHour[]; days: WeekDay[] } {
  const today = new Date(now);
  const [year, month, date] = [today.getFullYear(), today.getMonth(), today.getDate()];
  const startOf = (day: number, hour = 0) => new Date(year, month, date + day - weekDays + 1, hour);
  const starts = Array.from({ length: weekDays }, (_, day) => startOf(day).getTime());
  const bars = hours.flatMap(({ at, count, types }): WeekHour[] => {
    const time = Date.parse(at);
    const day = starts.findLastIndex((start) => start <= time);
    if (day === -1 || time >= startOf(weekDays).getTime()) return [];
    const failed = Object.entries(types).map(([type, of]) => (isFailure(type) ? of : 0));
    return [{ place: day * 24 + new Date(time).getHours(), count, failures: sum(failed) }];
  });
  const word = (at: Date) => `${dayAtMs(at.getTime())}T${`${at.getHours()}`.padStart(2, "0")}`;
  const days = starts.map((start, day) => ({
    start,
    spans: Array.from({ length: 24 / pressHours }, (_, at) => {
      const first = day * 24 + at * pressHours;
      const within = bars.filter(({ place }) => place >= first && place < first + pressHours);
      return {
        from: word(startOf(day, at * pressHours)),
        to: word(startOf(day, (at + 1) * pressHours)),
        count: sum(within.map(({ count }) => count)),
        failures: sum(within.map((each) => each.failures)),
      };
    }),
  }));
  return { bars, days };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((one, other) => one + other, 0);

export type Chain = {
  events: number;
  /** The hash of the last event: a copy elsewhere proves later that no event was cut off the end. */
  head: string;
  /** The id of the first event whose hash does not match; undefined: none. */
  brokenAt: number | undefined;
  first: AuditEvent | undefined;
  /** The hash that the first event continues from: of the newest archive that ends before it, "" without one. */
  begin: string;
};

export const emptyChain: Chain = { events: 0, head: "", brokenAt: undefined, first: undefined, begin: "" };

type Hash = (text: string) => Promise<string>;

/** The hash covers the event as the API shows it, without `id` and `hash`. */
async function isWhole(event: AuditEvent, previous: string, sha256: Hash): Promise<boolean> {
  const { at, type, actor, subject, before, after, hash } = event;
  const text = JSON.stringify({ at, type, actor, subject, before, after });
  for (const each of hashedTexts(text)) if ((await sha256(`${previous}\n${each}`)) === hash) return true;
  return false;
}

/** The chain with the next events, oldest first. `sha256`: in hex. */
export async function verifyNext(chain: Chain, events: readonly AuditEvent[], sha256: Hash): Promise<Chain> {
  let { head, brokenAt, first, begin } = chain;
  for (const event of events) {
    if (first === undefined) first = event;
    else if (!(await isWhole(event, head, sha256))) brokenAt ??= event.id;
    begin = archivedBefore(event, first) ?? begin;
    head = event.hash;
  }
  return { events: chain.events + events.length, head, brokenAt, first, begin };
}

/** The whole chain: which hash its first event continues from is known when all events were seen. */
export async function verifyEnd(chain: Chain, sha256: Hash): Promise<Chain> {
  const { first, begin } = chain;
  if (first === undefined || (await isWhole(first, begin, sha256))) return chain;
  return { ...chain, brokenAt: first.id };
}

/** The last hash of an archive that ends before the first event. */
function archivedBefore({ type, after }: AuditEvent, first: AuditEvent): string | undefined {
  const archive = type === "events.archived" ? after?.["archive"] : undefined;
  if (!isObject(archive) || Number(archive["last"]) >= first.id) return undefined;
  return typeof archive["last_hash"] === "string" ? archive["last_hash"] : undefined;
}
