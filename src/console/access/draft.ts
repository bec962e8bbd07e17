// The rules of an organization as they are saved, and the edits of this tab that are not. Edits stay while other pages are
// shown. A plan of the control plane says what they would do; they are saved in one step, on the version they began with.

import { apiPath } from "../../api/endpoint.ts";
import { type Plan, policyApi } from "../../api/policy.ts";
import { rulesApi } from "../../api/rules.ts";
import { eventsApi } from "../../api/events.ts";
import { effect, signal, type Signal } from "@preact/signals";
import { call, ApiError } from "../api.ts";
import { ruleChangeOf } from "../rule-change.ts";
import type { Terminal } from "../terminal.ts";
import { setUnsaved } from "../unsaved.ts";
import { inNewWords, ruleChanges, mergeRules, undoing, type Change, type Choice } from "./merge.ts";
import { areEqual, commandsOf, editsOf, policyText, rulesLeft, type Edits, type Rule } from "./rules.ts";
import { inWords, listOf, read, type Saved } from "./saved.ts";
import { areSameTests, isTestAboutGone, mergeTests, testsText, type Tests } from "./test-text.ts";

export type Draft = {
  slug: string;
  /** The rule whose dialog is open. */
  edited: Signal<Rule | "new" | undefined>;
  saved: Signal<Saved | undefined>;
  /** Undefined: nothing is edited, also no test. Each edit makes another array. */
  rules: Signal<readonly Rule[] | undefined>;
  /** Undefined: no test is edited. */
  tests: Signal<Tests | undefined>;
  /** The plan of the present edits; undefined while it is requested. */
  plan: Signal<Plan | undefined>;
  /** Number of the latest request for a plan. */
  timer: ReturnType<typeof setTimeout> | undefined;
  /** Changes that another user saved since the edits began. */
  theirs: Signal<Saved | undefined>;
  error: Signal<ApiError | undefined>;
  isSaving: Signal<boolean>;
  /** The edits of the last save, shown for a moment. */
  done: Signal<Done | undefined>;
  /** Changes that others saved while this page was open without edits. */
  news: Signal<readonly Change[]>;
  /** Sentences about a change that is being undone. */
  undo: Signal<readonly string[]>;
};

const drafts = new Map<string, Draft>();

export function draftOf(slug: string): Draft {
  const known = drafts.get(slug);
  if (known !== undefined) return known;
  const draft: Draft = {
    slug,
    edited: signal<Rule | "new" | undefined>(undefined),
    saved: signal<Saved | undefined>(undefined),
    rules: signal<readonly Rule[] | undefined>(undefined),
    tests: signal<Tests | undefined>(undefined),
    plan: signal<Plan | undefined>(undefined),
    timer: undefined,
    theirs: signal<Saved | undefined>(undefined),
    error: signal<ApiError | undefined>(undefined),
    isSaving: signal(false),
    done: signal<Done | undefined>(undefined),
    news: signal<readonly Change[]>([]),
    undo: signal<readonly string[]>([]),
  };
  drafts.set(slug, draft);
  effect(() => setUnsaved(`${slug}/access`, draft.rules.value !== undefined));
  return draft;
}

/** Keeps the error of the work for the page. */
async function trying(draft: Draft, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    draft.error.value = error;
  }
}

/** The edits themselves were refused. Other failures pass: no answer, a session that ended, a second factor that was not given. */
export const isRefused = ({ error }: Draft): boolean => /^4(?!01|03|29)/.test(`${error.value?.status}`);

export function load(draft: Draft): Promise<void> {
  return trying(draft, async () => {
    const newest = await read(draft.slug);
    // Ignores answers to requests from before the last save: they may be outdated.
    const isOld = newest.policy.version < (draft.saved.value?.policy.version ?? 0);
    if (!draft.isSaving.value && !isOld) receive(draft, newest);
  });
}

/** The tests of the draft, as saved unless they are edited. */
export const testsOf = ({ tests, saved }: Draft): Tests =>
  tests.value ?? (saved.value === undefined ? [] : listOf(saved.value));

/** The tests after saving. Those that are not edited stay. */
export const testsLeft = (draft: Draft): Tests =>
  draft.tests.value?.filter((test) => !isTestAboutGone(test)) ?? testsOf(draft);

/** Applies the edits of tests to those that were saved since. Undefined: none is left. */
function testsOn(draft: Draft, newest: Saved): Tests | undefined {
  const { tests, saved } = draft;
  if (tests.value === undefined || saved.value === undefined) return undefined;
  const merged = mergeTests(listOf(saved.value), tests.value, listOf(newest));
  return areSameTests(merged, listOf(newest)) ? undefined : merged;
}

