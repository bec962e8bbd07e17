// The bar of the draft: the nodes that gain and lose access, and the tests, before it is saved. Then what was saved.

import type { Plan } from "../../api/policy.ts";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { ApiError } from "../contact/api.ts";
import { useNodes } from "../nodes/node-list.ts";
import { Button, CloseEnd } from "../ui/button.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { DraftBar, SavedBar } from "../ui/draft-bar.tsx";
import { Sign } from "../ui/icon.tsx";
import { TerminalButton } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import {
  accessWords,
  classParts,
  classWords,
  failText,
  gainersFirst,
  pairsWords,
  shortPairs,
  spaced,
  verbFor,
  type Class,
} from "./class-words.ts";
import { discard, isRefused, testsLeft, type Draft } from "./draft-state.ts";
import { planEdits, undo } from "./draft.ts";
import { save } from "./saving.ts";
import { shownRules, useSlices } from "./rule-list.tsx";
import { listOf, type Saved } from "./saved.ts";
import { Sentence, TestSentence } from "./sentence.tsx";
import { notIn } from "./merge-tests.ts";
import type { Tests } from "./test-text.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import {
  changeWords,
  editsOf,
  endsOf,
  faultLines,
  rowsOf,
  type Edits as RuleEdits,
  type Named,
  type Rule,
} from "./rules.ts";
import { numberText } from "../words/numbers.ts";

type Props = { draft: Draft; saved: Saved };

/** The bar under the rules: the edits and their effect; after saving, what the save did. */
export function DraftPanel({ draft, saved }: Props) {
  const done = draft.done.value;
  let bar = done && <JustSaved draft={draft} done={done} />;
  if (draft.rules.value !== undefined) bar = <Unsaved draft={draft} saved={saved} />;
  return (
    <>
      <p class="unseen" role="status">
        {done === undefined ? "" : "Saved."}
      </p>
      {bar}
    </>
  );
}

const nothingWords = "No node, and no network behind one, gains or loses access.";
const effectOf = ({ access }: Plan) => (access.pairs_changed === 0 ? nothingWords : `${pairsWords(access)}.`);

const shortEffect = ({ access }: Plan) =>
  (["gain", "lose"] as const).flatMap((kind) => shortPairs(access, kind) ?? []).join(", ");

type JustSavedProps = { draft: Draft; done: NonNullable<Draft["done"]["value"]> };

function JustSaved({ draft, done: { terminal, plan, edits, tests } }: JustSavedProps) {
  const [isShown, setShown] = useState(false);
  const change = { ...edits, fresh: notIn(tests[0], tests[1]), gone: notIn(tests[1], tests[0]) };
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
            <Button onClick={() => undo(draft, edits, [], tests)}>Undo</Button>
          </>
        }
      />
      {isShown ? (
        <Dialog title="Who gained and lost access" close={() => setShown(false)}>
          <Details plan={plan} change={change} close={() => setShown(false)} />
        </Dialog>
      ) : null}
    </>
  );
}

type Change = RuleEdits & Record<"fresh" | "gone", Tests>;

function changeOf(draft: Draft, saved: Saved, rules: readonly Rule[]): Change {
  const tests = testsLeft(draft);
  return {
    ...editsOf(saved.rules, rules),
    fresh: notIn(listOf(saved), tests),
    gone: notIn(tests, listOf(saved)),
  };
}

