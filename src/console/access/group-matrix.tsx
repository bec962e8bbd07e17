// The matrix of groups (`GroupMatrix`): rows send, columns receive. And the list of groups with their nodes (`Groups`).

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { currentSlug } from "../contact/me.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { isNarrow } from "../ui/narrow.ts";
import { Panel, Why } from "../ui/page.tsx";
import { Empty } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import {
  cellOf,
  isChanged,
  linesOf,
  matrixOf,
  shortTraffic,
  type ChangedCell,
  type GroupLine,
} from "./group-cells.ts";
import type { Rule } from "./rules.ts";
import { Sentence } from "./sentence.tsx";
import { ShowRule, useSlices } from "./rule-list.tsx";
import { numberText, plural } from "../words/numbers.ts";

/** Maximum groups of a readable matrix: above it, the search of nodes and the explainer answer better. */
const maxGroups = 40;
/** Up to so many groups, cells with ping alone are buttons, too. */
const maxWithPingButtons = 20;
/** So many groups have room beside the rules. */
const maxBeside = 7;

/** The lines of the matrix. Groups that the draft no longer names keep theirs, so that its change is seen. */
function useLines(saved: readonly Rule[], rules: readonly Rule[]) {
  const { data } = useList(apiPath(groupsApi.list, { slug: currentSlug.value ?? "" }, { page_size: "1000" }));
  const lines = useMemo(
    () =>
      linesOf(
        (data ?? []).map(({ name }) => name),
        [...saved, ...rules],
      ),
    [data, saved, rules],
  );
  return { lines, isRead: data !== undefined };
}

type GroupMatrixProps = { saved: readonly Rule[]; draft: readonly Rule[] | undefined };

/** The value, one task later: after an edit the list of rules is drawn first, then the matrix. */
function useLater<T>(value: T): T {
  const [shown, setShown] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setShown(value));
    return () => clearTimeout(timer);
  }, [value]);
  return shown;
}

/** With a draft, the cells that it changes are marked. */
export function GroupMatrix(props: GroupMatrixProps) {
  const { saved, draft } = useLater(useMemo(() => props, [props.saved, props.draft]));
  const rules = draft ?? saved;
  const { lines, isRead } = useLines(saved, rules);
  const [chosen, setChosen] = useState<Pair>();
  const shown = useMemo(() => lines.slice(0, maxGroups), [lines]);
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
  const changed = draft === undefined ? 0 : cells.flat().filter(isChanged).length;
  const rows = useRows(shown, cells, chosen, setChosen);
  const count = useSlices(shown.length, names, 10);
  const title = draft === undefined ? "Who reaches what" : "Who reaches what, after saving";
  return (
    <Panel
      title={title}
      actions={
        shown.length > 0 && draft === undefined ? (
          <span class="faint no-phone cut">press a cell: its rules</span>
        ) : undefined
      }
      hasRoom
    >
      {shown.length === 0 ? (
        isRead ? (
          <Empty text="There is no group yet. Nodes get groups when they are added, and rules name them." />
        ) : null
      ) : (
        <>
          <div class="sideways" tabindex={0} role="region" aria-label="Matrix of groups">
            <Table lines={shown} rows={rows.slice(0, count)} />
          </div>
          <p class="legend">
            <span>
              <b class="faint">·</b> ping only
            </span>
            {draft === undefined ? null : (
              <>
                <span class="is-good">+ gains</span>
                <span class="is-bad">− loses</span>
              </>
            )}
            <span>tcp unless it says udp</span>
          </p>
          {draft === undefined ? null : (
            <p class="help" role="status">
              {changedWords(changed)}
            </p>
          )}
          <p class="help">
            For nodes that are in one group each. Rules about single nodes and networks are not counted.
            {lines.length > maxGroups ? ` The first ${maxGroups} of ${lines.length} groups.` : ""}
            {shown.some(({ all }) => all.length > 1) ? " Groups that no rule names are alike: one line." : ""}
          </p>
        </>
      )}
      <div role="status">
        {chosen === undefined ? null : <Reasons rules={rules} saved={saved} {...chosen} />}
      </div>
    </Panel>
  );
}

function changedWords(count: number): string {
  if (count === 0) return "Your changes leave this table as it is.";
  return `With your changes, ${plural(count, "cell")} ${count === 1 ? "is" : "are"} different: marked, with + for what comes and − for what goes.`;
}

