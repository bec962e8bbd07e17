// The squares of the picture of groups: which kind each node of a group is, and how squares and names are drawn.

import { Fragment } from "preact";
import type { GroupPaths } from "../../api/paths/paths.ts";
import { mapGroup } from "../../protocol/shown-groups.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { stateOf } from "../nodes/states.ts";
import type { CountsByNode } from "../nodes/path-counts.ts";
import {
  cut,
  maxNames,
  maxSquares,
  squareAt,
  squareKinds,
  squaresFor,
  squaresPath,
  type SquareKind,
} from "./group-boxes.ts";
import { drawnOf, kindsOf, type Group } from "./groups.ts";
import type { Point } from "./places-on-ring.ts";

/** A node of the picture, with its id, name and role; in a large organization several nodes, without them. */
export type Square = { kind: SquareKind; id?: number; name?: string; role?: string };

/** How many nodes a square of the picture stands for. */
export function perSquareOf(groups: readonly Group[], nodes: readonly ListedNode[] | undefined): number {
  if (nodes !== undefined) return 1;
  const { hub, ring } = drawnOf(groups);
  const all = [...ring, ...(hub === undefined ? [] : [hub])].reduce((sum, group) => sum + group.nodes, 0);
  return Math.max(1, Math.ceil(all / maxSquares));
}

/** The squares of each group: its nodes in the order of names, or as many as its numbers say. */
export function squaresOf(
  { groups, totals: { cut: cutPaths } }: Pick<GroupPaths, "groups" | "totals">,
  nodes: readonly ListedNode[] | undefined,
  counts: CountsByNode,
): ReadonlyMap<Group["name"], Square[]> {
  if (nodes === undefined) {
    const perSquare = perSquareOf(groups, nodes);
    return new Map(
      groups.map((group) => [
        group.name,
        squaresFor(kindsOf(group, cutPaths), perSquare).map((kind) => ({ kind })),
      ]),
    );
  }
  const drawn = nodes.filter(({ state, phone }) => state === "active" && phone === null);
  const sorted = drawn.toSorted((a, b) => rankOf(a) - rankOf(b) || (a.nameKey < b.nameKey ? -1 : 1));
  const squares = new Map<Group["name"], Square[]>();
  for (const node of sorted) {
    const name = mapGroup(node);
    const known = squares.get(name) ?? [];
    squares.set(name, known);
    known.push({ kind: kindOf(node, counts, cutPaths), id: node.id, name: node.name, role: roleOf(node) });
  }
  return squares;
}

/** The kind of a node that is away: `need` if the list shows it in red. `cutPaths`: how many paths have no other way than a relay that is away. */
export const kindOfAway = (node: ListedNode, cutPaths: number) =>
  stateOf({ ...node, cut: cutPaths })[0] === "attention" ? "need" : "off";

function kindOf(node: ListedNode, counts: CountsByNode, cutPaths: number): SquareKind {
  if (!node.online) return kindOfAway(node, cutPaths);
  const { broken, relayed } = counts.get(node.id) ?? { broken: 0, relayed: 0 };
  if (broken > 0) return "need";
  return relayed > 0 ? "part" : "on";
}

/** The role that others need most; "" for a node without one. */
export function roleOf(node: Pick<ListedNode, "is_lighthouse" | "is_relay" | "subnets">): string {
  if (node.is_lighthouse) return "lighthouse";
  if (node.is_relay) return "relay";
  return node.subnets.length > 0 ? "router" : "";
}

/** For sorting: nodes that the others need come first. */
const rankOf = (node: ListedNode) => ["lighthouse", "relay", "router", ""].indexOf(roleOf(node));

/** The squares, drawn as one path a kind, so that a large group costs few elements. `x`, `y`: of the box. */
export function Squares({ x, y, squares, pitch }: Point & { squares: readonly Square[]; pitch: number }) {
  const placesOf = (wanted: SquareKind) =>
    squares.flatMap(({ kind }, at) => {
      if (kind !== wanted) return [];
      const place = squareAt(at, squares.length, pitch);
      return [{ x: x + place.x, y: y + place.y }];
    });
  return (
    <>
      {squareKinds.map((kind) => {
        const places = placesOf(kind);
        if (places.length === 0) return null;
        if (kind !== "part")
          return <path key={kind} class={classes[kind]} d={squaresPath(places, kind, pitch)} />;
        return (
          <g key={kind}>
            <path class="part-o" d={squaresPath(places, "off", pitch)} />
            <path class="part" d={squaresPath(places, "half", pitch)} />
          </g>
        );
      })}
    </>
  );
}

/** The classes of the kinds in the style. */
const classes = { need: "need", part: "part", on: "on", off: "away" } as const;

/** Where the sign of a node is, in a box with names at `x` and `y`. `at`: its place in the list, from 0. */
export const nameMarkAt = ({ x, y }: Point, at: number): Point => ({ x: x + 17, y: y + 40 + 20 * at });

/** A line for each node: state, name and role. Those that do not fit are counted in the last line. */
export function Names({ x, y, width, squares }: Point & { width: number; squares: readonly Square[] }) {
  // The line "and 1 more" would take as much room as the name.
  const shown = squares.slice(0, squares.length > maxNames + 1 ? maxNames : maxNames + 1);
  return (
    <>
      {shown.map(({ name = "", kind, role = "" }, at) => {
        const mark = nameMarkAt({ x, y }, at);
        const line = mark.y + 4;
        return (
          <Fragment key={name}>
            <Mark kind={kind} {...mark} />
            <text x={x + 28} y={line}>
              {/* 28 before the name, 16 behind it, and 5.5 for each letter of the role. A letter of the name takes 6.5. */}
              {cut(name, width - 44 - 5.5 * role.length, 6.5)}
            </text>
            <text class="ts" x={x + width - 10} y={line} text-anchor="end">
              {role}
            </text>
          </Fragment>
        );
      })}
      {shown.length < squares.length ? (
        <text class="ts" x={x + 28} y={y + 44 + 20 * shown.length}>
          and {squares.length - shown.length} more
        </text>
      ) : null}
    </>
  );
}

/** The state of one node. */
export function Mark({ kind, x, y }: Point & { kind: SquareKind }) {
  if (kind === "need") return <path class="need" d={`M${x} ${y - 5}l5.5 9.5h-11z`} />;
  if (kind === "off") return <circle class="away" cx={x} cy={y} r="3.5" stroke-width="1.5" />;
  if (kind === "on") return <circle class="on" cx={x} cy={y} r="4" />;
  return (
    <>
      <circle class="part-o" cx={x} cy={y} r="4" stroke-width="1.5" />
      <path class="part" d={`M${x} ${y - 4}a4 4 0 0 0 0 8z`} />
    </>
  );
}
