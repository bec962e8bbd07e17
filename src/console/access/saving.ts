// Saves the edits of the draft in one step, on the version they began with.

import { apiPath } from "../../api/endpoint.ts";
import { policyApi } from "../../api/policy.ts";
import { ApiError, call } from "../contact/api.ts";
import type { Terminal } from "../words/terminal.ts";
import { discard, isRefused, keepingError, testsOf, type Draft } from "./draft-state.ts";
import { edit, load } from "./draft.ts";
import { mergeRules } from "./merge.ts";
import { planBody } from "./planning.ts";
import { commandsOf, editsOf, rulesLeft } from "./rule-edits.ts";
import type { Rule } from "./rules.ts";
import { listOf, read, type Saved } from "./saved.ts";
import { areSameTests, mergeTests, type Tests } from "./test-text.ts";

/** Rules and tests become those of the text that planBody makes; a stored policy file stays as it is (`keep_file`). Refused unless `version` is the present one. */
const bodyOf = (saved: Saved, rules: readonly Rule[], tests: Tests | undefined) => ({
  ...planBody(saved, rules, tests),
  keep_file: true,
  version: saved.policy.version,
});

/** The edits as commands, and as the one request that this page sends. `tests`: undefined if they are not edited. */
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

/** Saves. The draft stays on the page until the new list is there, so that no rule vanishes in between. */
export async function save(draft: Draft): Promise<void> {
  const { saved, rules, tests, isSaving } = draft;
  const before = saved.value;
  const edited = rules.value;
  const editedTests = tests.value;
  const plan = draft.plan.value;
  if (edited === undefined || before === undefined || plan === undefined || !maySave(draft)) return;
  const sentRules = rulesLeft(before.rules, edited);
  const sentTests = editedTests ?? listOf(before);
  const body = bodyOf(before, sentRules, editedTests);
  const terminal = terminalOf(draft.slug, before, sentRules, editedTests);
  isSaving.value = true;
  draft.error.value = undefined;
  await keepingError(draft, async () => {
    await call(policyApi.apply, { slug: draft.slug }, body);
    // The rules are in force, even if the new list cannot be read now.
    const newest = await read(draft.slug).catch((error: unknown) => {
      if (error instanceof ApiError) return { ...before, rules: sentRules };
      throw error;
    });
    // The user may have edited on while the request was under way.
    const later = rules.value ?? edited;
    const laterTests = mergeTests(sentTests, testsOf(draft), listOf(newest));
    saved.value = newest;
    discard(draft);
    draft.done.value = {
      terminal,
      plan,
      edits: editsOf(before.rules, sentRules),
      tests: { before: listOf(before), after: sentTests },
    };
    // An edit of tests, too, makes another array of rules (draft-state.ts).
    if (later !== edited) editLater(draft, edited, later, laterTests);
  }).finally(() => (isSaving.value = false));
  // It failed, or others saved meanwhile: what is saved now is not known.
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
