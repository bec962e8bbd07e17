// The small network of Overview: a ring for each group, and lines where there are paths. The larger the group, the larger its
// ring; the part of the ring that is drawn strong is the share of its nodes that are online.

import { drawnOf, groupWord, onlineIn, pairFinder, pathsIn, type Group, type Pair } from "../map/groups.ts";
import { onEllipse, ringOrder, type Point } from "../map/places-on-ring.ts";

type NetworkProps = { groups: readonly Group[]; pairs: readonly Pair[] };
type Dot = Point & { group: Group; radius: number };

// All lengths are in units of the picture.
const width = 316;
const height = 148;
const centre = { x: width / 2, y: height / 2 + 2 };
const ellipse = { x: 102, y: 52 };
const letterWidth = 6;

export function Network({ groups, pairs }: NetworkProps) {
  // `hub`: the group that is mostly lighthouses, relays and routers, if there is one. It stands in the middle.
  const { hub, ring } = drawnOf(groups);
  const find = pairFinder(pairs);
  const { order } = ringOrder(ring, (a, b) => pathsOf(find(a.name, b.name)));
  // 80 by 24: the room of a ring with its name.
  const points = onEllipse(order.length, ellipse, { width: 80, height: 24 });
  // Radii grow with the root of the number of nodes, by at most 10, or 6 among more than seven rings.
  const largestRoot = Math.sqrt(Math.max(1, ...ring.map(({ nodes }) => nodes)));
  const unit = Math.min(0.85, (ring.length > 7 ? 6 : 10) / largestRoot);
  const dotOf = (group: Group, { x, y }: Point): Dot => ({
    group,
    x: centre.x + x,
    y: centre.y + y,
    radius: Math.min(14, Math.max(group === hub ? 7 : 4, 4 + unit * Math.sqrt(group.nodes))),
  });
  const origin = { x: 0, y: 0 };
  // One ring alone stands in the middle.
  const isAlone = order.length === 1 && hub === undefined;
  const dots = order.map((group, place) => dotOf(group, (isAlone ? undefined : points[place]) ?? origin));
  const middle = hub === undefined ? [] : [dotOf(hub, origin)];
  const lines = [...dots, ...middle].flatMap((from, place, all) =>
    all.slice(place + 1).flatMap((to) => {
      const pair = find(from.group.name, to.group.name);
      return pair === undefined || pathsOf(pair) === 0 ? [] : [{ from, to, pair }];
    }),
  );
  return (
    <svg class="draw" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={wordsOf(groups, pairs)}>
      {lines
        // Broken ones are drawn last, above the others.
        .toSorted((a, b) => a.pair.broken - b.pair.broken)
        .map(({ from, to, pair }) => {
          const line = `M${pointText(from)}L${pointText(to)}`;
          return (
            <g key={`${pair.from} ${pair.to}`}>
              <path class="spoke" stroke-width={from.group === hub || to.group === hub ? 1.5 : 4} d={line} />
              {pair.broken === 0 ? null : (
                <>
                  <path class="broken" d={line} />
                  <path
                    class="need"
                    d={`M${((from.x + to.x) / 2).toFixed(1)} ${((from.y + to.y) / 2 - 7).toFixed(1)}l7 12h-14z`}
                  />
                </>
              )}
            </g>
          );
        })}
      {[...dots, ...middle].map((dot) => (
        <Ring key={groupWord(dot.group.name)} {...dot} />
      ))}
    </svg>
  );
}

const pathsOf = (pair: Pair | undefined) => (pair === undefined ? 0 : pathsIn(pair));
const pointText = ({ x, y }: Point) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function Ring({ group, x, y, radius }: Dot) {
  // The name stands on the outer side of the ring.
  const isLeft = x < centre.x - 20;
  const length = 2 * Math.PI * radius;
  const share = group.nodes === 0 ? 0 : onlineIn(group) / group.nodes;
  const edge = x + (isLeft ? -1 : 1) * (radius + 8);
  const letters = Math.max(2, Math.floor((isLeft ? edge : width - edge) / letterWidth));
  const name = groupWord(group.name);
  return (
    <g>
      <title>{`${name}: ${onlineIn(group)} of ${group.nodes} online`}</title>
      <circle class="box" cx={x} cy={y} r={radius + 2} />
      <circle class="ring-track" cx={x} cy={y} r={radius} />
      <circle
        class="ring"
        cx={x}
        cy={y}
        r={radius}
        stroke-dasharray={`${(length * share).toFixed(1)} ${length.toFixed(1)}`}
        transform={`rotate(-90 ${pointText({ x, y })})`}
      />
      <text class="ts halo" x={edge} y={y + 4} text-anchor={isLeft ? "end" : "start"}>
        {name.length > letters ? `${name.slice(0, letters - 1)}…` : name}
      </text>
    </g>
  );
}

/** The same in words, the broken pairs by name. */
function wordsOf(groups: readonly Group[], pairs: readonly Pair[]): string {
  const broken = pairs.filter((pair) => pair.broken > 0);
  const named = broken.map(({ from, to }) => `${groupWord(from)} and ${groupWord(to)}`);
  const shares = groups.map((group) => `${groupWord(group.name)} ${onlineIn(group)} of ${group.nodes}`);
  return `Online: ${shares.join(", ")}. ${broken.length === 0 ? "No path is broken" : `Broken paths between ${named.join(", ")}`}.`;
}
