// What an event changed, as a readable difference: fields with the texts that were removed and added. Pure.

import { isObject } from "../../base/is-object.ts";
import type { Event as AuditEvent } from "../../api/events.ts";

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
    // Undefined: the record has no such field.
    const was = Object.hasOwn(before, key) ? before[key] : undefined;
    const is = Object.hasOwn(after, key) ? after[key] : undefined;
    const field = `${path}${wordsOf(key)}`;
    // Leaves out what a new thing has not set, and counts of zero in the event of a policy.
    if (was === undefined && (is === null || (path === "counts " && is === 0))) return [];
    if (depth > 0 && isRecordOrAbsent(was) && isRecordOrAbsent(is))
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

/** A side of a rule is a text, not a record with fields of its own. */
const isRecordOrAbsent = (value: unknown): value is Record<string, unknown> | undefined =>
  value === undefined || (isObject(value) && !isSide(value));

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
