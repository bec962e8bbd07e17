// Times and amounts as people read them. Exact ones are in the browser's zone; copies are in UTC.

import { signal } from "@preact/signals";

/** The time of this browser, every ten seconds: relative times follow it. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 10_000);

const steps: readonly (readonly [number, Intl.RelativeTimeFormatUnit])[] = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [30, "day"],
  [12, "month"],
  [Number.POSITIVE_INFINITY, "year"],
];
const relative = new Intl.RelativeTimeFormat("en", { style: "narrow", numeric: "auto" });

/** "2 m ago", "in 3 days". */
export function ago(at: number, from = now.value): string {
  let amount = (at - from) / 1000;
  if (Math.abs(amount) < 10) return "now";
  for (const [size, unit] of steps) {
    if (Math.abs(amount) < size) return relative.format(Math.trunc(amount), unit);
    amount /= size;
  }
  return "";
}

const exactFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

export function exact(at: number): string {
  return exactFormat.format(at);
}

/** ISO 8601 in UTC, for copies. */
export function utc(at: number): string {
  return new Date(at).toISOString();
}
