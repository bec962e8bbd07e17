// The edits of this tab to the rules and tests of an organization. They stay while other pages are shown. What is read
// from the control plane is compared with them (`receive`); planning.ts asks what they would do, and saving.ts saves them.

import { rulesApi } from "../../api/rules.ts";
import { eventsApi } from "../../api/events.ts";
import { call } from "../contact/api.ts";
import { ruleChangeOf } from "../activity/rule-change.ts";
import {
  discard,
  forgetSaved,
  isRefused,
  keepingError,
  testsOf,
  type Draft,
  type TestsChange,
} from "./draft-state.ts";
import { inNewWords, ruleChanges, mergeRules, undoing, type Choice } from "./merge.ts";
import { requestPlan } from "./planning.ts";
import { areEqual, type Edits } from "./rule-edits.ts";
import type { Rule } from "./rules.ts";
import { inWords, listOf, read, type Saved } from "./saved.ts";
import { areSameTests, mergeTests, type Tests } from "./test-text.ts";

/** Reads what is saved, and fits the edits to it. An error is kept in the draft. */
export function load(draft: Draft): Promise<void> {
  return keepingError(draft, async () => {
    const newest = await read(draft.slug);
    // Ignores answers to requests from before the last save: they may be outdated.
    const isOld = newest.policy.version < (draft.saved.value?.policy.version ?? 0);
    if (!draft.isSaving.value && !isOld) receive(draft, newest);
  });
}

/** The edited tests, on those that were saved since. Undefined: no edit is left. */
function testsOn(draft: Draft, newest: Saved): Tests | undefined {
  const { tests, saved } = draft;
  if (tests.value === undefined || saved.value === undefined) return undefined;
  const merged = mergeTests(listOf(saved.value), tests.value, listOf(newest));
  return areSameTests(merged, listOf(newest)) ? undefined : merged;
}

/**
 * What a reading means for the edits of this tab.
 *
 * | rules of this tab                | tests of this tab | rules of others |                      |
 * | -------------------------------- | ----------------- | --------------- | -------------------- |
 * | (first reading)                  |                   |                 | nothing left to save |
 * | not edited, or as they are saved | not edited        |                 | nothing left to save |
 * | not edited                       | edited            |                 | edits still fit      |
 * | edited                           |                   | not changed     | edits still fit      |
 * | edited                           |                   | changed         | both changed         |
 *
 * `before`: what was saved when the edits began. `edits`, `tests`: undefined if none differs from what is saved.
 */
function compare(
  before: Saved | undefined,
  edits: readonly Rule[] | undefined,
  tests: Tests | undefined,
  newest: Saved,
): "nothing left to save" | "edits still fit" | "both changed" {
  if (before === undefined) return "nothing left to save";
  const areSaved = edits === undefined || areEqual(newest.rules, edits);
  if (areSaved && tests === undefined) return "nothing left to save";
  if (edits === undefined || areEqual(newest.rules, before.rules)) return "edits still fit";
  return "both changed";
}

/** Takes what is saved now. The edits of this tab stay on it, unless another user changed rules since they began. */
function receive(draft: Draft, newest: Saved): void {
  const { saved, rules, theirs, error } = draft;
  const lacksPlan = error.value !== undefined && !isRefused(draft) && draft.plan.value === undefined;
  // An answer came: the connection works, and the session is valid again.
  if (error.value?.status === 0 || error.value?.status === 401) error.value = undefined;
  const isRenamed = renameInDraft(draft, newest);
  const before = saved.value;
  const edits = before && rules.value && !areEqual(before.rules, rules.value) ? rules.value : undefined;
  const tests = testsOn(draft, newest);
  // Without edits of rules, what others changed is shown at once. With edits, it is merged or a conflict.
  if (before !== undefined && edits === undefined)
    draft.news.value = [...draft.news.value, ...ruleChanges(before.rules, newest.rules)];
  const outcome = compare(before, edits, tests, newest);
  if (outcome === "both changed") {
    theirs.value = newest;
    return;
  }
  saved.value = newest;
  if (outcome === "nothing left to save") {
    // Without edits there is nothing to discard, and `discard` would also drop `undoNotes`, such as that nothing can be taken back.
    if (rules.value === undefined) error.value = undefined;
    else discard(draft);
    return;
  }
  const isNew = newest.policy.version !== before?.policy.version;
  // Only tests are edited: `rules` is set as well then, and must be what is saved now.
  if (isNew && edits === undefined) rules.value = newest.rules;
  draft.tests.value = tests;
  theirs.value = undefined;
  // Groups or nodes changed, so the same edits may do something else; or the plan had no answer.
  if (isNew || isRenamed || lacksPlan) planEdits(draft);
}

