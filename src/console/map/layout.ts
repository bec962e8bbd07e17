// Places the dots of the map: those of one cluster together, joined ones near each other. Works in small steps, so that
// the page stays usable, and keeps places, so that nothing jumps when a machine comes or goes.

import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import type { Graph } from "./graph.ts";

export type Place = { x: number; y: number };
type Moving = Place & { key: string; cluster: string; size: number };

/** One step of work, ms. */
const sliceMs = 12;

export const sizeOf = (machines: number) => 4 + Math.min(20, Math.sqrt(machines - 1));

/** `known`: places of the last layout. Returns undefined if `signal` ended it. */
export async function placesOf(
  { dots, edges }: Graph,
  known: ReadonlyMap<string, Place>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Place> | undefined> {
  const clusters = [...new Set(dots.map(({ cluster }) => cluster))].sort();
  const centre = new Map(clusters.map((name, at) => [name, onCircle(at, clusters.length, dots.length)]));
  const isNew = dots.some(({ key }) => !known.has(key));
  const moving = dots.map(({ key, cluster, machines }, at): Moving => {
    const near = centre.get(cluster) ?? { x: 0, y: 0 };
    // The golden angle: no two dots begin at one place.
    const begin = {
      x: near.x + 8 * Math.sqrt(at) * Math.cos(at * 2.4),
      y: near.y + 8 * Math.sqrt(at) * Math.sin(at * 2.4),
    };
    return { key, cluster, size: sizeOf(machines), ...(known.get(key) ?? begin) };
  });
  const places = () => new Map(moving.map(({ key, x, y }) => [key, { x, y }]));
  if (!isNew) return places();
  const degree = new Map<string, number>();
  for (const key of edges.flatMap(({ from, to }) => [from, to])) degree.set(key, (degree.get(key) ?? 0) + 1);
  const simulation = forceSimulation(moving)
    .force("apart", forceManyBody<Moving>().strength(-40).distanceMax(300))
    .force(
      "room",
      forceCollide<Moving>((dot) => dot.size + 6),
    )
    .force(
      "joined",
      forceLink<Moving, { source: string | Moving; target: string | Moving }>(
        edges.map(({ from, to }) => ({ source: from, target: to })),
      )
        .id(({ key }) => key)
        // The more paths a machine has, the less each pulls it out of its group.
        .strength(({ source, target }) => {
          const most = Math.max(degree.get(keyAt(source)) ?? 1, degree.get(keyAt(target)) ?? 1);
          return 0.05 / most;
        }),
    )
    .force("x", forceX<Moving>(({ cluster }) => centre.get(cluster)?.x ?? 0).strength(0.3))
    .force("y", forceY<Moving>(({ cluster }) => centre.get(cluster)?.y ?? 0).strength(0.3))
    .alpha(known.size === 0 ? 1 : 0.3)
    .stop();
  for (let sliceEnd = performance.now() + sliceMs; simulation.alpha() > simulation.alphaMin();) {
    simulation.tick();
    if (performance.now() < sliceEnd) continue;
    await new Promise((resolve) => setTimeout(resolve));
    if (signal.aborted) return undefined;
    sliceEnd = performance.now() + sliceMs;
  }
  return places();
}

/** The library replaces the key of a link's end by the dot. */
const keyAt = (end: string | Moving) => (typeof end === "string" ? end : end.key);

/** Clusters stand on an ellipse: pages are wider than high. One cluster stands in the middle. */
function onCircle(at: number, count: number, dots: number): Place {
  if (count === 1) return { x: 0, y: 0 };
  const radius = 60 + 16 * Math.sqrt(dots) + 10 * count;
  const angle = (2 * Math.PI * at) / count;
  return { x: 1.5 * radius * Math.cos(angle), y: radius * Math.sin(angle) };
}
