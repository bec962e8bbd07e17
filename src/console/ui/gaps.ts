// Times without values are gaps of a plot. Pure.

/** Seconds since 1970, and a column of values for each line. Null is a gap. */
export type Columns = [times: number[], ...values: (number | null)[][]];

/** A gap follows a time whose next one is missing. */
export function withGaps([times, ...values]: Columns, everyS: number): Columns {
  const every: number[] = [];
  const drawn = values.map((): (number | null)[] => []);
  times.forEach((time, at) => {
    const last = times[at - 1] ?? time;
    const isGap = time - last > 1.5 * everyS;
    every.push(...(isGap ? [last + everyS, time] : [time]));
    drawn.forEach((line, of) => line.push(...(isGap ? [null] : []), values[of]?.[at] ?? null));
  });
  return [every, ...drawn];
}
