// Long loops run a tenth in the ordinary checks and whole with SOAK=1, which files below test/soak/ set before they
// load the same tests.

export const inFull: boolean = process.env["SOAK"] === "1";

/** Milliseconds from 0 to `longestMs` at which something is killed: `count` of them, or a tenth that is always the same. */
export function instants(count: number, longestMs: number): number[] {
  const random = seeded();
  return Array.from({ length: inFull ? count : Math.ceil(count / 10) }, () => random() * longestMs);
}

/** In an order that is always the same: what runs early is a fair part of the whole. */
export function shuffled<T>(all: readonly T[]): T[] {
  const random = seeded();
  return all
    .map((each) => ({ each, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ each }) => each);
}

/** Lehmer's generator, below 1: all that is wanted is that the numbers are spread and the same again. */
function seeded(): () => number {
  let state = 20_261_121;
  return () => (state = (state * 48_271) % 0x7f_ff_ff_ff) / 0x7f_ff_ff_ff;
}
