// What a draft of rules and tests changes: in columns of the bar (`EffectColumns`), and all of it in a dialog (`ChangeDetails`).

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { Plan } from "../../api/policy.ts";
import { networksBehind } from "../../protocol/networks-behind.ts";
import { useNodes } from "../nodes/node-list.ts";
import { CloseEnd } from "../ui/button.tsx";
import { Sign } from "../ui/icon.tsx";
import { Tag } from "../ui/tag.tsx";
import { numberText } from "../words/numbers.ts";
import {
  accessWords,
  classParts,
  classWords,
  failText,
  firstOf,
  gainersFirst,
  moreKinds,
  noneText,
  pairsWords,
  shortPairs,
  spaced,
  verbFor,
  type Class,
} from "./class-words.ts";
import { useSlices } from "./rule-list.tsx";
import type { Edits } from "./rule-edits.ts";
import { endsOf, type Named, type Rule } from "./rules.ts";
import { Sentence, TestSentence } from "./sentence.tsx";
import type { Tests } from "./test-text.ts";

export const nothingWords = "No node, and no network behind one, gains or loses access.";

/** What a column of the bar has room for. */
const maxRows = 3;

/** Gains, losses and tests. */
export function EffectColumns({ plan: { access, tests }, added }: { plan: Plan; added: readonly Rule[] }) {
  const { data = [], isWhole } = useNodes();
  // Names for classes of nodes, only from the whole list: a part would name too few.
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
  const { rows, more } = firstOf(access.classes, kind, maxRows);
  return (
    <div>
      <h3 title={head && pairsWords(access)}>
        {head === undefined ? null : <Sign name={kind === "gain" ? "on" : "need"} />}
        {head ?? noneText(access, kind)}
      </h3>
      <ul>
        {rows.map((row, at) => (
          <EffectRow key={at} row={row} kind={kind} nodes={nodes} />
        ))}
        {more > 0 ? <li class="quiet">and {moreKinds(more)}</li> : null}
        {children}
      </ul>
    </div>
  );
}

function TestColumn({ tests: { after, failing } }: Pick<Plan, "tests">) {
  const allPass = after === 1 ? "The test passes." : `All ${after} tests pass.`;
  const passing = after === 0 ? "There are no tests to check." : allPass;
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

/** "web → db tcp 5432", and how many pairs, unless all nodes are named: "60 × 12". */
function EffectRow({ row, kind, nodes }: EffectProps) {
  const { from, to, owners = "any", pairs } = row;
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

const ChangeLines = ({ sign, lines }: { sign: "+" | "−"; lines: readonly VNode[] }) =>
  lines.map((line) => <li class="wraps">{sign === "+" ? <ins>+ {line}</ins> : <del>− {line}</del>}</li>);

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

/** Rules and tests that a draft adds and removes. A changed one is in both. */
export type Change = Edits & Record<"addedTests" | "removedTests", Tests>;

type DetailsProps = { plan: Plan; change: Change; close(): void };

/** All edits and their effect, in words. */
export function ChangeDetails({ plan: { access }, change, close }: DetailsProps) {
  const { added, removed, addedTests, removedTests } = change;
  const { data = [], isWhole } = useNodes();
  const nodes = isWhole ? data : [];
  // Rows appear 40 at a time, so that the page stays responsive.
  const count = useSlices(access.classes.length, "", 40);
  return (
    <>
      <ul class="effects">
        <ChangeLines sign="−" lines={[...removed.map(ruleWords), ...removedTests.map(testWords)]} />
        <ChangeLines sign="+" lines={[...added.map(ruleWords), ...addedTests.map(testWords)]} />
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
          {access.classes_left_out === 0 ? null : <p>And {moreKinds(access.classes_left_out)}.</p>}
          {access.classes.length === access.pairs_changed ? null : <Pairs access={access} />}
        </>
      )}
      <CloseEnd close={close} />
    </>
  );
}

/** Not shown if each class is one pair: then the list of classes has all pairs. */
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
