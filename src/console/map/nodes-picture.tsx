// The picture of a few nodes: a box for each, lighthouses in the middle, and a line for each path.
//
// Orders, places and lines are kept by their keys (`keptFor`). The key of places and lines holds all that they are computed from.
// The key of the order holds the nodes alone, so that no box moves when a path changes.

import { mapGroup } from "../../protocol/shown-groups.ts";
import { ago } from "../words/ago.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { pathOf } from "../frame/router.ts";
import { exact, now } from "../words/times.ts";
import { pathOfCurve, waysOf } from "./band-ways.ts";
import { cut } from "./group-boxes.ts";
import { isCurrent, wordsOf, type Edge } from "./node-paths.ts";
import { kindOfAway, Mark, roleOf } from "./node-squares.tsx";
import { keptFor, place, ringOrder, type Box, type Placed } from "./places-on-ring.ts";
import { msWords } from "../words/numbers.ts";

/** Beyond this number of nodes, the map is drawn by groups. */
export const maxNodes = 24;
/** So many lighthouses stand in the middle, the others on the ring. */
const maxInMiddle = 4;

type Props = {
  slug: string;
  nodes: readonly ListedNode[];
  edges: readonly Edge[];
  cutPaths: number;
  isNarrow: boolean;
};

/** Mean widths of a letter by the class of its text, in units of the picture: they follow from the sizes in style/drawings.css. */
const tsLetter = 6;
const thLetter = 7.5;
const tmLetter = 6.6;

const margin = 16;
const labelHeight = 18;

/**
 * The ground of the ring, in units of the picture. `ellipse`: half of its width and height. `least`: of the whole picture. On a phone
 * it is higher than wide. `count`: of the boxes; four stand in the corners, for which the ellipse must be larger.
 */
function groundOf(count: number, isNarrow: boolean) {
  const corners = count === 4 ? Math.SQRT2 : 1;
  return isNarrow
    ? {
        ellipse: { x: 106 * corners, y: 178 * corners },
        gap: 16,
        margin: 2,
        least: { width: 358, height: 440 },
      }
    : {
        ellipse: count === 4 ? { x: 216 * corners, y: 146 * corners } : { x: 248, y: 180 },
        gap: margin,
        margin,
        least: { width: 692, height: 420 },
      };
}

export function NodesPicture({ slug, nodes, edges, cutPaths, isNarrow }: Props) {
  // `!`: a lighthouse, which has another place.
  const ids = nodes.map(({ id, is_lighthouse }) => `${id}${is_lighthouse ? "!" : ""}`).join();
  const { order, middle } = keptFor(`nodes ${slug} ${ids}`, () => orderOf(nodes, edges));
  // The more boxes, the narrower they are.
  const size = { width: isNarrow ? 142 : nodes.length > 10 ? 144 : 164, height: 60 };
  const shape = `${order.join()}/${middle.join()} ${size.width} ${isNarrow}`;
  const placed = keptFor(`boxes ${shape}`, () =>
    place(
      order.map(() => size),
      columnSize(middle.length, size),
      groundOf(order.length, isNarrow),
    ),
  );
  const boxes = boxesOf(order, middle, placed, size);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const key = edges.map((edge) => `${keyOf(edge)}${edge.kind}${labelOf(edge)}`).join();
  const ways = keptFor(`lines ${shape} ${key}`, () => waysOfEdges(edges, boxes, placed));
  const nameOf = (id: number) => byId.get(id)?.name ?? "";
  return (
    <svg
      class="draw"
      viewBox={`0 0 ${Math.ceil(placed.width)} ${Math.ceil(placed.height)}`}
      role="group"
      aria-label="Nodes and the paths between them"
    >
      {edges.map((edge) => {
        const way = ways.get(keyOf(edge));
        if (way === undefined) return null;
        const kind = edge.kind === "relayed" ? "relay" : edge.kind;
        return (
          <g key={keyOf(edge)} class={isCurrent(edge) ? undefined : "dim"}>
            <title>{`${nameOf(edge.from)} – ${nameOf(edge.to)}: ${wordsOf(edge, exact)}`}</title>
            <path class={kind} d={pathOfCurve(way.curve)} />
          </g>
        );
      })}
      {[...order, ...middle].map((id) => {
        const [node, box] = [byId.get(id), boxes.get(id)];
        if (node === undefined || box === undefined) return null;
        return (
          <NodeBox
            key={id}
            slug={slug}
            node={node}
            box={box}
            kind={kindOf(node, edges, cutPaths)}
            isHub={middle.includes(id)}
          />
        );
      })}
      {edges.map((edge) => {
        const label = ways.get(keyOf(edge))?.label;
        if (label === undefined || !isCurrent(edge)) return null;
        const width = labelWidth(edge);
        return (
          <g key={keyOf(edge)}>
            <rect
              class={edge.kind === "broken" ? "lab ill" : "lab"}
              x={label.x - width / 2}
              y={label.y - labelHeight / 2}
              width={width}
              height={labelHeight}
              rx="9"
            />
            <text class="ts" x={label.x} y={label.y + 4} text-anchor="middle">
              {labelOf(edge)}
            </text>
          </g>
        );
      })}
    </svg>
  );
}

