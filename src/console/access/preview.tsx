// Before saving: the machines that gain and lose access, the tests, and what another user saved meanwhile.

import type { Plan } from "../../api/policy.ts";
import { useState } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { useNodes } from "../node-list.ts";
import { Confirm } from "../ui/dialog.tsx";
import { Failure, FromTerminal } from "../ui/parts.tsx";
import { accessWords, classWords, failText, gainersFirst, numberText, pairsWords } from "./class-words.ts";
import { Conflict, News } from "./conflict.tsx";
import { Faults } from "./faults.tsx";
import { discard, isRefused, maySave, planEdits, save, testsLeft, undo, type Draft } from "./draft.ts";
import { listOf, type Saved } from "./saved.ts";
import { Sentence, TestSentence } from "./sentence.tsx";
import { beyond } from "./test-text.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { editsOf, endsOf, faultLines, isAboutGone, rulesLeft, type Named, type Rule } from "./rules.ts";

type PreviewProps = { draft: Draft; saved: Saved };

export function Preview({ draft, saved }: PreviewProps) {
  const { rules, error, done } = draft;
  // A save that failed has kept its edits; without edits, only reading can have failed.
  const failure = rules.value === undefined ? error.value : undefined;
  return (
    <>
      <div role="status" class={done.value === undefined ? "" : "saved"}>
        {done.value === undefined ? "" : <JustSaved draft={draft} done={done.value} />}
      </div>
      <News slug={draft.slug} changes={draft.news.value} />
      {failure === undefined ? null : <Failure error={failure} />}
      {rules.value === undefined ? null : <Unsaved draft={draft} saved={saved} />}
    </>
  );
}

type JustSavedProps = { draft: Draft; done: NonNullable<Draft["done"]["value"]> };

function JustSaved({ draft, done: { terminal, plan, edits, tests } }: JustSavedProps) {
  const { data, isWhole } = useNodes();
  const effects = <Effects plan={plan} nodes={isWhole ? data : undefined} />;
  return (
    <>
      Saved.{" "}
      <button type="button" class="small" onClick={() => undo(draft, edits, [], tests)}>
        Undo
      </button>
      {plan.access.pairs_changed === 0 ? (
        effects
      ) : (
        <details>
          <summary>Who gained and lost access</summary>
          {effects}
        </details>
      )}
      <FromTerminal {...terminal} />
    </>
  );
}

function Unsaved({ draft, saved }: PreviewProps) {
  const { plan, theirs, error } = draft;
  const { data, isWhole } = useNodes();
  const rules = rulesLeft(saved.rules, draft.rules.value ?? []);
  const { added, removed } = editsOf(saved.rules, rules);
  const behind = networksBehind(
    added.map((rule) => endsOf(rule).to),
    data ?? [],
  );
  const tests = testsLeft(draft);
  return (
    <section class="preview" aria-labelledby="preview">
      <h2 id="preview">Before you save</h2>
      <div aria-live="polite">
        {theirs.value === undefined ? null : <Conflict draft={draft} saved={saved} theirs={theirs.value} />}
        {error.value === undefined ? null : <Refusal draft={draft} rules={rules} error={error.value} />}
        {behind.length === 0 ? null : (
          <p>
            The new rules also open the networks behind <bdi>{behind.join("; ")}</bdi>.
          </p>
        )}
        {plan.value === undefined || theirs.value !== undefined ? (
          (error.value ?? theirs.value) === undefined ? (
            <p class="quiet">Working out what changes.</p>
          ) : null
        ) : (
          <>
            <TestOutcome plan={plan.value} />
            <ul class="plain-list effects">
              {removed.filter(isAboutGone).map((rule) => (
                <li>
                  <del>
                    − Rule {rule.id}: <Sentence rule={rule} />
                  </del>
                </li>
              ))}
              {beyond(tests, listOf(saved)).map((test) => (
                <li>
                  <del>
                    − Test: <TestSentence test={test} />
                  </del>
                </li>
              ))}
              {beyond(listOf(saved), tests).map((test) => (
                <li>
                  <ins>
                    + Test: <TestSentence test={test} />
                  </ins>
                </li>
              ))}
            </ul>
            <Effects plan={plan.value} nodes={isWhole ? data : undefined} />
          </>
        )}
      </div>
    </section>
  );
}

