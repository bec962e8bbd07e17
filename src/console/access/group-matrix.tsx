// The matrix of groups: rows send, columns receive.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import type { VNode } from "preact";
import { useMemo, useState } from "preact/hooks";
import { slug } from "../me.ts";
import { useList } from "../resource.ts";
import { Empty } from "../ui/parts.tsx";
import { cellOf, isChanged, linesOf, matrixOf, type ChangedCell, type Line } from "./matrix.ts";
import type { Rule } from "./rules.ts";
import { Sentence } from "./sentence.tsx";

/** Maximum groups of a readable matrix: above it, the search of machines and the explainer answer better. */
const maxGroups = 40;

type GroupMatrixProps = { saved: readonly Rule[]; draft: readonly Rule[] | undefined };

/** With a draft, the cells that it changes are marked. */
export function GroupMatrix({ saved, draft }: GroupMatrixProps) {
  const rules = draft ?? saved;
  const own = slug.value ?? "";
  const { data } = useList(apiPath(groupsApi.list, { slug: own }, { page_size: "1000" }));
  const [chosen, choose] = useState<readonly [Line, Line] | undefined>(undefined);
  // Groups that the draft no longer names keep a line, so that its change is seen.
  const lines = useMemo(
    () =>
      linesOf(
        (data ?? []).map(({ name }) => name),
        [...saved, ...rules],
      ),
    [data, saved, rules],
  );
  const shown = lines.slice(0, maxGroups);
  const names = shown.map(({ all }) => all.join()).join("\n");
  const cells = useMemo(
    () =>
      matrixOf(
        shown.map(({ name }) => name),
        rules,
        saved,
      ),
    [saved, rules, names],
  );
  const changed = cells.flat().filter(isChanged).length;
  // Keeps the table object, which Preact then does not redraw: it may have 1,600 cells.
  const table = useMemo(() => drawTable(shown, cells, choose), [cells, names]);
  return (
    <section aria-labelledby="matrix">
      <h2 id="matrix">Which group reaches which</h2>
      {shown.length === 0 ? (
        data && (
          <Empty text="There is no group yet. Machines get groups when they are added, and rules name them." />
        )
      ) : (
        <>
          <p class="quiet">
            For machines that are in one group each. Rules about single machines and networks are not counted.
            {lines.length > maxGroups ? ` The first ${maxGroups} of ${lines.length} groups.` : ""}
            {shown.some(({ all }) => all.length > 1) ? " Groups that no rule names are alike: one line." : ""}
          </p>
          {draft === undefined ? null : <p role="status">{changedWords(changed)}</p>}
          <div class="wide" tabindex={0} role="region" aria-label="Matrix of groups">
            {table}
          </div>
        </>
      )}
      <div role="status">
        {chosen === undefined ? null : <Reasons rules={rules} from={chosen[0]} to={chosen[1]} />}
      </div>
    </section>
  );
}

function changedWords(count: number): string {
  if (count === 0) return "Your changes leave this table as it is.";
  return `With your changes, ${count === 1 ? "1 cell is" : `${count} cells are`} different: marked, with + for what comes and − for what goes.`;
}

function drawTable(
  lines: readonly Line[],
  cells: readonly (readonly ChangedCell[])[],
  choose: (pair: readonly [Line, Line]) => void,
): VNode {
  return (
    <table class="matrix">
      <thead>
        <tr>
          <th scope="col">from \ to</th>
          {lines.map((to) => (
            <th scope="col" key={to.title}>
              <Title line={to} />
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {lines.map((from, row) => (
          <tr key={from.title}>
            <th scope="row">
              <Title line={from} />
            </th>
            {lines.map((to, at) => {
              const cell = cells[row]?.[at];
              return cell === undefined ? null : drawCell(cell, to.title, () => choose([from, to]));
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Title({ line: { title, all } }: { line: Line }) {
  return <bdi title={all.join(", ")}>{title}</bdi>;
}

function drawCell(cell: ChangedCell, to: string, open: () => void): VNode {
  const { traffic, added, removed } = cell;
  // Wraps between entries, not between protocol and port.
  const text = (each: string) => each.replace(" ", "\u00A0");
  const words = traffic.map((each, at) => (
    <>
      {at === 0 ? "" : ", "}
      {added.includes(each) ? <ins>+ {text(each)}</ins> : text(each)}
    </>
  ));
  const now =
    traffic.length === 0 ? (
      <span class="quiet">nothing</span>
    ) : (
      <button type="button" class="plain" onClick={open}>
        {words}
      </button>
    );
  if (!isChanged(cell)) return <td key={to}>{now}</td>;
  return (
    <td key={to} class="marked">
      {now}
      {removed.map((each) => (
        <>
          {" "}
          <del>− {text(each)}</del>
        </>
      ))}
    </td>
  );
}

function Reasons({ rules, from, to }: { rules: readonly Rule[]; from: Line; to: Line }) {
  const { traffic, rules: deciding } = cellOf(rules, from.name, to.name);
  return (
    <>
      <p>
        <bdi>{from.title}</bdi> {from.all.length > 1 ? "reach" : "reaches"} <bdi>{to.title}</bdi> on{" "}
        {traffic.length === 0 ? "nothing" : traffic.join(", ")}, by
      </p>
      <ul>
        {deciding.map((rule) => (
          <li key={rule.id}>
            {rule.id > 0 ? `rule ${rule.id}: ` : ""}
            <Sentence rule={rule} />
          </li>
        ))}
      </ul>
    </>
  );
}
