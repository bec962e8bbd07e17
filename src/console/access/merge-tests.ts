// Merges edits of two users of the tests. Pure.

import { keyOf, type Tests } from "./test-text.ts";

/** Those of the tests that are not among the known ones. */
export function notIn(known: Tests, tests: Tests): Tests {
  const keys = new Set(known.map(keyOf));
  return tests.filter((test) => !keys.has(keyOf(test)));
}

export const areSameTests = (one: Tests, other: Tests): boolean =>
  notIn(one, other).length + notIn(other, one).length === 0;

/** `theirs` with the edits that made `mine` of `base`. */
export function mergeTests(base: Tests, mine: Tests, theirs: Tests): Tests {
  if (areSameTests(base, theirs)) return mine;
  const deleted = notIn(mine, base);
  const added = notIn(base, mine);
  return [...notIn(deleted, theirs), ...notIn(theirs, added)];
}
