// Bounds the comparison of who reaches whom: one organization must not delay all others.

import { AppError } from "../../base/errors.ts";

/** Classes (of nodes that all rules treat alike) and rules multiply: some thousand of each would take the server hours. */
export class TooMuchWork extends AppError {
  constructor() {
    super(
      "validation_failed",
      "Comparing which nodes reach each other takes too long. Have fewer rules, or rules that name fewer groups and nodes.",
    );
  }
}

/** In steps of about ten nanoseconds. */
const maxWork = 400_000_000;

export type Work = { spend(steps: number): void };

/** Throws TooMuchWork once all of it is spent. */
export function makeWork(limit = maxWork): Work {
  let spent = 0;
  return {
    spend(steps) {
      spent += steps;
      if (spent > limit) throw new TooMuchWork();
    },
  };
}
