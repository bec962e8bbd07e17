// The matrix of the groups: with the median of round trips in its cells, or, of many groups, with colours alone.

import { useMemo, useState } from "preact/hooks";
import { go } from "../frame/router.ts";
import { cut } from "./group-boxes.ts";
import {
  groupWord,
  isPair,
  pairFinder,
  pairName,
  pairWords,
  pathsIn,
  type Group,
  type Pair,
} from "./groups.ts";
import { Sign } from "../ui/icon.tsx";
import { msWords } from "../words/numbers.ts";
import { heatLevel } from "./heat.ts";

type Props = {
  /** In the order of the lines. */
  groups: readonly Group[];
  pairs: readonly Pair[];
  selected: string | undefined;
  linkTo(pair: Pair): string;
};

/** How wide all columns together are at least, where the matrix stands. Names that do not fit are turned upright. */
const leastWidth = { side: 200, canvas: 480 } as const;
/** The mean width of a letter, in pixels and in units of the drawing. */
const letter = 6.4;

export function Matrix({
  groups,
  pairs,
  selected,
  linkTo,
  place,
}: Props & { place: keyof typeof leastWidth }) {
  const find = pairFinder(pairs);
  const words = groups.map(({ name }) => groupWord(name));
  const isUpright = words.some((word) => word.length * letter > leastWidth[place] / words.length);
  return (
    <table class={isUpright ? "mx trips upright" : "mx trips"}>
      <caption class="unseen">Median round trip between groups, milliseconds</caption>
      <thead>
        <tr>
          <td class="none" />
          {words.map((word) => (
            <th key={word} scope="col" title={word}>
              <bdi>{word}</bdi>
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {groups.map((row, at) => (
          <tr key={words[at]}>
            <th scope="row" title={words[at]}>
              <bdi class="cut">{words[at]}</bdi>
            </th>
            {groups.map((column, other) =>
              other < at ? (
                <td key={words[other]} class="none" />
              ) : (
                <LinkCell
                  key={words[other]}
                  pair={find(row.name, column.name)}
                  selected={selected}
                  linkTo={linkTo}
                />
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function LinkCell({
  pair,
  selected,
  linkTo,
}: { pair: Pair | undefined } & Pick<Props, "selected" | "linkTo">) {
  if (pair === undefined || pathsIn(pair) === 0) return <td />;
  const { rtt_ms_median: median, broken } = pair;
  const isShown = selected !== undefined && isPair(pair, selected);
  const classes = [median !== null && `heat-${heatLevel(median)}`, broken > 0 && "x", isShown && "sel"];
  return (
    <td class={classes.filter(Boolean).join(" ") || undefined}>
      <a href={linkTo(pair)} title={pairWords(pair)} aria-current={isShown ? "true" : undefined}>
        {median === null ? "–" : msWords(Math.round(median))}
        {broken === 0 ? null : <span class="unseen">, {broken} broken</span>}
      </a>
      {broken === 0 ? null : <Sign name="need" />}
    </td>
  );
}

/** Of the drawing of many groups: the distance of cells, and the room for names at the left of it and above it. */
const cell = { width: 17, height: 16 };
const roomLeft = 108;
const roomAbove = 84;

/**
 * The matrix of many groups as one drawing: keys and the pointer choose a cell, and the line below says what it is. The table has
 * the same as links.
 */
export function ManyMatrix({ groups, pairs, selected, linkTo }: Props) {
  /** The chosen place, which may have no cell, or lie outside. */
  const [at, setAt] = useState<{ row: number; column: number }>();
  const { cells, heats, frames } = useMemo(() => cellsOf(groups, pairs), [groups, pairs]);
  const pairAt = (where: typeof at) =>
    cells.find((each) => each.row === where?.row && each.column === where.column)?.pair;
  const chosen = cells.find(({ pair }) => selected !== undefined && isPair(pair, selected));
  const width = roomLeft + groups.length * cell.width;
  const height = roomAbove + groups.length * cell.height;
  /** The place under the pointer. The matrix has each pair once, above its diagonal, so row and column may be exchanged. */
  const placeOf = (event: MouseEvent & { currentTarget: SVGSVGElement }) => {
    const { left: x, top: y, width: shown } = event.currentTarget.getBoundingClientRect();
    const unit = width / shown;
    const column = Math.floor(((event.clientX - x) * unit - roomLeft) / cell.width);
    const row = Math.floor(((event.clientY - y) * unit - roomAbove) / cell.height);
    return { row: Math.min(row, column), column: Math.max(row, column) };
  };
  const open = (where: typeof at) => {
    const pair = pairAt(where);
    if (pair !== undefined) go(linkTo(pair));
  };
  const steps: Readonly<Record<string, readonly [rows: number, columns: number]>> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") return open(at);
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const within = (value: number) => Math.min(groups.length - 1, Math.max(0, value));
    const [rows, columns] = step;
    const row = within((at?.row ?? 0) + rows);
    setAt({ row, column: Math.max(row, within((at?.column ?? -1) + columns)) });
  };
  const pair = pairAt(at);
  return (
    <>
      <svg
        class="draw matrix"
        viewBox={`0 0 ${width} ${height}`}
        style={{ maxWidth: `${width}px` }}
        role="application"
        tabindex={0}
        aria-label={`Matrix of ${groups.length} groups: arrow keys choose two of them, Enter shows their paths. The table has the same.`}
        onMouseMove={(event) => setAt(placeOf(event))}
        onMouseLeave={() => setAt(undefined)}
        onClick={(event) => open(placeOf(event))}
        onKeyDown={onKeyDown}
      >
        <LineNames groups={groups} row={at?.row} column={at?.column} />
        {heats.map((rects, heat) => (
          <path key={heat} class={heat === 0 ? "box" : `heat-${heat}`} d={rects} />
        ))}
        <path class="frame" d={frames} />
        {at === undefined || pair === undefined ? null : (
          <path class="cursor" d={rectOf(at.row, at.column, 0)} />
        )}
        {chosen === undefined ? null : <path class="cursor" d={rectOf(chosen.row, chosen.column, 0)} />}
      </svg>
      <p class="quiet" role="status">
        {at === undefined || at.row < 0 || at.column >= groups.length
          ? "Point at a cell, or press arrow keys."
          : pair === undefined
            ? `${pairName({ from: groups[at.row]?.name ?? null, to: groups[at.column]?.name ?? null })}: no path`
            : pairWords(pair)}
      </p>
    </>
  );
}

/** A cell as part of a path, 16 by 15: one unit smaller than the distance to the next. `inset`: how much smaller it is on each side. */
const rectOf = (row: number, column: number, inset: number) =>
  `M${roomLeft + column * cell.width + inset} ${roomAbove + row * cell.height + inset}h${16 - 2 * inset}v${15 - 2 * inset}h${2 * inset - 16}z`;

type Cell = { pair: Pair; row: number; column: number };

/** The cells that have paths; as paths of the drawing, all cells of a colour (`heats`) and the frames of broken ones. */
function cellsOf(groups: readonly Group[], pairs: readonly Pair[]) {
  const find = pairFinder(pairs);
  const cells = groups.flatMap((row, y) =>
    groups.slice(y).flatMap((column, x): Cell[] => {
      const pair = find(row.name, column.name);
      return pair === undefined || pathsIn(pair) === 0 ? [] : [{ pair, row: y, column: x + y }];
    }),
  );
  const rects = (wanted: (pair: Pair) => boolean, inset: number) =>
    cells.flatMap(({ pair, row, column }) => (wanted(pair) ? rectOf(row, column, inset) : [])).join("");
  // The levels of heat.ts; 0: no round trip was measured.
  const heats = [0, 1, 2, 3, 4, 5].map((heat) =>
    rects(({ rtt_ms_median: median }) => heatLevel(median) === heat, 0),
  );
  return { cells, heats, frames: rects(({ broken }) => broken > 0, 1) };
}

type NamesProps = { groups: readonly Group[]; row: number | undefined; column: number | undefined };

const LineNames = ({ groups, row, column }: NamesProps) => (
  <>
    {groups.map(({ name }, line) => {
      const word = groupWord(name);
      return (
        <g key={word} aria-hidden="true">
          <text
            class={row === line ? "th" : "ts"}
            x={roomLeft - 8}
            y={roomAbove + line * cell.height + 12}
            text-anchor="end"
          >
            {cut(word, roomLeft - 12, letter)}
          </text>
          <text
            class={column === line ? "th" : "ts"}
            transform={`translate(${roomLeft + line * cell.width + 12} ${roomAbove - 6}) rotate(-90)`}
          >
            {cut(word, roomAbove - 10, letter)}
          </text>
        </g>
      );
    })}
  </>
);
