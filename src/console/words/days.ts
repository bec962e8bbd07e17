// Spans of days. Pure.

import { oldBackupDays } from "../../api/values.ts";

const dayS = 86_400;

/**
 * The beginning and the end of the last days, in seconds since 1970. `newest`: the control plane's newest point, in seconds. Its
 * clock may be ahead, so the end is not before that.
 */
export function lastDays(days: number, nowMs: number, newest = 0): [from: number, to: number] {
  const to = Math.max(nowMs / 1000, newest);
  return [to - days * dayS, to];
}

/** The items on places at equal distances from `from` to `to` (seconds): each at its nearest place; undefined where none is. */
export function evenly<T extends { at: string }>(
  items: readonly T[],
  everyS: number,
  [from, to]: readonly [number, number],
): (T | undefined)[] {
  const count = Math.floor((to - from) / everyS) + 1;
  const places = Array.from({ length: count }, (): T | undefined => undefined);
  for (const item of items) {
    const place = Math.round((Date.parse(item.at) / 1000 - from) / everyS);
    if (place >= 0 && place < places.length) places[place] = item;
  }
  return places;
}

/** `at`: the time of the last backup, ISO 8601; null if there was none. `now`: ms since 1970. */
export function isBackupDue(at: string | null, now: number): boolean {
  return at === null || now - Date.parse(at) > oldBackupDays * dayS * 1000;
}