/** Takes what is saved now. The edits of this tab stay on it, unless another user changed rules since they began. */
function receive(draft: Draft, newest: Saved): void {
  const { saved, rules, theirs, error } = draft;
  const hasFailed = error.value !== undefined && !isRefused(draft);
  // An answer came: the connection works, and the session is valid again.
  if (error.value?.status === 0 || error.value?.status === 401) error.value = undefined;
  const { before, isRenamed } = inPresentWords(draft, newest);
  const edits = before && rules.value && !areEqual(before.rules, rules.value) ? rules.value : undefined;
  const tests = testsOn(draft, newest);
  if (before !== undefined && edits === undefined)
    draft.news.value = [...draft.news.value, ...ruleChanges(before.rules, newest.rules)];
  if (before === undefined || (areEqual(newest.rules, edits ?? newest.rules) && tests === undefined)) {
    // Nothing is left to save.
    saved.value = newest;
    // Without edits, the sentences about a change that could not be taken back stay.
    if (rules.value === undefined) error.value = undefined;
    else discard(draft);
  } else if (edits === undefined || areEqual(newest.rules, before.rules)) {
    const isNew = newest.policy.version !== before.policy.version;
    saved.value = newest;
    if (isNew && edits === undefined) rules.value = newest.rules;
    draft.tests.value = tests;
    theirs.value = undefined;
    // Groups or nodes changed, so the same edits may do something else; or the plan had no answer.
    if (isNew || isRenamed || (hasFailed && draft.plan.value === undefined)) planEdits(draft);
  } else theirs.value = newest;
}

/** Groups and nodes may have new names: renames them in the edits. `before`: what was saved, with these names. */
function inPresentWords({ saved, rules }: Draft, { words }: Saved) {
  const known = saved.value;
  if (known === undefined) return { before: undefined, isRenamed: false };
  const before = { ...known, rules: inNewWords(known.rules, known.words, words), words };
  const renamed = rules.value && inNewWords(rules.value, known.words, words);
  const isRenamed = renamed !== rules.value;
  if (isRenamed) [saved.value, rules.value] = [before, renamed];
  return { before, isRenamed };
}

export function discard(draft: Draft): void {
  draft.rules.value = undefined;
  draft.tests.value = undefined;
  draft.plan.value = undefined;
  draft.theirs.value = undefined;
  draft.error.value = undefined;
  draft.undo.value = [];
}

/** The sentences about what was saved a moment ago, by this page or by others. */
export function forget(draft: Draft): void {
  draft.done.value = undefined;
  draft.news.value = [];
}