type Pair = { from: GroupLine; to: GroupLine };

/**
 * The rows of the table. There may be 1,600 cells: a row whose `key` stays the same is the same object, which Preact does not
 * compare.
 */
function useRows(
  lines: readonly GroupLine[],
  cells: readonly (readonly ChangedCell[])[],
  chosen: Pair | undefined,
  choose: (pair: Pair) => void,
): readonly VNode[] {
  const known = useRef(new Map<string, VNode>());
  const drawn = useMemo(() => {
    const titles = lines.map(({ title }) => title).join("\n");
    return lines.map((from, row): readonly [string, VNode] => {
      const cellsOfRow = cells[row] ?? [];
      const column = chosen?.from.title === from.title ? chosen.to.title : undefined;
      const words = cellsOfRow.map(({ traffic, added, removed }) => [traffic, added, removed].join(";"));
      const key = [titles, from.title, column, ...words].join("\n");
      return [key, known.current.get(key) ?? drawRow(lines, from, cellsOfRow, column, choose)];
    });
  }, [lines, cells, chosen]);
  known.current = new Map(drawn);
  return drawn.map(([, row]) => row);
}

/** `column`: the title of the chosen cell's column, if the cell is in this row. */
const drawRow = (
  lines: readonly GroupLine[],
  from: GroupLine,
  cells: readonly ChangedCell[],
  column: string | undefined,
  choose: (pair: Pair) => void,
): VNode => (
  <tr key={from.title}>
    <th scope="row">
      <Title line={from} />
    </th>
    {lines.map((to, at) => {
      const cell = cells[at];
      return cell === undefined
        ? null
        : drawCell({
            cell,
            from,
            to,
            isChosen: column === to.title,
            isMany: lines.length > maxWithPingButtons,
            open: () => choose({ from, to }),
          });
    })}
  </tr>
);

/** So many letters have room on a phone in all titles of columns, if each is as wide as the longest. */
const maxLetters = 27;
/** The classes of the table. `long`: it may be wider than its panel. `upright`: titles of columns are turned. */
function shapeOf(lines: readonly GroupLine[]): string {
  if (lines.length > maxBeside) return "mx long";
  const isTight = lines.some(({ title }) => title.length * lines.length > maxLetters);
  return isNarrow.value && isTight ? "mx upright" : "mx";
}

const Table = ({ lines, rows }: { lines: readonly GroupLine[]; rows: readonly VNode[] }) => (
  <table class={shapeOf(lines)}>
    <caption class="unseen">The groups of rows reach those of columns</caption>
    <thead>
      <tr>
        <th>
          <span class="unseen">reaches </span>→
        </th>
        {lines.map((to) => (
          <th scope="col" key={to.title}>
            <Title line={to} />
          </th>
        ))}
      </tr>
    </thead>
    <tbody>{rows}</tbody>
  </table>
);

const Title = ({ line: { title, all } }: { line: GroupLine }) => (
  <bdi class="cut" title={all.join(", ")}>
    {title}
  </bdi>
);

type CellProps = {
  cell: ChangedCell;
  from: GroupLine;
  to: GroupLine;
  isChosen: boolean;
  isMany: boolean;
  open(): void;
};

/** `isMany`: the matrix has so many cells that those with ping alone are no buttons. */
function drawCell({ cell, from, to, isChosen, isMany, open }: CellProps): VNode {
  const { traffic, added, removed } = cell;
  if (traffic.length + removed.length === 0)
    return (
      <td key={to.title} class="none">
        <span class="unseen">nothing</span>
      </td>
    );
  const kept = traffic.filter((each) => !added.includes(each));
  const isSame = !isChanged(cell);
  const keepsOnlyPing = kept.length === 1 && kept[0] === "icmp";
  const isPing = keepsOnlyPing && isSame;
  let kind = isPing ? "" : "yes";
  if (removed.length > 0) kind = "del";
  if (added.length > 0) kind = "add";
  const shown = [
    // Beside a change, ping says nothing.
    ...(keepsOnlyPing && !isSame ? [] : shortTraffic(kept)),
    ...shortTraffic(added).map((each) => `+${each}`),
    ...shortTraffic(removed).map((each) => `−${each}`),
  ];
  const marked = [...kept, ...added.map((each) => `+ ${each}`), ...removed.map((each) => `− ${each}`)];
  const about = `${from.title} to ${to.title}: ${isPing ? "ping only" : marked.join(", ")}`;
  // In a large matrix most cells are like this, and a button in each would make the page slow.
  if (isPing && isMany)
    return (
      <td key={to.title} title={about}>
        ·
      </td>
    );
  return (
    <td key={to.title} class={isChosen ? `${kind} sel` : kind}>
      <button type="button" title={about} aria-label={about} onClick={open}>
        {shown.length === 1
          ? shown
          : shown.slice(0, 2).map((each, at) => (
              <span key={each}>
                {each}
                {at === 1 && shown.length > 2 ? "…" : ""}
              </span>
            ))}
      </button>
    </td>
  );
}

