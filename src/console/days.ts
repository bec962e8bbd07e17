// Spans of days. Pure.

const dayS = 86_400;

/** The last days, in seconds since 1970. The control plane's clock may be ahead: its newest point is in it. */
export function lastDays(days: number, nowMs: number, newest = 0): [number, number] {
  const to = Math.max(nowMs / 1000, newest);
  return [to - days * dayS, to];
}

/** Age of a backup that needs attention. */
const backupMs = 2 * 86_400_000;

/** `at`: of the last backup, ISO 8601 or null. */
export function isBackupDue(at: string | null, now: number): boolean {
  return at === null || now - Date.parse(at) > backupMs;
}
