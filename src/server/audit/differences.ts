// Reduces the state before and after a change to what differs, so that an event does not repeat a whole configuration.

import { isObject } from "../../base/is-object.ts";

type Details = Record<string, unknown>;
export type Change = { before: Details; after: Details };

/**
 * The keys whose values differ, with their values on both sides. Compares maps key by key; any other value, also a list,
 * is kept whole. A key that only one side has is missing on the other.
 */
export function differences(before: Details, after: Details): Change {
  const kept = { before: new Map<string, unknown>(), after: new Map<string, unknown>() };
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, now] = [before[key], after[key]];
    if (isObject(old) && isObject(now)) {
      const inner = differences(old, now);
      if (Object.keys({ ...inner.before, ...inner.after }).length === 0) continue;
      kept.before.set(key, inner.before);
      kept.after.set(key, inner.after);
    } else if (JSON.stringify(old) !== JSON.stringify(now)) {
      if (Object.hasOwn(before, key)) kept.before.set(key, old);
      if (Object.hasOwn(after, key)) kept.after.set(key, now);
    }
  }
  return { before: Object.fromEntries(kept.before), after: Object.fromEntries(kept.after) };
}
