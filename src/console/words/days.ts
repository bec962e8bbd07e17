// Spans of days. Pure.

import { oldBackupDays } from "../../api/values.ts";

const dayS = 86_400;

/** The last days, in seconds since 1970. The control plane's clock may be ahead: its newest point is in it. */
export function lastDays(days: number, nowMs: number, newest = 0): [number, number] {
  const to = Math.max(nowMs / 1000, newest);
  return [to - days * dayS, to];
}

/** What is known of each time at equal distances; undefined where nothing is. Each time is that of its nearest place. */
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

/** `at`: of the last backup, ISO 8601 or null. */
export function isBackupDue(at: string | null, now: number): boolean {
  return at === null || now - Date.parse(at) > oldBackupDays * dayS * 1000;
}