const keyOf = ({ from, to }: Edge) => `${from} ${to}`;

function labelOf({ kind, rttMs, relays }: Edge): string {
  if (kind === "broken") return "broken";
  const trip = rttMs === undefined ? kind : `${msWords(rttMs)} ms`;
  return relays.length === 0 ? trip : `${trip} via ${cut(relays.join(", "), 110)}`;
}
/** In units of the picture: the letters, and 7 on each side. */
const labelWidth = (edge: Edge) => 14 + tsLetter * labelOf(edge).length;

/** Lighthouses are in the middle, the others on the ring in the order of their paths. */
function orderOf(nodes: readonly ListedNode[], edges: readonly Edge[]) {
  const byName = nodes.toSorted((a, b) => (a.nameKey < b.nameKey ? -1 : 1));
  const middle = byName.flatMap(({ id, is_lighthouse }) => (is_lighthouse ? [id] : [])).slice(0, maxInMiddle);
  const ring = byName.flatMap(({ id }) => (middle.includes(id) ? [] : [id]));
  const joined = new Set(edges.flatMap(({ from, to }) => [`${from} ${to}`, `${to} ${from}`]));
  const { order } = ringOrder(ring, (a, b) => Number(joined.has(`${a} ${b}`)));
  return { order, middle };
}

/** Between two boxes of the column in the middle. */
const columnGap = 12;

function columnSize(count: number, { width, height }: { width: number; height: number }) {
  return count === 0 ? undefined : { width, height: count * (height + columnGap) - columnGap };
}

function boxesOf(
  order: readonly number[],
  middle: readonly number[],
  placed: Placed,
  size: { width: number; height: number },
): ReadonlyMap<number, Box> {
  const boxes = new Map<number, Box>();
  for (const [at, id] of order.entries()) {
    const box = placed.ring[at];
    if (box !== undefined) boxes.set(id, box);
  }
  const { x = 0, y = 0 } = placed.middle ?? {};
  for (const [at, id] of middle.entries())
    boxes.set(id, { x, y: y + at * (size.height + columnGap), ...size });
  return boxes;
}

function waysOfEdges(edges: readonly Edge[], boxes: ReadonlyMap<number, Box>, { width, height }: Placed) {
  const wanted = edges.flatMap((edge) => {
    const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
    if (from === undefined || to === undefined) return [];
    const label = { width: labelWidth(edge), height: labelHeight };
    const weight = edge.kind === "broken" ? 2 : edge.kind === "relayed" ? 1 : 0;
    return [{ key: keyOf(edge), from, to, label, weight }];
  });
  return waysOf(wanted, { boxes: [...boxes.values()], size: { width, height } });
}

function kindOf(node: ListedNode, edges: readonly Edge[], cutPaths: number) {
  if (!node.online) return kindOfAway(node, cutPaths);
  const { id } = node;
  const edgesOfNode = edges.filter((edge) => isCurrent(edge) && (edge.from === id || edge.to === id));
  // A broken path marks the node that reports it (`from`), not its peer.
  if (edgesOfNode.some(({ kind, from }) => kind === "broken" && from === id)) return "need";
  return edgesOfNode.some(({ kind }) => kind === "relayed") ? "part" : "on";
}

type BoxProps = { slug: string; node: ListedNode; box: Box; kind: ReturnType<typeof kindOf>; isHub: boolean };

function NodeBox({ slug, node, box: { x, y, width, height }, kind, isHub }: BoxProps) {
  const about = roleOf(node) || (mapGroup(node) ?? "");
  const state = node.phone !== null ? "phone" : node.online ? "" : sinceOf(node);
  const words = `${node.name}: ${node.phone !== null ? "phone" : node.online ? "online" : "away"}`;
  return (
    <a href={pathOf(slug, "nodes", node.id)}>
      <title>{words}</title>
      <rect class={isHub ? "box hub" : "box"} x={x} y={y} width={width} height={height} rx="8" />
      <Mark kind={kind} x={x + 17} y={y + 21} />
      <text class="th" x={x + 30} y={y + 25}>
        {cut(node.name, width - 42 - 7 * state.length, thLetter)}
      </text>
      <text class="ts" x={x + width - 12} y={y + 25} text-anchor="end">
        {state}
      </text>
      <text class="tm" x={x + 13} y={y + 46}>
        {cut(node.ip_address, width - 24, tmLetter)}
      </text>
      <text class="ts" x={x + width - 12} y={y + 46} text-anchor="end">
        {cut(about, Math.max(0, width - 30 - tmLetter * node.ip_address.length), tsLetter)}
      </text>
    </a>
  );
}

/** For how long a node has been away: "3h"; "" if it was never seen. */
const sinceOf = ({ seenAt }: ListedNode) =>
  seenAt === null ? "" : ago(seenAt, now.value).replace(" ago", "");
