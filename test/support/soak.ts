// Long loops run a tenth of their rounds in ordinary tests, and all with SOAK=1, which files below test/soak/ set before
// they load the same tests.

export const inFull: boolean = process.env["SOAK"] === "1";

/** Times for kills from 0 to `longestMs` in ms: `count` of them, or always the same tenth. */
export function instants(count: number, longestMs: number): number[] {
  const random = seeded();
  return Array.from({ length: inFull ? count : Math.ceil(count / 10) }, () => random() * longestMs);
}

/** A fixed shuffled order: the first items are a representative sample. */
export function shuffled<T>(all: readonly T[]): T[] {
  const random = seeded();
  return all
    .map((each) => ({ each, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ each }) => each);
}

/** Lehmer's generator, below 1: spread and reproducible is enough. */
function seeded(): () => number {
  let state = 20_261_121;
  return () => (state = (state * 48_271) % 0x7f_ff_ff_ff) / 0x7f_ff_ff_ff;
}
