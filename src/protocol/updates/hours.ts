// Hours of updates in rings, as they are typed.

/** Reads `22-5` or `sat,sun:0-24`; undefined for another form. Days and limits are checked by RolloutHours (src/api). */
export function hoursFrom(text: string): { days: string[]; from: number; until: number } | undefined {
  const [, days, from, until] = /^(?:([a-z,]+):)?(\d{1,2})-(\d{1,2})$/.exec(text) ?? [];
  if (from === undefined) return undefined;
  return { days: days?.split(",") ?? [], from: Number(from), until: Number(until) };
}

/** The reverse of hoursFrom. */
export const hoursText = ({ days, from, until }: NonNullable<ReturnType<typeof hoursFrom>>): string =>
  `${days.length === 0 ? "" : `${days.join(",")}:`}${from}-${until}`;
