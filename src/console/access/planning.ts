// Asks the control plane what the edits of the draft would do.

import { policyApi } from "../../api/policy.ts";
import { ApiError, call } from "../contact/api.ts";
import { keepingError, type Draft } from "./draft-state.ts";
import { areEqual, policyText, rulesLeft } from "./rule-edits.ts";
import type { Rule } from "./rules.ts";
import type { Saved } from "./saved.ts";
import { testsText, type Tests } from "./test-text.ts";

/** The plan is requested when nothing was edited for so long. */
const settleMs = 250;

/** Requests a plan of the edits, once the user pauses. `readAgain`: called if what is saved has changed meanwhile. */
export function requestPlan(draft: Draft, readAgain: () => Promise<void>): void {
  draft.plan.value = undefined;
  draft.error.value = undefined;
  clearTimeout(draft.timer);
  const timer = setTimeout(() => {
    const edited = draft.rules.value;
    const saved = draft.saved.value;
    if (edited === undefined || saved === undefined) return;
    // Drops answers, and errors, about edits that have changed since: answers may come in another order.
    const isCurrent = () => draft.timer === timer && draft.rules.value === edited;
    void keepingError(draft, async () => {
      const body = planBody(saved, rulesLeft(saved.rules, edited), draft.tests.value);
      const answer = await call(policyApi.plan, { slug: draft.slug }, body).catch((error: unknown) => {
        if (!isCurrent() && error instanceof ApiError) return undefined;
        throw error;
      });
      if (answer === undefined || !isCurrent()) return;
      draft.plan.value = answer;
      if (answer.version !== draft.saved.value?.policy.version) await readAgain();
    });
  }, settleMs);
  draft.timer = timer;
}

/**
 * The body of a plan: only edited parts. With `prune`, rules that are not in the text are deleted; a part that is absent stays as it is.
 * An edited rule keeps its id; a new one has an id below 1 in the draft, and null here. `rules`: those after saving.
 */
export function planBody(saved: Saved, rules: readonly Rule[], tests: Tests | undefined) {
  const isEdited = !areEqual(saved.rules, rules);
  const ids = rules.map(({ id }) => (id > 0 ? id : null));
  return {
    policy: policyText(isEdited ? rules : undefined, tests && testsText(tests)),
    prune: true,
    ...(isEdited ? { rule_ids: ids } : {}),
  };
}
