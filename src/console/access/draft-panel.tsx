// The bar of the draft: the nodes that gain and lose access, and the tests, before it is saved. Then what was saved.

import type { Plan } from "../../api/policy.ts";
import { useState } from "preact/hooks";
import type { ApiError } from "../contact/api.ts";
import { Button } from "../ui/button.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { DraftBar, SavedBar } from "../ui/draft-bar.tsx";
import { TerminalButton } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";
import { pairsWords, shortPairs, spaced } from "./class-words.ts";
import { ChangeDetails, EffectColumns, nothingWords, type Change } from "./draft-effects.tsx";
import { discard, isRefused, testsLeft, type Done, type Draft } from "./draft-state.ts";
import { planEdits, undo } from "./draft.ts";
import { save } from "./saving.ts";
import { shownRules } from "./rule-list.tsx";
import { listOf, type Saved } from "./saved.ts";
import { notIn } from "./test-text.ts";
import { changeWords, editsOf, faultLines, rowsOf } from "./rule-edits.ts";
import type { Rule } from "./rules.ts";

type Props = { draft: Draft; saved: Saved };

/** The bar under the rules: the edits and their effect; after saving, what the save did. */
export function DraftPanel({ draft, saved }: Props) {
  const done = draft.done.value;
  const isEdited = draft.rules.value !== undefined;
  return (
    <>
      <p class="unseen" role="status">
        {done === undefined ? "" : "Saved."}
      </p>
      {isEdited ? <Unsaved draft={draft} saved={saved} /> : done && <JustSaved draft={draft} done={done} />}
    </>
  );
}

/** The effect of a plan, as a sentence that begins with a number or with `nothingWords`. */
const effectOf = ({ access }: Plan) => (access.pairs_changed === 0 ? nothingWords : `${pairsWords(access)}.`);

const shortEffect = ({ access }: Plan) =>
  (["gain", "lose"] as const).flatMap((kind) => shortPairs(access, kind) ?? []).join(", ");

type JustSavedProps = { draft: Draft; done: Done };

function JustSaved({ draft, done: { terminal, plan, edits, tests } }: JustSavedProps) {
  const [isShown, setShown] = useState(false);
  const change = {
    ...edits,
    addedTests: notIn(tests.before, tests.after),
    removedTests: notIn(tests.after, tests.before),
  };
  return (
    <>
      <SavedBar
        words={effectOf(plan)}
        actions={
          <>
            {plan.access.pairs_changed === 0 ? null : (
              <Button onClick={() => setShown(true)}>Who gained and lost access</Button>
            )}
            <TerminalButton {...terminal} />
            <Button onClick={() => undo(draft, { edits, tests })}>Undo</Button>
          </>
        }
      />
      {isShown ? (
        <Dialog title="Who gained and lost access" close={() => setShown(false)}>
          <ChangeDetails plan={plan} change={change} close={() => setShown(false)} />
        </Dialog>
      ) : null}
    </>
  );
}

function changeOf(draft: Draft, saved: Saved, rules: readonly Rule[]): Change {
  const tests = testsLeft(draft);
  return {
    ...editsOf(saved.rules, rules),
    addedTests: notIn(listOf(saved), tests),
    removedTests: notIn(tests, listOf(saved)),
  };
}

function Unsaved({ draft, saved }: Props) {
  const [open, setOpen] = useState<"discard" | "details">();
  const { theirs, error, isSaving, tests } = draft;
  const rules = shownRules(draft, saved);
  const change = changeOf(draft, saved, rules);
  // After another user saved, the plan of these edits no longer says what saving would do.
  const plan = theirs.value === undefined ? draft.plan.value : undefined;
  const isPlanning = plan === undefined && error.value === undefined && theirs.value === undefined;
  const close = () => setOpen(undefined);
  return (
    <>
      <DraftBar
        changes={changeWords(rowsOf(saved.rules, rules), {
          fresh: change.addedTests.length,
          gone: change.removedTests.length,
        })}
        effect={
          plan && { sentence: `Not saved: ${effectOf(plan).replace(/^N/, "n")}`, short: shortEffect(plan) }
        }
        refusal={refusalOf(draft)}
        isReady={plan !== undefined && plan.version === saved.policy.version}
        isRunning={isSaving.value}
        saved={tests.value === undefined ? "the rules" : "the rules and tests"}
        save={() => void save(draft)}
        discard={() => setOpen("discard")}
        actions={
          plan === undefined ? null : (
            <Button kind="ghost" onClick={() => setOpen("details")}>
              What changes
            </Button>
          )
        }
        failure={
          error.value === undefined ? undefined : <Refusal draft={draft} rules={rules} error={error.value} />
        }
      >
        {plan === undefined ? null : <EffectColumns plan={plan} added={change.added} />}
        {isPlanning ? <p class="quiet">Working out what changes.</p> : null}
      </DraftBar>
      {open === "discard" ? (
        <Confirm
          title="Discard the changes?"
          action="Discard them"
          effect="The rules stay as they are saved. What you edited since cannot be brought back."
          run={async () => discard(draft)}
          close={close}
        />
      ) : null}
      {open === "details" && plan !== undefined ? (
        <Dialog title="Before you save" close={close}>
          <ChangeDetails plan={plan} change={change} close={close} />
        </Dialog>
      ) : null}
    </>
  );
}

/** Why the draft cannot be saved; undefined if it can be, or if that is not known yet. */
function refusalOf(draft: Draft): string | undefined {
  const { plan, theirs } = draft;
  if (theirs.value !== undefined) return "Save is off: rules were saved since these edits began";
  if (isRefused(draft)) return "Save is off: there is a fault";
  const { failing = [], after = 0 } = plan.value?.tests ?? {};
  if (failing.length === 0) return undefined;
  return `Save is off while ${after === 1 ? "the" : "a"} test fails`;
}

type RefusalProps = { draft: Draft; rules: readonly Rule[]; error: ApiError };

/** The control plane names lines of the file that the page sent. The user has not seen that file: the page names rules. */
function Refusal({ draft, rules, error }: RefusalProps) {
  const sentences = error.fields["policy"] ?? [];
  const retry = draft.plan.value === undefined ? () => planEdits(draft) : undefined;
  if (sentences.length === 0) return <Failure error={error} retry={retry} />;
  return (
    <div class="failure" role="alert">
      <p>The rules cannot be saved:</p>
      <ul>
        {faultLines(rules, sentences).map((line) => (
          <li key={line}>
            <bdi>{spaced(line)}</bdi>
          </li>
        ))}
      </ul>
    </div>
  );
}
