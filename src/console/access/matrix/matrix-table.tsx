// The table of the matrix of groups: its rows, and what a cell shows.

import type { VNode } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { isNarrow } from "../../ui/narrow.ts";
import { isChanged, shortTraffic, type ChangedCell, type GroupLine } from "../group-cells.ts";

/** Up to so many groups, cells with ping alone are buttons, too. */
const maxWithPingButtons = 20;
/** So many groups have room beside the rules. */
const maxBeside = 7;

/** A cell: row and column. */
export type Pair = { from: GroupLine; to: GroupLine };

/**
 * The rows of the table. There may be 1,600 cells: a row whose `key` stays the same is the same object, which Preact does not
 * compare.
 */
export function useRows(
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

export const MatrixTable = ({ lines, rows }: { lines: readonly GroupLine[]; rows: readonly VNode[] }) => (
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