type ReasonsProps = Pair & { rules: readonly Rule[]; saved: readonly Rule[] };

/** The traffic of the chosen cell, and the rules that decide it. */
function Reasons({ rules, saved, from, to }: ReasonsProps) {
  const { traffic, rules: deciding } = cellOf(rules, from.name, to.name);
  const ended = cellOf(saved, from.name, to.name).traffic.filter((each) => !traffic.includes(each));
  const { data = [], isWhole } = useNodes();
  const count = (line: GroupLine) =>
    data.filter(({ groups }) => line.all.some((each) => groups.includes(each))).length;
  return (
    <Why
      kind="info"
      icon="access"
      title={
        <>
          <bdi>{from.title}</bdi> {from.all.length > 1 ? "reach" : "reaches"} <bdi>{to.title}</bdi> on{" "}
          {traffic.length === 0 ? "nothing" : traffic.join(", ")}
          {deciding.length === 0 ? "" : ", by"}
        </>
      }
    >
      <ul>
        {deciding.map((rule) => (
          <li key={rule.id}>
            {rule.id > 0 ? <ShowRule id={rule.id} /> : "New rule"}: <Sentence rule={rule} />
          </li>
        ))}
      </ul>
      {ended.length === 0 ? null : <p class="is-bad">No longer on {ended.join(", ")}.</p>}
      {isWhole ? (
        <p class="quiet">
          {numberText(count(from))} × {numberText(count(to))} nodes.
        </p>
      ) : null}
    </Why>
  );
}

const maxNames = 4;

type Members = { count: number; names: readonly string[] };

/** How many nodes are in each group, and the names of the first of them. */
function membersOf(nodes: readonly ListedNode[]): ReadonlyMap<string, Members> {
  const found = new Map<string, { count: number; names: string[] }>();
  for (const { groups, name } of nodes)
    for (const group of groups) {
      const known = found.get(group);
      if (known === undefined) found.set(group, { count: 1, names: [name] });
      else if (++known.count <= maxNames) known.names.push(name);
    }
  return found;
}

/** The groups that the rules name, with their nodes. */
export function Groups({ rules }: { rules: readonly Rule[] }) {
  const slug = currentSlug.value ?? "";
  const { lines } = useLines(rules, rules);
  const { data, isWhole } = useNodes();
  const members = useMemo(() => membersOf(isWhole ? (data ?? []) : []), [data, isWhole]);
  const named = lines.filter(({ all }) => all.length === 1).slice(0, maxGroups);
  if (!isWhole || named.length === 0) return null;
  return (
    <div class="no-phone">
      <Panel title="Groups" beside={<span class="faint no-phone cut">who is in what a rule names</span>}>
        <ul class="lines rule" aria-label="Groups">
          {named.map(({ name }) => {
            const { count, names } = members.get(name) ?? { count: 0, names: [] };
            const words = names.join(", ") + (count > names.length ? "…" : "");
            return (
              <li key={name}>
                <span class="no">{numberText(count)}</span>
                <span class="say">
                  <Tag text={name} />
                  <bdi class="quiet cut" title={words}>
                    {count === 0 ? "no node" : words}
                  </bdi>
                </span>
                <a href={`${pathOf(slug, "nodes")}?group=${encodeURIComponent(name)}`}>
                  Show<span class="unseen"> the nodes in {name}</span>
                </a>
              </li>
            );
          })}
        </ul>
      </Panel>
    </div>
  );
}
