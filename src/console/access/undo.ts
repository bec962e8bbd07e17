// Undoes a saved change: edits that reverse it, on the present rules. Pure.

import { mergeRules, pairsOf } from "./merge.ts";
import { isAboutGone, sentenceOf, type Edits, type Rule } from "./rules.ts";

/** `left`: what cannot be undone, as sentences. */
export function undoing(
  present: readonly Rule[],
  { added, removed }: Edits,
): { rules: readonly Rule[]; left: readonly string[] } {
  const gone = removed.filter(isAboutGone);
  const back = removed.filter((rule) => !isAboutGone(rule));
  const heirs = pairsOf(back, added);
  // Below the numbers that a draft gives its new rules.
  const lowest = Math.min(0, ...present.map(({ id }) => id));
  const wanted = back.map((rule, at) => ({ ...rule, id: heirs.get(rule)?.id ?? lowest - 1 - at }));
  const { rules, clashes } = mergeRules(added, wanted, present);
  const left = [
    ...clashes.map(
      ({ base, theirs }) =>
        `${sentenceOf(base)}: this rule was ${theirs === undefined ? "deleted" : "changed"} since, and stays so.`,
    ),
    ...gone.map((rule) => `${sentenceOf(rule)}: what this rule names is gone, so the rule cannot come back.`),
  ];
  return { rules, left };
}
