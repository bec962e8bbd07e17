// Merges edits of two users of the same rules, and undoes a saved change. An edit is applied to the rule that it began
// with; where both changed the same rule, the user chooses. Pure.

import { newId, type Edits } from "./rule-edits.ts";
import { contentOf, identityOf, isAboutGone, sentenceOf, type Rule } from "./rules.ts";

/** A rule that differs. Without `before` it is new, without `after` it was deleted. */
export type Change = { before: Rule | undefined; after: Rule | undefined };

/** A rule that both changed. Undefined: deleted. */
export type Clash = { base: Rule; mine: Rule | undefined; theirs: Rule | undefined };
export type Choice = "mine" | "theirs" | "both";
/** A choice is of these two versions: it ends when one of them changes. */
export const clashKey = ({ base, mine, theirs }: Clash): string =>
  JSON.stringify([base.id, mine ?? null, theirs ?? null]);

/** The word of each side of a stored rule, by the side as JSON. */
export type Words = ReadonlyMap<string, string>;

/**
 * The rules with the new words of their sides: revoking, restoring or renaming a node is no change of a rule. Returns the same
 * array if no word is another.
 */
export function inNewWords(rules: readonly Rule[], old: Words, now: Words): readonly Rule[] {
  const changed = new Map([...old].map(([side, word]) => [word, now.get(side) ?? word]));
  const word = (each: string) => changed.get(each) ?? each;
  if ([...changed].every(([before, after]) => before === after)) return rules;
  return rules.map((rule) => ({ ...rule, peer: word(rule.peer), target: word(rule.target) }));
}

/** What each rule of `base` is in `next`; undefined if it was deleted. */
export function successorsOf(
  base: readonly Rule[],
  next: readonly Rule[],
): ReadonlyMap<Rule, Rule | undefined> {
  const known = new Set(base.map(({ id }) => id));
  const byId = new Map(next.map((rule) => [rule.id, rule]));
  const added = new Set(next.filter(({ id }) => !known.has(id)));
  const successors = new Map<Rule, Rule | undefined>(base.map((rule) => [rule, byId.get(rule.id)]));
  const missing = base.filter((rule) => successors.get(rule) === undefined);
  // The console and policy files replace a rule whose sides or traffic change, and the new one has another id. Of the added
  // rules, the most alike is the successor; one with fewer than three equal parts of five is another rule.
  for (const leastLikeness of [5, 4, 3])
    for (const rule of missing) {
      if (successors.get(rule) !== undefined) continue;
      const successor = [...added].find((other) => likeness(rule, other) >= leastLikeness);
      if (successor === undefined) continue;
      added.delete(successor);
      successors.set(rule, successor);
    }
  return successors;
}

/** How many of the five parts of two rules are equal. */
function likeness(one: Rule, other: Rule): number {
  const parts = ["direction", "protocol", "ports", "peer", "target"] as const;
  return parts.filter((part) => one[part] === other[part]).length;
}

/** The rules that differ. `before` is undefined for a new rule, `after` for a deleted one. */
export function ruleChanges(base: readonly Rule[], next: readonly Rule[]): readonly Change[] {
  const successors = successorsOf(base, next);
  const known = new Set(successors.values());
  return [
    ...[...successors].flatMap(([before, after]) => (isSame(before, after) ? [] : [{ before, after }])),
    ...next.filter((rule) => !known.has(rule)).map((after) => ({ before: undefined, after })),
  ];
}

const isSame = (one: Rule | undefined, other: Rule | undefined): boolean =>
  one === undefined || other === undefined ? one === other : contentOf(one) === contentOf(other);

/** Both edits of a rule, if one is about its sides or traffic and the other about its description; else undefined. */
function joined(base: Rule, mine: Rule | undefined, theirs: Rule | undefined): Rule | undefined {
  if (mine === undefined || theirs === undefined) return undefined;
  const isOther = (rule: Rule) => identityOf(rule) !== identityOf(base);
  const isDescribed = (rule: Rule) => rule.description !== base.description;
  if ([isOther, isDescribed].some((differs) => differs(mine) && differs(theirs))) return undefined;
  return {
    ...(isOther(mine) ? mine : theirs),
    description: (isDescribed(mine) ? mine : theirs).description,
  };
}

