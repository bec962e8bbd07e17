// The tests of the policy: what must be reachable and what must not. Edits are part of the draft, beside those of rules.

import { apiPath } from "../../api/endpoint.ts";
import { policyApi } from "../../api/policy.ts";
import { useState } from "preact/hooks";
import { Choice } from "../ui/form.tsx";
import { Button, FormEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { State } from "../ui/parts.tsx";
import { testsLeft, testsOf, type Draft } from "./draft-state.ts";
import { editTests } from "./draft.ts";
import { protocolOf, TrafficFields } from "./rule-form.tsx";
import { SidePicker, useSides } from "./side-picker.tsx";
import { toSide } from "./sides.ts";
import { RowState } from "./rule-list.tsx";
import { TestSentence } from "./sentence.tsx";
import { portsFault } from "./rules.ts";
import { listOf, type Saved } from "./saved.ts";
import { notIn, isTestAboutGone, keyOf, wordsOfTest, type PolicyTest } from "./test-text.ts";

type Props = { draft: Draft; saved: Saved; mayEdit: boolean };

/** The state of a test, by its outcome. */
const states = {
  true: ["online", "passes"],
  false: ["attention", "fails"],
  null: ["away", "not decided"],
} as const;

export function PolicyTests({ draft, saved, mayEdit }: Props) {
  const [open, setOpen] = useState<PolicyTest | "new">();
  const tests = testsOf(draft);
  const added = notIn(listOf(saved), tests);
  const removed = notIn(tests, listOf(saved));
  const row = (test: PolicyTest, state: TestRow["state"]) => (
    <TestLine
      key={state + keyOf(test)}
      row={{ test, state }}
      draft={draft}
      edit={mayEdit ? () => setOpen(test) : undefined}
    />
  );
  return (
    <Panel
      id="tests"
      title="Tests"
      beside={<span class="faint no-phone cut">what must be reachable, or must not be</span>}
      actions={
        <>
          <TerminalButton
            command={["policy", "get", draft.slug]}
            call={["GET", apiPath(policyApi.retrieve, { slug: draft.slug })]}
          />
          {mayEdit ? (
            <Button isSmall onClick={() => setOpen("new")}>
              Add a test
            </Button>
          ) : null}
        </>
      }
    >
      {tests.length + removed.length === 0 ? (
        <p class="in quiet">
          None. A test says what must be reachable, or must not be. Rules that break it cannot be saved.
        </p>
      ) : (
        <ul class="lines rule" aria-label="Tests">
          {tests.map((test) => row(test, added.includes(test) ? "new" : "same"))}
          {removed.map((test) => row(test, "deleted"))}
        </ul>
      )}
      {open === undefined ? null : (
        <TestForm draft={draft} old={open === "new" ? undefined : open} close={() => setOpen(undefined)} />
      )}
    </Panel>
  );
}

type TestRow = { test: PolicyTest; state: "same" | "new" | "deleted" };
const marks = { same: undefined, new: "ins", deleted: "del" } as const;

/** `edit`: opens the dialog; undefined if the user may not edit. */
type LineProps = { row: TestRow; draft: Draft; edit: (() => void) | undefined };

function TestLine({ row: { test, state }, draft, edit }: LineProps) {
  const tests = testsOf(draft);
  const plan = draft.plan.value;
  // Numbered as the control plane does: in the order of the request. 0: it is not sent, being deleted or about what is gone.
  const number = testsLeft(draft).indexOf(test) + 1;
  const passes =
    plan === undefined ? test.passes : !plan.tests.failing.some((each) => each.startsWith(`Test ${number}:`));
  const [name, word] = states[`${passes}`];
  return (
    <li class={state}>
      <span class="no">{number || ""}</span>
      <span class="say" title={wordsOfTest(test)}>
        <TestSentence test={test} mark={marks[state]} />
      </span>
      <span class="group tight">
        {state === "deleted" ? null : <State name={name} word={word} />}
        <RowState state={state} />
        {edit === undefined ? null : (
          <Menu label={`Test: ${wordsOfTest(test)}`} isSmall>
            {state === "deleted" ? (
              <button type="button" onClick={() => editTests(draft, [...tests, test])}>
                Put back
              </button>
            ) : (
              <>
                <button type="button" onClick={edit}>
                  Edit
                </button>
                <button
                  type="button"
                  class="danger"
                  onClick={() =>
                    editTests(
                      draft,
                      tests.filter((each) => keyOf(each) !== keyOf(test)),
                    )
                  }
                >
                  Delete
                </button>
              </>
            )}
          </Menu>
        )}
      </span>
      {isTestAboutGone(test) ? (
        <p class="limited">What it names is revoked or gone, and the next change of the tests deletes it.</p>
      ) : null}
    </li>
  );
}

const expectations = [
  ["deny", "must not reach"],
  ["accept", "must reach"],
] as const;

/** `old`: the test that is edited; undefined for a new one. */
type FormProps = { draft: Draft; old: PolicyTest | undefined; close(): void };

/** The usual protocol of a test. One that forbids a single protocol would leave the others open. */
const usualProtocols = { accept: "tcp", deny: "any" } as const;
/** What the form of a new test begins with. */
const emptyTest: PolicyTest = {
  expect: "deny",
  from: "",
  to: "",
  protocol: usualProtocols.deny,
  ports: "any",
  passes: null,
};

function TestForm({ draft, old, close }: FormProps) {
  const [test, setTest] = useState(old ?? emptyTest);
  const [isChecked, setChecked] = useState(false);
  const sides = useSides(draft.slug);
  const sideOf = (typed: string) => toSide(typed, sides.groups, sides.nodes);
  const edited = { ...test, from: sideOf(test.from), to: sideOf(test.to), passes: null };
  const submit = (event: Event) => {
    event.preventDefault();
    setChecked(true);
    if (portsFault(test.ports) !== undefined) return;
    const tests = testsOf(draft);
    // The list may have been read again since the dialog was opened.
    const isOld = (each: PolicyTest) => old !== undefined && keyOf(each) === keyOf(old);
    editTests(
      draft,
      old === undefined ? [...tests, edited] : tests.map((each) => (isOld(each) ? edited : each)),
    );
    close();
  };
  const side = (key: "from" | "to") => (
    <SidePicker
      label={key === "from" ? "From" : "To"}
      typed={test[key]}
      set={(text: string) => setTest({ ...test, [key]: text })}
      sides={sides}
      isChecked={isChecked}
    />
  );
  return (
    <Dialog
      title={old === undefined ? "Add a test" : "Edit the test"}
      hasUnsaved={keyOf(test) !== keyOf(old ?? emptyTest)}
      close={close}
    >
      <form class="rule-form" onSubmit={submit}>
        {side("from")}
        <Choice
          label="Expect"
          value={test.expect}
          set={(expect) => {
            // A protocol that the user chose stays; that of a saved test was chosen.
            const isChosen = old !== undefined || test.protocol !== usualProtocols[test.expect];
            setTest({ ...test, expect, protocol: isChosen ? test.protocol : usualProtocols[expect] });
          }}
          choices={expectations}
        />
        {side("to")}
        <TrafficFields
          rule={{ ...test, protocol: protocolOf(test.protocol) }}
          set={(traffic) => setTest({ ...test, ...traffic })}
          fault={isChecked ? portsFault(test.ports) : undefined}
        />
        <FormEnd cancel={close}>{old === undefined ? "Add to the draft" : "Change in the draft"}</FormEnd>
      </form>
    </Dialog>
  );
}
