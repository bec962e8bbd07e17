// Tiles: a number with its label and facts, and beside it the line of its last hours, or a share.

import type { ComponentChildren } from "preact";

type TileProps = {
  label: string;
  /** The number, and what it counts of: "274", "of 299". */
  value: string;
  of?: string | undefined;
  /** One line of facts. */
  facts?: ComponentChildren;
  /** Where more about it stands. */
  href?: string;
  children?: ComponentChildren;
};

/** `children`: the drawing beside the number. */
export function Tile({ label, value, of, facts, href, children }: TileProps) {
  const inside = (
    <>
      <span class="l">{label}</span>
      <span class="v">
        {value} {of === undefined ? null : <small>{of}</small>}
      </span>
      <span class="s">{facts}</span>
      {children}
    </>
  );
  return href === undefined ? (
    <div class="tile">{inside}</div>
  ) : (
    <a class="tile" href={href}>
      {inside}
    </a>
  );
}

/** Of a sparkline, in the units of its drawing. */
const width = 104;
const height = 36;

type SparkProps = {
  /** From the oldest to the newest, at equal distances; null where nothing is known. */
  values: readonly (number | null)[];
  /** The last hour is bad. */
  isBad?: boolean;
};

/** More dots than these are one thick line. */
const maxDots = width / 2;

/** At most `most` values, each the mean of as many neighbours. The newest one is not averaged, because the tile says it in words. */
function averaged(values: readonly (number | null)[], most: number): readonly (number | null)[] {
  const size = Math.ceil(values.length / most);
  if (size <= 1) return values;
  const means = Array.from({ length: Math.ceil((values.length - 1) / size) }, (_, at) => {
    const known = values
      .slice(at * size, Math.min((at + 1) * size, values.length - 1))
      .filter((each) => each !== null);
    return known.length === 0 ? null : known.reduce((sum, each) => sum + each, 0) / known.length;
  });
  return [...means, values.at(-1) ?? null];
}

/** The line of a value. Its range is at least a tenth of the value, so that noise looks like noise. */
export function Spark({ values: all, isBad = false }: SparkProps) {
  const values = averaged(all, maxDots);
  const known = values.filter((each) => each !== null);
  const newest = known.at(-1);
  if (known.length < 2 || newest === undefined) return null;
  const low = Math.min(...known);
  const high = Math.max(...known);
  // The last number is for values that are all 0: a range of 0 would divide by it.
  const range = Math.max(high - low, Math.abs(high) / 10, 1e-9);
  const base = (low + high - range) / 2;
  const x = (at: number) => ((at * width) / (values.length - 1)).toFixed(1);
  // 4 below for half of the dot at the newest value, 6 above.
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