function Unsaved({ draft, saved }: Props) {
  const [open, setOpen] = useState<"discard" | "details">();
  const { theirs, error, isSaving, tests } = draft;
  const rules = shownRules(draft, saved);
  const change = changeOf(draft, saved, rules);
  // The plan of edits on rules that were replaced meanwhile says nothing about what saving would do.
  const plan = theirs.value === undefined ? draft.plan.value : undefined;
  const isPlanning = plan === undefined && error.value === undefined && theirs.value === undefined;
  const close = () => setOpen(undefined);
  return (
    <>
      <DraftBar
        changes={changeWords(rowsOf(saved.rules, rules), {
          fresh: change.fresh.length,
          gone: change.gone.length,
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
        {plan === undefined ? null : <Columns plan={plan} added={change.added} />}
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
          <Details plan={plan} change={change} close={close} />
        </Dialog>
      ) : null}
    </>
  );
}

function refusalOf(draft: Draft): string | undefined {
  const { plan, theirs } = draft;
  if (theirs.value !== undefined) return "Save is off: rules were saved since these edits began";
  if (isRefused(draft)) return "Save is off: there is a fault";
  const { failing = [], after = 0 } = plan.value?.tests ?? {};
  if (failing.length === 0) return undefined;
  return `Save is off while ${after === 1 ? "the" : "a"} test fails`;
}

/** The control plane names lines of the file that the page sent. The user has not seen that file: the page names rules. */
type RefusalProps = { draft: Draft; rules: readonly Rule[]; error: ApiError };

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

/** What a column of the bar has room for. */
const maxRows = 3;

/** Gains, losses and tests. */
function Columns({ plan: { access, tests }, added }: { plan: Plan; added: readonly Rule[] }) {
  const { data = [], isWhole } = useNodes();
  const nodes = isWhole ? data : [];
  const behind = networksBehind(
    added.map((rule) => endsOf(rule).to),
    data,
  );
  if (access.pairs_changed === 0 && behind.length === 0)
    return (
      <>
        <div>
          <h3>{nothingWords}</h3>
        </div>
        <TestColumn tests={tests} />
      </>
    );
  return (
    <>
      <EffectColumn access={access} kind="gain" nodes={nodes}>
        {behind.length === 0 ? null : (
          <li class="wraps">
            <span>
              The new rules also open the networks behind <bdi>{behind.join("; ")}</bdi>.
            </span>
          </li>
        )}
      </EffectColumn>
      <EffectColumn access={access} kind="lose" nodes={nodes} />
      <TestColumn tests={tests} />
    </>
  );
}

type EffectColumnProps = {
  access: Plan["access"];
  kind: "gain" | "lose";
  nodes: readonly Named[];
  children?: VNode | null;
};

/** The nodes that gain access, or those that lose it. `children`: rows after them. */
function EffectColumn({ access, kind, nodes, children }: EffectColumnProps) {
  const head = shortPairs(access, kind);
  const rows = access.classes.filter((each) => each[`${kind}s`].length > 0);
  const more = rows.length - maxRows + access.classes_left_out;
  return (
    <div>
      <h3 title={head && pairsWords(access)}>
        {head === undefined ? null : <Sign name={kind === "gain" ? "on" : "need"} />}
        {head ?? `No node ${kind}s access`}
      </h3>
      <ul>
        {rows.slice(0, maxRows).map((row, at) => (
          <EffectRow key={at} row={row} kind={kind} nodes={nodes} />
        ))}
        {more > 0 ? <li class="quiet">and {numberText(more)} more kinds of nodes</li> : null}
        {children}
      </ul>
    </div>
  );
}

function TestColumn({ tests: { after, failing } }: Pick<Plan, "tests">) {
  const some = after === 1 ? "The test passes." : `All ${after} tests pass.`;
  const passing = after === 0 ? "There are no tests to check." : some;
  const isFailing = failing.length > 0;
  return (
    <div>
      <h3>
        {after === 0 ? null : <Sign name={isFailing ? "need" : "on"} />}
        {isFailing ? failText(failing.length, after) : passing}
      </h3>
      {isFailing ? (
        <ul role="alert">
          {failing.slice(0, maxRows).map((line) => (
            <li key={line} class="wraps">
              <bdi>{spaced(line)}</bdi>
              <a href="#tests">Show</a>
            </li>
          ))}
        </ul>
      ) : null}
      {isFailing && after > failing.length ? (
        <p class="quiet">{numberText(after - failing.length)} pass</p>
      ) : null}
    </div>
  );
}

type Effect = Plan["access"]["classes"][number];
type EffectProps = { row: Effect; kind: "gain" | "lose"; nodes: readonly Named[] };

const ownersWords = (owners: NonNullable<Effect["owners"]>) =>
  owners === "any" ? "" : ` (with ${owners === "same" ? "the same owner" : "different owners"})`;

/** "web → db tcp 5432", and how many pairs: "60 × 12". */
function EffectRow({ row: { from, to, owners = "any", pairs, ...row }, kind, nodes }: EffectProps) {
  const isNamed = [from, to].every(({ count, nodes: names }) => count <= names.length);
  const isProduct = from.count * to.count === pairs;
  const size = isProduct ? `${numberText(from.count)} × ${numberText(to.count)}` : numberText(pairs);
  const owned = ownersWords(owners);
  return (
    <li>
      <span class="cut" title={`${classWords(from, nodes)} → ${classWords(to, nodes)}${owned}`}>
        <ClassName of={from} nodes={nodes} /> → <ClassName of={to} nodes={nodes} />
        {owned} <Traffic count={from.count} kind={kind} what={row[`${kind}s`]} />
      </span>
      <span class="num">{isNamed ? "" : size}</span>
    </li>
  );
}

type TrafficProps = { count: number; kind: "gain" | "lose"; what: readonly string[] };

/** The head of the column shows the verb; screen readers get it in each row. */
const Traffic = ({ count, kind, what }: TrafficProps) => (
  <>
    <span class="unseen">{verbFor(count, kind)} </span>
    {what.map((each) => (
      <Tag key={each} text={spaced(each)} isPort />
    ))}
  </>
);

function ClassName({ of, nodes }: { of: Class; nodes: readonly Named[] }) {
  const { before, groups, after, isExact } = classParts(of, nodes);
  return (
    <>
      <bdi class={isExact ? "unseen" : undefined}>{before}</bdi>
      {groups.map((group) => (
        <Tag key={group} text={group} />
      ))}
      <bdi>{after}</bdi>
    </>
  );
}

const Edits = ({ isNew, all }: { isNew: boolean; all: readonly VNode[] }) =>
  all.map((each) => <li class="wraps">{isNew ? <ins>+ {each}</ins> : <del>− {each}</del>}</li>);

const ruleWords = (rule: Rule) => (
  <>
    {rule.id > 0 ? `Rule ${rule.id}: ` : ""}
    <Sentence rule={rule} />
  </>
);

const testWords = (test: Tests[number]) => (
  <>
    Test: <TestSentence test={test} />
  </>
);

type DetailsProps = { plan: Plan; change: Change; close(): void };

/** All of it, in words. */
function Details({ plan: { access }, change: { added, removed, fresh, gone }, close }: DetailsProps) {
  const { data = [], isWhole } = useNodes();
  const nodes = isWhole ? data : [];
  const count = useSlices(access.classes.length, "", 40);
  return (
    <>
      <ul class="effects">
        <Edits isNew={false} all={[...removed.map(ruleWords), ...gone.map(testWords)]} />
        <Edits isNew={true} all={[...added.map(ruleWords), ...fresh.map(testWords)]} />
      </ul>
      {access.pairs_changed === 0 ? (
        <p>{nothingWords}</p>
      ) : (
        <>
          <p>{pairsWords(access)}:</p>
          <ul class="effects">
            {gainersFirst(access.classes)
              .slice(0, count)
              .map(({ from, to, owners = "any", gains, loses }, at) => (
                <li key={at} class="wraps">
                  <span>
                    <bdi>{classWords(from, nodes)}</bdi> → <bdi>{classWords(to, nodes)}</bdi>
                    {ownersWords(owners)} <Gains count={from.count} gains={gains} loses={loses} />
                  </span>
                </li>
              ))}
          </ul>
          {access.classes_left_out === 0 ? null : (
            <p>And {numberText(access.classes_left_out)} more kinds of nodes.</p>
          )}
          {access.classes.length === access.pairs_changed ? null : <Pairs access={access} />}
        </>
      )}
      <CloseEnd close={close} />
    </>
  );
}

function Pairs({ access }: Pick<Plan, "access">) {
  // Made when it is opened: there may be a thousand.
  const [isOpen, setOpen] = useState(false);
  const count = useSlices(isOpen ? access.pairs.length : 0, `${isOpen}`, 40);
  const toggle = ({ currentTarget }: Event) =>
    setOpen(currentTarget instanceof HTMLDetailsElement && currentTarget.open);
  return (
    <details onToggle={toggle}>
      <summary>
        Each pair
        {access.pairs.length < access.pairs_changed ? `, the first ${numberText(access.pairs.length)}` : ""}
      </summary>
      <ul class="effects">
        {gainersFirst(isOpen ? access.pairs : [])
          .slice(0, count)
          .map(({ from, to, gains, loses }) => (
            <li key={`${from.name} ${to.name}`} class="wraps">
              <span>
                <bdi>{from.name}</bdi> → <bdi>{to.name}</bdi> <Gains count={1} gains={gains} loses={loses} />
              </span>
            </li>
          ))}
      </ul>
    </details>
  );
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