/** Always in sight, and as low as possible: the preview has the details. */
export function SaveBar({ draft }: { draft: Draft }) {
  const [isDiscarding, askToDiscard] = useState(false);
  const { isSaving, tests } = draft;
  if (draft.rules.value === undefined) return null;
  return (
    <div class="save-bar">
      <p>
        {summaryOf(draft)}{" "}
        <button
          type="button"
          class="small"
          onClick={() => document.getElementById("preview")?.scrollIntoView()}
        >
          Show
        </button>
      </p>
      <div class="actions">
        <button type="button" class="primary" disabled={!maySave(draft)} onClick={() => void save(draft)}>
          {isSaving.value
            ? "Saving…"
            : tests.value === undefined
              ? "Save the rules"
              : "Save the rules and tests"}
        </button>
        <button type="button" disabled={isSaving.value} onClick={() => askToDiscard(true)}>
          Discard the changes
        </button>
      </div>
      {isDiscarding ? (
        <Confirm
          title="Discard the changes?"
          action="Discard them"
          effect={<p>The rules stay as they are saved. What you edited since cannot be brought back.</p>}
          run={async () => discard(draft)}
          close={() => askToDiscard(false)}
        />
      ) : null}
    </div>
  );
}

function summaryOf(draft: Draft): string {
  const { plan, theirs } = draft;
  if (theirs.value !== undefined) return "Not saved: rules were saved since these edits began.";
  if (isRefused(draft)) return "Not saved: there is a fault.";
  if (plan.value === undefined) return "Not saved.";
  const { access, tests } = plan.value;
  const { after, failing } = tests;
  if (failing.length > 0) return `Cannot be saved: ${failText(failing.length, after).toLowerCase()}.`;
  return `Not saved: ${pairsWords(access)}.`;
}

/** The control plane names lines of the file that the page sent. The user has not seen that file: the page names rules. */
type RefusalProps = { draft: Draft; rules: readonly Rule[]; error: ApiError };

function Refusal({ draft, rules, error }: RefusalProps) {
  const sentences = error.fields["policy"] ?? [];
  const retry = draft.plan.value === undefined ? () => planEdits(draft) : undefined;
  if (sentences.length === 0) return <Failure error={error} retry={retry} />;
  return <Faults title="The rules cannot be saved" lines={faultLines(rules, sentences)} />;
}

type GainsProps = { count: number; gains: readonly string[]; loses: readonly string[] };

function Gains({ count, gains, loses }: GainsProps) {
  return (
    <>
      {gains.length === 0 ? null : (
        <>
          <ins>{accessWords(count, "gain", gains)}</ins>{" "}
        </>
      )}
      {loses.length === 0 ? null : <del>{accessWords(count, "lose", loses)}</del>}
    </>
  );
}

/** `nodes`: all machines, once they were read. */
type EffectsProps = { plan: Plan; nodes: readonly Named[] | undefined };

function Effects({ plan: { access }, nodes = [] }: EffectsProps) {
  if (access.pairs_changed === 0) return <p>No machine, and no network behind one, gains or loses access.</p>;
  return (
    <>
      <p>{pairsWords(access)}:</p>
      <ul class="plain-list effects">
        {gainersFirst(access.classes).map(({ from, to, owners = "any", gains, loses }, at) => (
          <li key={at}>
            <bdi>{classWords(from, nodes)}</bdi> → <bdi>{classWords(to, nodes)}</bdi>{" "}
            {owners === "any"
              ? null
              : `(${owners === "same" ? "with the same owner" : "with different owners"}) `}
            <Gains count={from.count} gains={gains} loses={loses} />
          </li>
        ))}
      </ul>
      {access.classes_left_out === 0 ? null : (
        <p>And {numberText(access.classes_left_out)} more kinds of machines.</p>
      )}
      {access.classes.length === access.pairs_changed ? null : (
        <details>
          <summary>
            Each pair
            {access.pairs.length < access.pairs_changed
              ? `, the first ${numberText(access.pairs.length)}`
              : ""}
          </summary>
          <ul class="plain-list effects">
            {gainersFirst(access.pairs).map(({ from, to, gains, loses }) => (
              <li key={`${from.name} ${to.name}`}>
                <bdi>{from.name}</bdi> → <bdi>{to.name}</bdi> <Gains count={1} gains={gains} loses={loses} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function TestOutcome({ plan: { tests } }: { plan: Plan }) {
  const { after, failing } = tests;
  if (after === 0) return <p class="quiet">There are no tests to check.</p>;
  if (failing.length === 0)
    return <p class="good">{after === 1 ? "The test passes." : `All ${after} tests pass.`}</p>;
  return (
    <Faults
      title={`${failText(failing.length, after)}. Nothing is saved while a test fails`}
      lines={failing}
    />
  );
}
