// The map as SVG. It is one picture for screen readers, which have the table beside it.

import type { VNode } from "preact";
import { slug } from "../me.ts";
import { go, pathOf, setQuery } from "../router.ts";
import { exact } from "../times.ts";
import { rank, type Dot, type Edge, type Graph } from "./graph.ts";
import { placeLabels } from "./labels.ts";
import { sizeOf, type Place } from "./layout.ts";

/** With more dots, only lighthouses and routers have their name beside them; the others show it under the pointer. */
const maxLabels = 60;
/** Pixels around the dots. */
const margin = 40;

/** `time`: how one is written. */
export function wordsOf({ kind, pairs, relays, rttMs, oldAt }: Edge, time = exact): string {
  const by = relays.length === 0 ? "" : ` by ${relays.join(", ")}`;
  const trip = rttMs === undefined || kind === "broken" ? "" : `, ${rttMs} ms`;
  const end = oldAt === undefined ? trip : `, as reported ${time(oldAt)}`;
  return `${pairs === 1 ? "" : `${pairs} paths `}${kind}${by}${end}`;
}

/** Problems are drawn above the rest, and many good paths do not hide the dots. */
const leastOpacity = { direct: 0.1, relayed: 0.5, broken: 1 } as const;
const opacityOf = ({ kind, oldAt }: Edge, count: number) =>
  oldAt === undefined ? Math.min(1, Math.max(leastOpacity[kind], 60 / count)) : leastOpacity[kind] / 2;

type DrawingProps = { graph: Graph; places: ReadonlyMap<string, Place>; label: string };

export function Drawing({ graph, places, label }: DrawingProps) {
  const { edges, isGrouped } = graph;
  // Machines that came a moment ago have no place yet.
  const dots = graph.dots.filter(({ key }) => places.has(key));
  if (dots.length === 0) return null;
  const labels = new Map(dots.map((dot) => [dot.key, dot.label]));
  const all = dots.flatMap(({ key }) => places.get(key) ?? []);
  const [left, right] = ends(all.map(({ x }) => x));
  const [top, bottom] = ends(all.map(({ y }) => y));
  // Few machines are not drawn larger than many.
  const [width, height] = [Math.max(480, right - left), Math.max(240, bottom - top)];
  // Names, and the margin that they need, have the same size on a phone, where the drawing is small.
  const unit = Math.max(1, width / (shownWidth() - 2 * margin), height / (shownHeight() - 2 * margin));
  const around = margin * unit;
  const box = [
    (left + right - width) / 2 - around,
    (top + bottom - height) / 2 - around,
    width + 2 * around,
    height + 2 * around,
  ];
  return (
    <svg
      class="map"
      role="img"
      aria-label={label}
      viewBox={box.map(Math.round).join(" ")}
      style={{ "--unit": `${unit}px` }}
    >
      {edges
        .toSorted((a, b) => rank[a.kind] - rank[b.kind])
        .map((edge) => {
          const [from, to] = [places.get(edge.from), places.get(edge.to)];
          if (from === undefined || to === undefined || edge.from === edge.to) return null;
          const title = `${labels.get(edge.from)} – ${labels.get(edge.to)}: ${wordsOf(edge)}`;
          return (
            <line
              key={`${edge.from} ${edge.to} ${edge.kind}`}
              class={edge.kind}
              x1={from.x}
              y1={from.y}
              x2={to.x}
              y2={to.y}
              stroke-opacity={opacityOf(edge, edges.length)}
              stroke-width={(edge.kind === "broken" ? 2 : 1) + Math.min(6, Math.log2(edge.pairs))}
            >
              <title>{title}</title>
            </line>
          );
        })}
      {dots.map((dot) => {
        const place = places.get(dot.key);
        if (place === undefined) return null;
        const open = () =>
          dot.id === undefined
            ? setQuery({ group: dot.cluster })
            : go(pathOf(slug.value ?? "", "machines", dot.id));
        return (
          <g key={dot.key} class={`dot ${dot.isOnline ? "on" : "off"}`} onClick={open}>
            <title>{`${dot.label}: ${dot.shape === "machine" ? "" : `${dot.shape}, `}${dot.isOnline ? "online" : "away"}`}</title>
            <path d={outline(dot, place)} />
          </g>
        );
      })}
      {names(dots, places, unit, isGrouped)}
    </svg>
  );
}

/** How wide the page has it, in pixels. */
const shownWidth = () => Math.max(280, (document.getElementById("content")?.clientWidth ?? 1048) - 48);

/** See `.map` in style.css. */
const shownHeight = () => Math.max(280, 0.7 * innerHeight);

const clusterSize = 14;
const nameSize = 11;

/** The names of groups, then of lighthouses and routers, then of machines if they are few. */
function names(
  dots: readonly Dot[],
  places: ReadonlyMap<string, Place>,
  unit: number,
  isGrouped: boolean,
): VNode[] {
  const at = (dot: Dot) => {
    const { x, y } = places.get(dot.key) ?? { x: 0, y: 0 };
    const size = sizeOf(dot.machines) + (dot.shape === "lighthouse" ? 3 : 0);
    return { key: dot.key, text: short(dot.label), x, y, size };
  };
  const all = dots.map(at);
  const few = isGrouped || dots.length <= maxLabels;
  const special = dots.filter(({ shape }) => shape !== "machine").map(at);
  const rest = few ? dots.filter(({ shape }) => shape === "machine").map(at) : [];
  const clusters = isGrouped ? [] : clusterNames(dots, places, unit);
  const taken = clusters.map(({ text, x, y }) => {
    const size = clusterSize * unit;
    const wide = text.length * size * 0.6;
    return { x: x - wide / 2, y: y - size, width: wide, height: size };
  });
  const labels = placeLabels([...special, ...rest], all, nameSize * unit, taken);
  return [
    ...clusters.map(({ key, text, x, y }) => (
      <text key={key} class="cluster" x={x} y={y} text-anchor="middle">
        {text}
      </text>
    )),
    ...labels.map(({ key, text, x, y, anchor }) => (
      <text key={`name ${key}`} x={x} y={y} text-anchor={anchor}>
        {text}
      </text>
    )),
  ];
}

/** The name of each group above its dots. */
function clusterNames(dots: readonly Dot[], places: ReadonlyMap<string, Place>, unit: number) {
  const clusters = Map.groupBy(dots, ({ cluster }) => cluster);
  if (clusters.size === 1) return [];
  return [...clusters].map(([name, members]) => {
    const all = members.flatMap(({ key }) => places.get(key) ?? []);
    const [left, right] = ends(all.map(({ x }) => x));
    const [top] = ends(all.map(({ y }) => y));
    return { key: `group ${name}`, text: short(name), x: (left + right) / 2, y: top - 8 - 4 * unit };
  });
}

const short = (label: string) => (label.length > 24 ? `${label.slice(0, 23)}…` : label);

function ends(values: readonly number[]): [number, number] {
  return [Math.min(...values, Number.POSITIVE_INFINITY), Math.max(...values, Number.NEGATIVE_INFINITY)];
}

/** A circle, a diamond for lighthouses, a square for routers. */
function outline({ shape, machines }: Dot, { x, y }: Place): string {
  const r = sizeOf(machines);
  if (shape === "lighthouse")
    return `M${x} ${y - r - 3}l${r + 3} ${r + 3}l${-r - 3} ${r + 3}l${-r - 3} ${-r - 3}z`;
  if (shape === "router") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}
