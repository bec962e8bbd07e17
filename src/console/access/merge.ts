// Merges edits of two users of the same rules, and undoes a saved change. An edit is applied to the rule that it began
// with; where both changed the same rule, the user chooses. Pure.

import { contentOf, identityOf, isAboutGone, newId, sentenceOf, type Edits, type Rule } from "./rules.ts";

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

/** The rules in present words: revoking, restoring or renaming a node is no change of a rule. */
export function inNewWords(rules: readonly Rule[], old: Words, now: Words): readonly Rule[] {
  const changed = new Map([...old].map(([side, word]) => [word, now.get(side) ?? word]));
  const word = (each: string) => changed.get(each) ?? each;
  if ([...changed].every(([before, after]) => before === after)) return rules;
  return rules.map((rule) => ({ ...rule, peer: word(rule.peer), target: word(rule.target) }));
}

/** The present form of each rule of `base`; undefined if it was deleted. */
export function pairsOf(base: readonly Rule[], next: readonly Rule[]): ReadonlyMap<Rule, Rule | undefined> {
  const known = new Set(base.map(({ id }) => id));
  const byId = new Map(next.map((rule) => [rule.id, rule]));
  const fresh = new Set(next.filter(({ id }) => !known.has(id)));
  const pairs = new Map<Rule, Rule | undefined>(base.map((rule) => [rule, byId.get(rule.id)]));
  const gone = base.filter((rule) => pairs.get(rule) === undefined);
  // The console and policy files replace a rule whose sides or traffic change: the new one has another number.
  for (const alike of [5, 4, 3])
    for (const rule of gone) {
      if (pairs.get(rule) !== undefined) continue;
      const heir = [...fresh].find((other) => likeness(rule, other) >= alike);
      if (heir === undefined) continue;
      fresh.delete(heir);
      pairs.set(rule, heir);
    }
  return pairs;
}

/** How many of the five parts of two rules are equal. */
function likeness(one: Rule, other: Rule): number {
  const parts = ["direction", "protocol", "ports", "peer", "target"] as const;
  return parts.filter((part) => one[part] === other[part]).length;
}

/** The rules that differ. `before` is undefined for a new rule, `after` for a deleted one. */
export function ruleChanges(base: readonly Rule[], next: readonly Rule[]): readonly Change[] {
  const pairs = pairsOf(base, next);
  const known = new Set(pairs.values());
  return [
    ...[...pairs].flatMap(([before, after]) => (isSame(before, after) ? [] : [{ before, after }])),
    ...next.filter((rule) => !known.has(rule)).map((after) => ({ before: undefined, after })),
  ];
}

const isSame = (one: Rule | undefined, other: Rule | undefined): boolean =>
  one === undefined || other === undefined ? one === other : contentOf(one) === contentOf(other);

/** Both edits of a rule, if one is about its traffic and the other about its description; else undefined. */
function joinedOf(base: Rule, mine: Rule | undefined, theirs: Rule | undefined): Rule | undefined {
  if (mine === undefined || theirs === undefined) return undefined;
  const [moves, theyMove] = [mine, theirs].map((each) => identityOf(each) !== identityOf(base));
  const [tells, theyTell] = [mine, theirs].map(({ description }) => description !== base.description);
  if ((moves && theyMove) || (tells && theyTell)) return undefined;
  return { ...(moves ? mine : theirs), description: (tells ? mine : theirs).description };
}

/** The edits from `base` to `mine` on the rules that became `theirs`. A clash without a choice stays as it is there. */
export function mergeRules(
  base: readonly Rule[],
  mine: readonly Rule[],
  theirs: readonly Rule[],
  choices: ReadonlyMap<string, Choice> = new Map(),
): { rules: readonly Rule[]; clashes: readonly Clash[] } {
  const ownRules = new Map(mine.map((rule) => [rule.id, rule]));
  const known = new Set(base.map(({ id }) => id));
  const put = new Map<Rule, Rule | undefined>();
  const added: Rule[] = [];
  const clashes: Clash[] = [];
  for (const [before, there] of pairsOf(base, theirs)) {
    const wanted = ownRules.get(before.id);
    if (isSame(before, wanted) || isSame(wanted, there)) continue;
    const joined = joinedOf(before, wanted, there);
    if (joined === undefined && !isSame(before, there)) {
      const clash = { base: before, mine: wanted, theirs: there };
      clashes.push(clash);
      const choice = choices.get(clashKey(clash));
      if (choice === "both" && wanted !== undefined) added.push(wanted);
      if (choice !== "mine") continue;
    }
    if (there !== undefined) put.set(there, joined ?? wanted);
    else if (wanted !== undefined) added.push(wanted);
  }
  const rules = theirs.flatMap((rule) => {
    if (!put.has(rule)) return [rule];
    const wanted = put.get(rule);
    return wanted === undefined ? [] : [{ ...wanted, id: rule.id }];
  });
  const present = new Set(rules.map(contentOf));
  for (const rule of [...added, ...mine.filter(({ id }) => !known.has(id))]) {
    if (present.has(contentOf(rule))) continue;
    const isTaken = rules.some(({ id }) => id === rule.id);
    rules.push(isTaken || rule.id > 0 ? { ...rule, id: newId([...rules, ...mine]) } : rule);
  }
  return { rules, clashes };
}

/** Undoes a saved change: edits that reverse it, on the present rules. `left`: what cannot be undone, as sentences. */
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
