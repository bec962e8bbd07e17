// The parts of the picture of groups: lines and bands between groups, their labels, and the boxes.

import { pathOfCurve, type Way } from "./band-ways.ts";
import { cut } from "./group-boxes.ts";
import { groupWord, onlineIn, pairWords, pathsIn, type Group, type Pair } from "./groups.ts";
import { Names, Squares, type Square } from "./node-squares.tsx";
import { groupLink } from "./group-link.ts";
import { centreOf, type Box, type Point } from "./places-on-ring.ts";
import { msWords } from "../words/numbers.ts";
import { heatLevel } from "./heat.ts";

export const labelHeight = 20;

export const dimmed = (name: string, isDim: boolean) => `${name}${isDim ? " dim" : ""}`;
export const point = ({ x, y }: Point) => `${Math.round(10 * x) / 10} ${Math.round(10 * y) / 10}`;

/** "116 · 41 ms": the number of paths, and the median of their round trips. */
export const labelOf = (pair: Pair) =>
  `${pathsIn(pair)}${pair.rtt_ms_median === null ? "" : ` · ${msWords(pair.rtt_ms_median)} ms`}`;
/** With room for the triangle of broken paths. */
export const labelWidth = (pair: Pair) => 16 + 6 * labelOf(pair).length + (pair.broken > 0 ? 18 : 0);

const widthOf = (pair: Pair) => 1.5 + 1.15 * Math.log2(Math.max(1, pathsIn(pair)));

type SpokeProps = { pair: Pair; ends: (Box | undefined)[]; isDim: boolean; href: string };

/** A line between the hub and a group of the ring. */
export function Spoke({ pair, ends: [a, b], isDim, href }: SpokeProps) {
  if (a === undefined || b === undefined) return null;
  const line = `M${point(centreOf(a))}L${point(centreOf(b))}`;
  return (
    <a href={href}>
      <title>{pairWords(pair)}</title>
      <path class="hit" d={line} />
      <path class={dimmed("spoke", isDim)} stroke-width="3" d={line} />
    </a>
  );
}

type BandProps = { pair: Pair; way: Way | undefined; isDim: boolean; href: string };

/** A band between two groups of the ring. Screen readers and keys use its label; without a label, the band itself is the link. */
export function Band({ pair, way, isDim, href }: BandProps) {
  if (way === undefined) return null;
  const line = pathOfCurve(way.curve);
  const width = widthOf(pair);
  // Shade 1 is nearly the color of the ground: a line would not be seen.
  const heat = pair.rtt_ms_median === null ? "spoke" : `heat-${Math.max(2, heatLevel(pair.rtt_ms_median))}`;
  const hasLabel = way.label !== undefined && !isDim;
  return (
    <a href={href} {...(hasLabel ? { "aria-hidden": "true", tabindex: -1 } : {})}>
      <title>{pairWords(pair)}</title>
      <path class="hit" d={line} />
      <path class="gap" stroke-width={width + 5} d={line} />
      <path class={dimmed(`band ${heat}`, isDim)} stroke-width={width} d={line} />
      {pair.relayed === 0 ? null : (
        <path class={dimmed("relay", isDim)} d={pathOfCurve(way.curve, width / 2 + 3)} />
      )}
    </a>
  );
}

/** `at`: the centre. */
type LabelProps = { pair: Pair; at: Point; href: string; isHot: boolean };

export function Label({ pair, at, href, isHot }: LabelProps) {
  const width = labelWidth(pair);
  const hasBroken = pair.broken > 0;
  return (
    <a href={href}>
      <title>{pairWords(pair)}</title>
      {/* Not seen, and higher than the label: a finger needs 24 px. */}
      <rect class="hit-area" x={at.x - width / 2} y={at.y - 12} width={width} height="24" />
      <rect
        class={`lab${hasBroken ? " ill" : ""}${isHot ? " hot" : ""}`}
        x={at.x - width / 2}
        y={at.y - labelHeight / 2}
        width={width}
        height={labelHeight}
        rx="10"
      />
      {hasBroken ? <path class="need" d={`M${at.x - width / 2 + 14} ${at.y - 5}l5 9h-10z`} /> : null}
      <text class="ts" x={at.x + (hasBroken ? 8 : 0)} y={at.y + 4} text-anchor="middle">
        {labelOf(pair)}
      </text>
    </a>
  );
}

/** `pitch`: the distance of squares. `isDim`: a pair is selected that this group is not of; `isHot`: it is of that pair. */
type BoxProps = {
  slug: string;
  group: Group;
  box: Box;
  squares: readonly Square[];
  pitch: number;
  isHub: boolean;
  isDim: boolean;
  isHot: boolean;
};

export function GroupBox({ slug, group, box, squares, pitch, isHub, isDim, isHot }: BoxProps) {
  const { x, y, width, height } = box;
  const name = groupWord(group.name);
  const count = `${onlineIn(group)}/${group.nodes}`;
  const words = `${name}: ${onlineIn(group)} of ${group.nodes} online`;
  const hasNames = isHub && squares.some((square) => square.name !== undefined);
  return (
    <a class={isDim ? "dim" : undefined} href={groupLink(slug, group.name)}>
      <title>{words}</title>
      <rect
        class={`box${isHub ? " hub" : ""}${isHot ? " hot" : ""}`}
        x={x}
        y={y}
        width={width}
        height={height}
        rx="8"
      />
      <text class="th" x={x + 12} y={y + 20}>
        {cut(name, width - 30 - 6 * count.length)}
      </text>
      <text class="ts" x={x + width - 12} y={y + 20} text-anchor="end">
        {count}
      </text>
      {hasNames ? (
        <Names x={x} y={y} width={width} squares={squares} />
      ) : (
        <Squares x={x} y={y} squares={squares} pitch={pitch} />
      )}
      {!hasNames && group.broken > 0 ? (
        <text class="ill-name" x={x + 12} y={y + height - 12}>
          {cut(brokenWords(group, squares), width - 16, 6)}
        </text>
      ) : null}
    </a>
  );
}

/** "web-5 broken", "web-5 and 3 more broken". */
function brokenWords({ broken }: Group, squares: readonly Square[]): string {
  const first = squares.find(({ kind, name }) => kind === "need" && name !== undefined)?.name;
  if (first === undefined) return `${broken} broken`;
  return broken > 1 ? `${first} and ${broken - 1} more broken` : `${first} broken`;
}