export function edit(
  draft: Draft,
  change: (rules: readonly Rule[]) => readonly Rule[],
  tests: Tests = testsOf(draft),
): void {
  forget(draft);
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

/** Edits that undo a saved change. `others`: other parts of it. `tests`: those before and after it. */
export function undo(
  draft: Draft,
  change: Edits,
  others: readonly string[] = [],
  tests?: readonly [Tests, Tests],
): void {
  const present = draft.rules.value ?? draft.saved.value?.rules ?? [];
  const { rules, left } = undoing(present, change);
  const asSaved = testsOf(draft);
  const back = tests === undefined ? asSaved : mergeTests(tests[1], tests[0], asSaved);
  edit(draft, () => rules, back);
  draft.undo.value = [
    areEqual(present, rules) && areSameTests(back, asSaved)
      ? "Nothing can be taken back: the rules of this change are as they were before it, or were changed since."
      : "These edits take the change back. Look at them, then save them.",
    ...left,
    ...(others.length === 0 ? [] : [`The change was also about ${others.join(", ")}: that stays.`]),
  ];
}

/** The same for the change of an audit event. */
export function undoEvent(draft: Draft, id: number): Promise<void> {
  return trying(draft, async () => {
    const [event] = await call(eventsApi.list, draft, { before: `${id + 1}`, limit: "1" });
    const now =
      event?.type === "rule.updated"
        ? await call(rulesApi.retrieve, { slug: draft.slug, id: Number(event.subject.slice(5)) })
        : undefined;
    const change = event?.id === id ? ruleChangeOf(event, now) : undefined;
    if (change === undefined) {
      draft.undo.value = [`Event ${id} is not there any more, or is not about rules.`];
      return;
    }
    const words = await inWords(draft.slug, [...change.added, ...change.removed]);
    const count = change.added.length;
    undo(draft, { added: words.slice(0, count), removed: words.slice(count) }, change.others);
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

const settleMs = 250;

/** Requests a plan of the edits, once the user pauses. */
export function planEdits(draft: Draft): void {
  draft.plan.value = undefined;
  draft.error.value = undefined;
  clearTimeout(draft.timer);
  const own = setTimeout(() => {
    const asked = draft.rules.value;
    const saved = draft.saved.value;
    if (asked === undefined || saved === undefined) return;
    // Answers may come in another order. One about edits, or saved rules, that have changed since is of no use.
    const isLast = () => draft.timer === own && draft.rules.value === asked;
    void trying(draft, async () => {
      const body = planned(saved, rulesLeft(saved.rules, asked), draft.tests.value);
      const answer = await call(policyApi.plan, { slug: draft.slug }, body).catch((error: unknown) => {
        if (!isLast() && error instanceof ApiError) return undefined;
        throw error;
      });
      if (answer === undefined || !isLast()) return;
      draft.plan.value = answer;
      if (answer.version !== draft.saved.value?.policy.version) await load(draft);
    });
  }, settleMs);
  draft.timer = own;
}

/** Sends only edited parts. An edited rule keeps its number. `rules`: those after saving. */
function planned(saved: Saved, rules: readonly Rule[], tests: Tests | undefined) {
  const isEdited = !areEqual(saved.rules, rules);
  const ids = rules.map(({ id }) => (id > 0 ? id : null));
  return {
    policy: policyText(isEdited ? rules : undefined, tests && testsText(tests)),
    prune: true,
    ...(isEdited ? { rule_ids: ids } : {}),
  };
}

const bodyOf = (saved: Saved, rules: readonly Rule[], tests: Tests | undefined) => ({
  ...planned(saved, rules, tests),
  keep_file: true,
  version: saved.policy.version,
});

/** The saved change: the same from the terminal, its effect, and the edits, which can be undone. */
type Done = { terminal: Terminal; plan: Plan; edits: Edits; tests: readonly [Tests, Tests] };

/** The edits as commands, and as the one request that this page sends. */
export const terminalOf = (
  slug: string,
  saved: Saved,
  rules: readonly Rule[],
  tests: Tests | undefined,
): Terminal => ({
  // No command edits tests one by one.
  command:
    tests === undefined ? commandsOf(slug, editsOf(saved.rules, rules)) : ["policy", "apply", slug, "FILE"],
  call: ["POST", apiPath(policyApi.apply, { slug }), bodyOf(saved, rules, tests)],
});

/** Whether saving is offered: the plan is known, no test fails, and no other user has saved. */
export function maySave(draft: Draft): boolean {
  const { saved, plan, theirs, isSaving } = draft;
  if (plan.value === undefined || theirs.value !== undefined || isSaving.value) return false;
  return (
    !isRefused(draft) &&
    plan.value.tests.failing.length === 0 &&
    plan.value.version === saved.value?.policy.version
  );
}

/** The draft stays on the page until the new list is there, so that no rule vanishes in between. */
export async function save(draft: Draft): Promise<void> {
  const { saved, rules, tests, isSaving } = draft;
  const [sent, before, plan, sentTests] = [rules.value, saved.value, draft.plan.value, tests.value];
  if (sent === undefined || before === undefined || plan === undefined || !maySave(draft)) return;
  const left = rulesLeft(before.rules, sent);
  const body = bodyOf(before, left, sentTests);
  const terminal = terminalOf(draft.slug, before, left, sentTests);
  isSaving.value = true;
  draft.error.value = undefined;
  await trying(draft, async () => {
    await call(policyApi.apply, { slug: draft.slug }, body);
    // The rules are in force, even if the new list cannot be read now.
    const newest = await read(draft.slug).catch((error: unknown) => {
      if (error instanceof ApiError) return { ...before, rules: left };
      throw error;
    });
    const later = rules.value ?? sent;
    const wanted = sentTests ?? listOf(before);
    const laterTests = mergeTests(wanted, testsOf(draft), listOf(newest));
    saved.value = newest;
    discard(draft);
    draft.done.value = {
      terminal,
      plan,
      edits: editsOf(before.rules, left),
      tests: [listOf(before), wanted],
    };
    if (later !== sent) editLater(draft, sent, later, laterTests);
  });
  isSaving.value = false;
  if (draft.done.value === undefined) await load(draft);
}

/** Puts edits that were made while `sent` was saved on the rules as they are now. */
function editLater(draft: Draft, sent: readonly Rule[], later: readonly Rule[], tests: Tests): void {
  const newest = draft.saved.value;
  if (newest === undefined) return;
  const { rules, clashes } = mergeRules(sent, later, newest.rules);
  if (clashes.length === 0) return edit(draft, () => rules, tests);
  // Another user saved meanwhile.
  draft.done.value = undefined;
  draft.saved.value = { ...newest, rules: sent };
  draft.rules.value = later;
  draft.tests.value = areSameTests(tests, listOf(newest)) ? undefined : tests;
  draft.theirs.value = newest;
}
