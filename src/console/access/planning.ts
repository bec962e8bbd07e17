// Asks the control plane what the edits of the draft would do.

import { policyApi } from "../../api/policy.ts";
import { ApiError, call } from "../contact/api.ts";
import { keepingError, type Draft } from "./draft-state.ts";
import { areEqual, policyText, rulesLeft, type Rule } from "./rules.ts";
import type { Saved } from "./saved.ts";
import { testsText, type Tests } from "./test-text.ts";

const settleMs = 250;

/** Requests a plan of the edits, once the user pauses. `readAgain`: what is saved changed meanwhile. */
export function requestPlan(draft: Draft, readAgain: () => Promise<void>): void {
  draft.plan.value = undefined;
  draft.error.value = undefined;
  clearTimeout(draft.timer);
  const timer = setTimeout(() => {
    const asked = draft.rules.value;
    const saved = draft.saved.value;
    if (asked === undefined || saved === undefined) return;
    // Answers may come in another order. One about edits, or saved rules, that have changed since is of no use.
    const isLast = () => draft.timer === timer && draft.rules.value === asked;
    void keepingError(draft, async () => {
      const body = planned(saved, rulesLeft(saved.rules, asked), draft.tests.value);
      const answer = await call(policyApi.plan, { slug: draft.slug }, body).catch((error: unknown) => {
        if (!isLast() && error instanceof ApiError) return undefined;
        throw error;
      });
      if (answer === undefined || !isLast()) return;
      draft.plan.value = answer;
      if (answer.version !== draft.saved.value?.policy.version) await readAgain();
    });
  }, settleMs);
  draft.timer = timer;
}

/** Sends only edited parts. An edited rule keeps its number. `rules`: those after saving. */
export function planned(saved: Saved, rules: readonly Rule[], tests: Tests | undefined) {
  const isEdited = !areEqual(saved.rules, rules);
  const ids = rules.map(({ id }) => (id > 0 ? id : null));
  return {
    policy: policyText(isEdited ? rules : undefined, tests && testsText(tests)),
    prune: true,
    ...(isEdited ? { rule_ids: ids } : {}),
  };
}
