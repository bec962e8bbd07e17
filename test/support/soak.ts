// Long loops run a tenth in the ordinary checks and whole with SOAK=1, which files below test/soak/ set before they
// load the same tests.

export const inFull: boolean = process.env["SOAK"] === "1";

/** Milliseconds from 0 to `longestMs` at which something is killed: `count` of them, or a tenth that is always the same. */
export function instants(count: number, longestMs: number): number[] {
  // Lehmer's generator: all that is wanted is that they are spread and the same again.
  let state = 20_261_121;
  return Array.from({ length: inFull ? count : Math.ceil(count / 10) }, () => {
    state = (state * 48_271) % 0x7f_ff_ff_ff;
    return (state / 0x7f_ff_ff_ff) * longestMs;
  });
}
