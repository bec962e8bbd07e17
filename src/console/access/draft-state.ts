// What this tab knows of the rules and tests of an organization: as they are saved, and its edits that are not. Edits stay
// while other pages are shown.

import { effect, signal, type Signal } from "@preact/signals";
import type { Plan } from "../../api/policy.ts";
import { ApiError } from "../contact/api.ts";
import type { Terminal } from "../words/terminal.ts";
import { setUnsaved } from "../frame/unsaved.ts";
import type { Change } from "./merge.ts";
import type { Edits } from "./rule-edits.ts";
import type { Rule } from "./rules.ts";
import { listOf, type Saved } from "./saved.ts";
import { isTestAboutGone, type Tests } from "./test-text.ts";

export type Draft = {
  slug: string;
  /** The rule whose dialog is open. */
  edited: Signal<Rule | "new" | undefined>;
  saved: Signal<Saved | undefined>;
  /** Undefined: neither a rule nor a test is edited. Each edit makes another array. */
  rules: Signal<readonly Rule[] | undefined>;
  /** Undefined: no test is edited. */
  tests: Signal<Tests | undefined>;
  /** The plan of the present edits; undefined while it is requested. */
  plan: Signal<Plan | undefined>;
  /** Of the latest request for a plan: an answer is dropped if there is another timer by then. */
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
  undoNotes: Signal<readonly string[]>;
};

/** All tests before a change and after it. */
export type TestsChange = Record<"before" | "after", Tests>;

/** A saved change: the commands and the request that make it, its effect, and its edits, so that it can be undone. */
export type Done = { terminal: Terminal; plan: Plan; edits: Edits; tests: TestsChange };

const drafts = new Map<string, Draft>();

/** The draft of an organization. It lives as long as the tab, so that edits survive other pages. */
export function draftOf(slug: string): Draft {
  const known = drafts.get(slug);
  if (known !== undefined) return known;
  const draft: Draft = {
    slug,
    edited: signal<Rule | "new">(),
    saved: signal<Saved>(),
    rules: signal<readonly Rule[]>(),
    tests: signal<Tests>(),
    plan: signal<Plan>(),
    timer: undefined,
    theirs: signal<Saved>(),
    error: signal<ApiError>(),
    isSaving: signal(false),
    done: signal<Done>(),
    news: signal<readonly Change[]>([]),
    undoNotes: signal<readonly string[]>([]),
  };
  drafts.set(slug, draft);
  effect(() => setUnsaved(`${slug}/access`, draft.rules.value !== undefined));
  return draft;
}

/** Does the work. Its ApiError is kept in the draft, for the page; others are thrown. */
export async function keepingError(draft: Draft, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    draft.error.value = error;
  }
}

/**
 * Whether the control plane refused the edits themselves. No answer (status 0), an ended session (401), a refusal of rights or
 * of a second factor (403), and a throttled request (429) do not count.
 */
export const isRefused = ({ error }: Draft): boolean => /^4(?!01|03|29)/.test(`${error.value?.status}`);

/** The tests of the draft, as saved unless they are edited. */
export const testsOf = ({ tests, saved }: Draft): Tests =>
  tests.value ?? (saved.value === undefined ? [] : listOf(saved.value));

/** The tests after saving. Those that are not edited stay. */
export const testsLeft = (draft: Draft): Tests =>
  draft.tests.value?.filter((test) => !isTestAboutGone(test)) ?? testsOf(draft);

/** Drops all edits. What is saved stays. */
export function discard(draft: Draft): void {
  draft.rules.value = undefined;
  draft.tests.value = undefined;
  draft.plan.value = undefined;
  draft.theirs.value = undefined;
  draft.error.value = undefined;
  draft.undoNotes.value = [];
}

/** Drops the sentences about what was saved a moment ago, by this page or by others. */
export function forgetSaved(draft: Draft): void {
  draft.done.value = undefined;
  draft.news.value = [];
}
