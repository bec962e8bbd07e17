// Hours of updates in rings, as they are typed.

/** `22-5`, `sat,sun:0-24`. Undefined: it is nothing like that. The contract has the limits. */
export function hoursFrom(text: string): { days: string[]; from: number; until: number } | undefined {
  const [, days, from, until] = /^(?:([a-z,]+):)?(\d{1,2})-(\d{1,2})$/.exec(text) ?? [];
  if (from === undefined) return undefined;
  return { days: days?.split(",") ?? [], from: Number(from), until: Number(until) };
}

export const hoursText = ({ days, from, until }: NonNullable<ReturnType<typeof hoursFrom>>): string =>
  `${days.length === 0 ? "" : `${days.join(",")}:`}${from}-${until}`;
