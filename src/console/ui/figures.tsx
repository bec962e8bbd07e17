// Figures of Overview: tiles with a number and its last hours, and the fleet, one square a node.

import type { ComponentChildren } from "preact";

type TileProps = {
  label: string;
  /** The number, and what it counts of: "274", "of 299". */
  value: string;
  of?: string | undefined;
  /** One line of facts. */
  facts?: ComponentChildren;
  href: string;
  children?: ComponentChildren;
};

/** `children`: the drawing beside the number. */
export const Tile = ({ label, value, of, facts, href, children }: TileProps) => (
  <a class="tile" href={href}>
    <span class="l">{label}</span>
    <span class="v">
      {value} {of === undefined ? null : <small>{of}</small>}
    </span>
    <span class="s">{facts}</span>
    {children}
  </a>
);

const width = 104;
const height = 36;

type SparkProps = {
  /** From the oldest to the newest, at equal distances; null where nothing is known. */
  values: readonly (number | null)[];
  /** The last hour is bad. */
  isBad?: boolean;
};

/** The line of a value. Its range is at least a tenth of the value, so that noise looks like noise. */
export function Spark({ values, isBad = false }: SparkProps) {
  const known = values.filter((each) => each !== null);
  const newest = known.at(-1);
  if (known.length < 2 || newest === undefined) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const range = Math.max(high - low, Math.abs(high) / 10, 1e-9);
  const base = (low + high - range) / 2;
  const x = (at: number) => ((at * width) / (values.length - 1)).toFixed(1);
  const y = (value: number) => (height - 4 - ((value - base) / range) * (height - 10)).toFixed(1);
  let line = "";
  let isDrawing = false;
  for (const [at, value] of values.entries()) {
    if (value !== null) line += `${isDrawing ? "L" : "M"}${x(at)} ${y(value)}`;
    isDrawing = value !== null;
  }
  const last = values.lastIndexOf(newest);
  const first = values.findIndex((each) => each !== null);
  const area = known.length === values.length ? `${line}V${height}H${x(first)}z` : undefined;
  return (
    <svg class={isBad ? "spark bad" : "spark"} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      {area === undefined ? null : <path class="area" d={area} />}
      <path d={line} />
      <circle cx={x(last)} cy={y(newest)} r="4" />
    </svg>
  );
}

/** How much of all: a bar. `share`: 0 to 1. */
export const Share = ({ share }: { share: number }) => (
  <svg class="spark" viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
    <rect class="track" y="16" width={width} height="6" rx="3" />
    <rect y="16" width={width * share} height="6" rx="3" />
  </svg>
);

/** Of a node in the fleet: filled, half, hollow, triangle. */
export type Square = "on" | "part" | "off" | "need";
export type Squares = { name: string; href: string; squares: readonly Square[] };

const letters: Readonly<Record<Square, string | undefined>> = {
  on: undefined,
  part: "p",
  off: "o",
  need: "x",
};

/** One square a node, by group. */
export const Fleet = ({ groups }: { groups: readonly Squares[] }) => (
  <div class="strip">
    {groups.map(({ name, href, squares }) => {
      const online = squares.filter((each) => each !== "off").length;
      return (
        <a key={name} href={href} title={`${name}: ${online} of ${squares.length} online`}>
          <span class="waffle" aria-hidden="true">
            {squares.map((each) => (
              <i class={letters[each]} />
            ))}
          </span>
          <span class="gname">
            <bdi>{name}</bdi>{" "}
            <span class="faint">
              {online}/{squares.length}
            </span>
          </span>
        </a>
      );
    })}
  </div>
);