/**
 * Renames groups and nodes in what the edits began with, and in the edits, if they have new names. Returns whether one
 * has.
 */
function renameInDraft({ saved, rules }: Draft, { words }: Saved): boolean {
  const known = saved.value;
  if (known === undefined) return false;
  const renamed = inNewWords(known.rules, known.words, words);
  if (renamed === known.rules) return false;
  saved.value = { ...known, rules: renamed, words };
  rules.value &&= inNewWords(rules.value, known.words, words);
  return true;
}

/** Requests a plan of the edits, once the user pauses. */
export const planEdits = (draft: Draft): void => requestPlan(draft, () => load(draft));

/** Applies a change to the rules, and tests in place of those of the draft. Edits that change nothing are dropped. */
export function edit(
  draft: Draft,
  change: (rules: readonly Rule[]) => readonly Rule[],
  tests: Tests = testsOf(draft),
): void {
  forgetSaved(draft);
  const saved = draft.saved.value;
  if (saved === undefined) return;
  const next = [...change(draft.rules.value ?? saved.rules)];
  const isTested = areSameTests(tests, listOf(saved));
  if (areEqual(saved.rules, next) && isTested) return discard(draft);
  draft.rules.value = next;
  draft.tests.value = isTested ? undefined : tests;
  planEdits(draft);
}

export const editTests = (draft: Draft, tests: Tests): void => edit(draft, (rules) => rules, tests);

/** `others`: names of its parts besides rules and tests. `tests`: undefined if it changed none. */
type SavedChange = { edits: Edits; tests?: TestsChange; others?: readonly string[] };

/** Edits that take a saved change back. What it changed besides rules and tests stays. */
export function undo(draft: Draft, { edits, tests, others = [] }: SavedChange): void {
  const present = draft.rules.value ?? draft.saved.value?.rules ?? [];
  const { rules, left } = undoing(present, edits);
  const testsNow = testsOf(draft);
  const testsBack = tests === undefined ? testsNow : mergeTests(tests.after, tests.before, testsNow);
  edit(draft, () => rules, testsBack);
  draft.undoNotes.value = [
    areEqual(present, rules) && areSameTests(testsBack, testsNow)
      ? "Nothing can be taken back: the rules of this change are as they were before it, or were changed since."
      : "These edits take the change back. Look at them, then save them.",
    ...left,
    ...(others.length === 0 ? [] : [`The change was also about ${others.join(", ")}: that stays.`]),
  ];
}

/** The same for the change of an audit event, by its id. */
export function undoEvent(draft: Draft, id: number): Promise<void> {
  return keepingError(draft, async () => {
    // The event with this id, or the one before it if this one is gone.
    const [event] = await call(eventsApi.list, draft, { before: `${id + 1}`, limit: "1" });
    // The event of an update has only the fields that changed: the rule gives the others.
    const now =
      event?.type === "rule.updated"
        ? await call(rulesApi.retrieve, { slug: draft.slug, id: Number(event.subject.slice("rule/".length)) })
        : undefined;
    const change = event?.id === id ? ruleChangeOf(event, now) : undefined;
    if (change === undefined) {
      draft.undoNotes.value = [`Event ${id} is not there any more, or is not about rules.`];
      return;
    }
    const [added, removed] = await Promise.all([
      inWords(draft.slug, change.added),
      inWords(draft.slug, change.removed),
    ]);
    undo(draft, { edits: { added, removed }, others: change.others });
  });
}

/** Applies the edits of this tab to what another user saved. `choices`: for the rules that both changed. */
export function rebase(draft: Draft, choices: ReadonlyMap<string, Choice>): void {
  const { saved, rules, theirs } = draft;
  if (saved.value === undefined || rules.value === undefined || theirs.value === undefined) return;
  const merged = mergeRules(saved.value.rules, rules.value, theirs.value.rules, choices);
  const tests = testsOn(draft, theirs.value);
  saved.value = theirs.value;
  theirs.value = undefined;
  edit(draft, () => merged.rules, tests ?? listOf(saved.value));
}

/** Accepts what another user saved, and drops the edits of this tab. */
export function takeTheirs(draft: Draft): void {
  draft.saved.value = draft.theirs.value ?? draft.saved.value;
  discard(draft);
}
