// The edits of a list of rules: what they change, the policy file that saves them with the faults that the control plane finds in
// it, and the same edits as commands. Pure.

import type { Words } from "../words/terminal.ts";
import { contentOf, isAboutGone, sentenceOf, type Rule } from "./rules.ts";

export type Edits = { added: readonly Rule[]; removed: readonly Rule[] };

/** The rules that only one of the lists has, by content. A changed rule is in both, with its old and its new content. */
export function editsOf(base: readonly Rule[], draft: readonly Rule[]): Edits {
  const before = new Set(base.map(contentOf));
  const after = new Set(draft.map(contentOf));
  return {
    added: draft.filter((rule) => !before.has(contentOf(rule))),
    removed: base.filter((rule) => !after.has(contentOf(rule))),
  };
}

/** A rule of the list, with what the draft does to it. `before`: as it is saved. */
export type Row = { rule: Rule; before?: Rule; state: "same" | "new" | "changed" | "deleted" };

/** The rules that are saved, in their order, then the new ones. */
export function rowsOf(base: readonly Rule[], draft: readonly Rule[]): readonly Row[] {
  const byId = new Map(draft.map((rule) => [rule.id, rule]));
  const known = new Set(base.map(({ id }) => id));
  return [
    ...base.map((before): Row => {
      const rule = byId.get(before.id);
      if (rule === undefined) return { rule: before, state: "deleted" };
      return rule === before || contentOf(rule) === contentOf(before)
        ? { rule, state: "same" }
        : { rule, before, state: "changed" };
    }),
    ...draft.filter(({ id }) => !known.has(id)).map((rule): Row => ({ rule, state: "new" })),
  ];
}

/** "1 new rule, 2 changed, 1 test deleted": each noun is said once. */
export function changeWords(rows: readonly Row[], tests: Readonly<Record<"fresh" | "gone", number>>): string {
  const count = (state: Row["state"]) => rows.filter((row) => row.state === state).length;
  const parts: string[] = [];
  const say = (times: number, what: "rule" | "test", state: "new" | "changed" | "deleted") => {
    if (times === 0) return;
    const isSaid = parts.some((part) => part.includes(what));
    const nouns = isSaid ? [] : [times === 1 ? what : `${what}s`];
    parts.push([times, ...(state === "new" ? [state, ...nouns] : [...nouns, state])].join(" "));
  };
  for (const state of ["new", "changed", "deleted"] as const) say(count(state), "rule", state);
  say(tests.fresh, "test", "new");
  say(tests.gone, "test", "deleted");
  return parts.join(", ");
}

/** An id for a rule that is not saved yet: below zero, because the control plane gives those above. */
export const newId = (rules: readonly Rule[]): number =>
  rules.reduce((least, { id }) => Math.min(least, id), 0) - 1;

export const areEqual = (one: readonly Rule[], other: readonly Rule[]): boolean => {
  const { added, removed } = editsOf(one, other);
  return added.length + removed.length === 0;
};

/**
 * The rules after saving: without those about something revoked or gone, which a policy file cannot name. If nothing is edited,
 * no rules are sent, and all stay.
 */
export const rulesLeft = (saved: readonly Rule[], rules: readonly Rule[]): readonly Rule[] =>
  areEqual(saved, rules) ? rules : rules.filter((rule) => !isAboutGone(rule));

/**
 * A policy file. The rules are one a line, from the second on, so that the line of a fault is that of its rule. `tests`: as
 * text. What is undefined stays as it is.
 */
export function policyText(rules: readonly Rule[] | undefined, tests?: string): string {
  const lines = (rules ?? []).map(({ direction, protocol, ports, peer, target, description }) =>
    JSON.stringify({ direction, protocol, ports, peer, target, description }),
  );
  const parts = [
    ...(tests === undefined ? [] : [`"tests": ${tests}`]),
    ...(rules === undefined ? [] : [`"rules": [\n${lines.join(",\n")}\n]`]),
  ];
  return `{${parts.join(", ")}}`;
}

/** The control plane's sentences about each rule of `policyText(rules)`; those about no rule are under `undefined`. */
export function faultsByRule(
  rules: readonly Rule[],
  sentences: readonly string[],
): ReadonlyMap<Rule | undefined, readonly string[]> {
  const found = new Map<Rule | undefined, string[]>();
  for (const sentence of sentences) {
    const [, line, text = sentence] =
      /^Line (\d+), column \d+: (?:rules\.\d+(?:\.\w+)?: )?(.*)$/s.exec(sentence) ?? [];
    // The first rule is on line 2 of the text.
    const rule = rules[Number(line) - 2];
    found.set(rule, [...(found.get(rule) ?? []), text]);
  }
  return found;
}

/** The same as a list. Each sentence begins with its rule or test, by its number on the page. */
export function faultLines(rules: readonly Rule[], sentences: readonly string[]): readonly string[] {
  return [...faultsByRule(rules, sentences)].flatMap(([rule, texts]) => {
    if (rule === undefined)
      return texts.map((text) =>
        text.replace(/^tests\.(\d+)\S*: /, (_, test) => `Test ${Number(test) + 1}: `),
      );
    const name = rule.id > 0 ? `No. ${rule.id}` : "New rule";
    return texts.map((text) => `${name}, ${sentenceOf(rule)}: ${text}`);
  });
}

/** The same edits from the command line, one command each. A rule that was edited keeps its number. */
export function commandsOf(slug: string, { added, removed }: Edits): Words[] {
  const before = new Map(removed.map((rule) => [rule.id, rule]));
  const after = new Set(added.map(({ id }) => id));
  // What `rule create` has without these flags. Peer and target are always written: it refuses a rule without any of them.
  const defaults = {
    direction: "inbound",
    protocol: "any",
    ports: "any",
    peer: "",
    target: "",
    description: "",
  };
  const flags = (rule: Rule, known: Readonly<typeof defaults>) =>
    Object.keys(defaults)
      .map((field) => field as keyof typeof defaults)
      .filter((field) => rule[field] !== known[field])
      .flatMap((field) => [`--${field}`, rule[field]]);
  const createOrUpdate = (rule: Rule) => {
    const savedRule = before.get(rule.id);
    return savedRule === undefined
      ? ["rule", "create", slug, ...flags(rule, defaults)]
      : ["rule", "update", slug, rule.id, ...flags(rule, savedRule)];
  };
  const deletions = removed.filter(({ id }) => !after.has(id)).map(({ id }) => ["rule", "delete", slug, id]);
  return [...added.map(createOrUpdate), ...deletions];
}