/**
 * The edits from `base` to `mine`, applied to `theirs`: what others made of `base`. A rule that both changed is a clash; without
 * a choice it stays as it is in `theirs`.
 */
export function mergeRules(
  base: readonly Rule[],
  mine: readonly Rule[],
  theirs: readonly Rule[],
  choices: ReadonlyMap<string, Choice> = new Map(),
): { rules: readonly Rule[]; clashes: readonly Clash[] } {
  const mineById = new Map(mine.map((rule) => [rule.id, rule]));
  const known = new Set(base.map(({ id }) => id));
  /** For rules of `theirs`: what is put in their place; undefined: nothing. */
  const replacements = new Map<Rule, Rule | undefined>();
  const added: Rule[] = [];
  const clashes: Clash[] = [];
  for (const [baseRule, theirRule] of successorsOf(base, theirs)) {
    const myRule = mineById.get(baseRule.id);
    if (isSame(baseRule, myRule) || isSame(myRule, theirRule)) continue;
    const both = joined(baseRule, myRule, theirRule);
    if (both === undefined && !isSame(baseRule, theirRule)) {
      const clash = { base: baseRule, mine: myRule, theirs: theirRule };
      clashes.push(clash);
      const choice = choices.get(clashKey(clash));
      if (choice === "both" && myRule !== undefined) added.push(myRule);
      if (choice !== "mine") continue;
    }
    if (theirRule !== undefined) replacements.set(theirRule, both ?? myRule);
    else if (myRule !== undefined) added.push(myRule);
  }
  const rules = theirs.flatMap((rule) => {
    if (!replacements.has(rule)) return [rule];
    const replacement = replacements.get(rule);
    return replacement === undefined ? [] : [{ ...replacement, id: rule.id }];
  });
  // New rules: those of both sides that are no rule of the result already. An id that a rule of `theirs` has is not used again.
  const identities = new Set(rules.map(identityOf));
  for (const rule of [...added, ...mine.filter(({ id }) => !known.has(id))]) {
    if (identities.has(identityOf(rule))) continue;
    identities.add(identityOf(rule));
    // A rule with an id above 0 is stored already, or others have deleted it: here it is a new one.
    const isTaken = rules.some(({ id }) => id === rule.id);
    rules.push(isTaken || rule.id > 0 ? { ...rule, id: newId([...rules, ...mine]) } : rule);
  }
  return { rules, clashes };
}

/**
 * The rules of now with a saved change reversed: the edit from what it added (the base) back to what it removed is merged with them.
 * `left`: what cannot be undone, as sentences.
 */
export function undoing(
  rulesNow: readonly Rule[],
  { added, removed }: Edits,
): { rules: readonly Rule[]; left: readonly string[] } {
  const gone = removed.filter(isAboutGone);
  const restorable = removed.filter((rule) => !isAboutGone(rule));
  const successors = successorsOf(restorable, added);
  // Restored rules are new ones, and get ids below zero (newId), lower than those of the draft's own new rules.
  const lowest = Math.min(0, ...rulesNow.map(({ id }) => id));
  const restored = restorable.map((rule, at) => ({
    ...rule,
    id: successors.get(rule)?.id ?? lowest - 1 - at,
  }));
  const { rules, clashes } = mergeRules(added, restored, rulesNow);
  const left = [
    ...clashes.map(
      ({ base, theirs }) =>
        `${sentenceOf(base)}: this rule was ${theirs === undefined ? "deleted" : "changed"} since, and stays so.`,
    ),
    ...gone.map((rule) => `${sentenceOf(rule)}: what this rule names is gone, so the rule cannot come back.`),
  ];
  return { rules, left };
}
