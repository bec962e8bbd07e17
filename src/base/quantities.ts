// Quantities as text: durations (90s, 15m, 24h, 7d), sizes (500MB, 4GB), times as RFC 3339, counts; and traffic (tcp/5432).

/** Seconds. */
const units = { s: 1, m: 60, h: 3600, d: 86_400 } as const;

/** Seconds, or undefined if the text is not a duration. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d{1,9})([smhd])$/.exec(text);
  if (match === null) return undefined;
  return Number(match[1]) * units[match[2] as keyof typeof units];
}

/** Bytes. */
const sizes = { MB: 1e6, GB: 1e9, TB: 1e12 } as const;

/** Bytes, or undefined if the text is not a size. */
export function parseSize(text: string): number | undefined {
  const match = /^(\d{1,6})([MGT]B)$/.exec(text);
  if (match === null) return undefined;
  return Number(match[1]) * sizes[match[2] as keyof typeof sizes];
}

/** 0 MB, 12.3 MB, 500 GB: never more than there is. */
export function formatSize(bytes: number): string {
  let [size, unit] = [1e6, "MB"];
  if (bytes >= 1e9) [size, unit] = [1e9, "GB"];
  if (bytes >= 1e12) [size, unit] = [1e12, "TB"];
  return `${Math.floor((bytes / size) * 10) / 10} ${unit}`;
}

/**
 * Milliseconds of 2026-11-22 (UTC), 2026-11-22T08:00Z or 2026-11-22T10:00:00+02:00. Undefined also for a day that does not
 * exist, which `Date.parse` takes for a later one.
 */
export function parseMoment(text: string): number | undefined {
  const [, day] =
    /^(\d{4}-\d\d-\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?))?$/.exec(text) ?? [];
  if (day === undefined) return undefined;
  const [midnight, time] = [new Date(day), Date.parse(text)];
  if (Number.isNaN(midnight.getTime()) || Number.isNaN(time)) return undefined;
  return midnight.toISOString().startsWith(day) ? time : undefined;
}

/** RFC 3339 in UTC with Z, whole seconds. */
export function formatTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** The same of a time that may not have come yet. */
export const timeOrNull = (ms: number | null): string | null => (ms === null ? null : formatTime(ms));

/** 5 minutes, 3 hours, 12 days. */
export function inWords(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 120) return countOf(minutes, "minute");
  if (minutes < 2 * 1440) return countOf(Math.round(minutes / 60), "hour");
  return countOf(Math.round(minutes / 1440), "day");
}

/** 1 node, 2 nodes. */
export const countOf = (count: number, unit: string): string => `${count} ${unit}${count === 1 ? "" : "s"}`;

/** `tcp/5432`; `icmp` where the protocol has no port: null, or 0. */
export const protocolAndPort = (protocol: string, port: number | null): string =>
  port === null || port === 0 ? protocol : `${protocol}/${port}`;
