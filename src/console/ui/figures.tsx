// Figures: tiles with a number and its last hours, counts over time, and the fleet, one square a node.

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

/** All bars, in the units of their drawing. */
const barsWidth = 1008;
const barHeight = 40;
/** The least height of a bar with a count. */
const leastBar = 2;

export type Bar = {
  /** From 0. */
  place: number;
  count: number;
  /** Of the count: drawn in red. */
  failures: number;
};
/** A part of the drawing that can be pressed. */
export type BarLink = { href: string; words: string; isOn: boolean };

type BarsProps = {
  label: string;
  bars: readonly Bar[];
  /** How many bars have room. */
  places: number;
  /** Over the bars lie columns of equal width, each with its links and, below it, its title. */
  columns: readonly { title: string; links: readonly BarLink[] }[];
};

/** Counts over time. Only one link can be reached with the tabulator; arrows go from there to the others. */
export function Bars({ label, bars, places, columns }: BarsProps) {
  // Heights follow the root of a count: otherwise one busy hour would leave nothing of the others.
  const most = Math.sqrt(Math.max(...bars.map(({ count }) => count), 1));
  const step = barsWidth / places;
  const heightOf = (count: number) =>
    count === 0 ? 0 : Math.max(leastBar, (Math.sqrt(count) * barHeight) / most);
  const rect = (place: number, count: number, kind?: string) => (
    <rect
      key={`${place}${kind}`}
      class={kind}
      x={place * step}
      y={barHeight - heightOf(count)}
      width={step - 1.5}
      height={heightOf(count)}
      rx="1"
    />
  );
  const links = columns.flatMap((each) => each.links);
  /** The link for the tabulator: the chosen one, or the last with words. */
  const tabStop = Math.max(
    links.findIndex(({ isOn }) => isOn),
    links.findLastIndex(({ words }) => words !== ""),
    0,
  );
  const press = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move === undefined) return;
    const all = [...event.currentTarget.querySelectorAll("a")];
    all[all.findIndex((each) => each === document.activeElement) + move]?.focus();
    event.preventDefault();
  };
  let place = -1;
  return (
    <section class="hours no-phone" aria-label={label} onKeyDown={press}>
      <svg
        class="hist"
        viewBox={`0 0 ${barsWidth} ${barHeight}`}
        preserveAspectRatio="none"
        aria-hidden="true"
      >
        {bars.map(({ place, count }) => rect(place, count))}
        {bars.map(({ place, failures }) => (failures === 0 ? null : rect(place, failures, "f")))}
      </svg>
      {columns.map((column) => (
        <div key={column.title}>
          {column.links.map(({ href, words, isOn }) => {
            place++;
            return (
              <a
                key={href}
                href={href}
                title={words}
                aria-label={words}
                aria-current={isOn ? "true" : undefined}
                tabindex={place === tabStop ? 0 : -1}
              />
            );
          })}
          <span>{column.title}</span>
        </div>
      ))}
    </section>
  );
}

type HistogramProps = {
  label: string;
  counts: readonly number[];
  /** Words below a count, by its place from 0. */
  ticks: Readonly<Record<number, string>>;
  /** A line: where, as a share of the width (0 to 1), and what it means. */
  mark: { at: number; words: string };
};

/** Counts at equal distances, each with its number. */
export function Histogram({ label, counts, ticks, mark }: HistogramProps) {
  const most = Math.max(...counts, 1);
  return (
    <div class="histogram" role="img" aria-label={label}>
      {counts.map((count, place) => (
        <span key={place}>
          <small>{count === 0 ? "" : count}</small>
          <i style={{ height: `${Math.max(1, (count * barHeight * 2) / most)}px` }} />
          <small>{ticks[place]}</small>
        </span>
      ))}
      <b style={{ left: `${mark.at * 100}%` }}>
        <small>{mark.words}</small>
      </b>
    </div>
  );
}

/** `kind`: how it is drawn; what is `planned` does not exist yet. Times are in ms since 1970. */
export type LineSpan = {
  key: string;
  kind: "active" | "former" | "next" | "planned";
  from: number;
  to: number;
  words: string;
};

type TimeLineProps = {
  label: string;
  rows: readonly { title: string; spans: readonly LineSpan[] }[];
  from: number;
  to: number;
  now: number;
};

/** Spans of time, by rows, with the years and today. */
export function TimeLine({ label, rows, from, to, now }: TimeLineProps) {
  const share = (at: number) => `${((Math.min(Math.max(at, from), to) - from) / (to - from)) * 100}%`;
  const firstYear = new Date(from).getFullYear() + 1;
  const years = Array.from({ length: new Date(to).getFullYear() - firstYear + 1 }, (_, at) => firstYear + at);
  const isBelow = ({ kind }: LineSpan) => kind === "next" || kind === "planned";
  return (
    <div class="time-line" role="img" aria-label={label}>
      <div class="years">
        {years.map((year) => (
          <small key={year} style={{ left: share(new Date(year, 0).getTime()) }}>
            {year}
          </small>
        ))}
        <b style={{ left: share(now) }}>
          <small>today</small>
        </b>
      </div>
      {rows.map(({ title, spans }) => (
        <div key={title} class="row">
          <b>{title}</b>
          {[false, true].map((below) => {
            const lane = spans.filter((span) => isBelow(span) === below);
            return lane.length === 0 ? null : (
              <div key={`${below}`} class="lane">
                {lane.map((span) => (
                  <span
                    key={span.key}
                    class={span.kind}
                    title={span.words}
                    style={{ left: share(span.from), right: `calc(100% - ${share(span.to)})` }}
                  >
                    {span.words}
                  </span>
                ))}
              </div>
            );
          })}
        </div>
      ))}
    </div>
  );
}

/**
 * The nodes of a group: how many are online; and by how they are drawn: `on` is well, `part` has a relayed path, `need` needs an
 * administrator, `off` is away.
 */
export type FleetGroup = {
  name: string;
  href: string;
  online: number;
  on: number;
  part: number;
  need: number;
  off: number;
};

const kinds = ["need", "part", "on", "off"] as const;
/** The class of a square. */
const squareOf = { need: "x", part: "p", on: undefined, off: "o" };
/** More squares cannot be told apart, and take too long to draw. */
const maxSquares = 1500;

/** How many nodes a square stands for, so that all fit. */
export const perSquare = (groups: readonly FleetGroup[]): number =>
  Math.ceil(groups.reduce((sum, group) => sum + allIn(group), 0) / maxSquares) || 1;
const allIn = ({ on, part, need, off }: FleetGroup) => on + part + need + off;

/** One square a node, by group: what needs somebody first. A square of many nodes is as bad as its kind, however few they are. */
export function Fleet({ groups }: { groups: readonly FleetGroup[] }) {
  const per = perSquare(groups);
  return (
    <div class="strip">
      {groups.map((group) => {
        const { online } = group;
        const all = allIn(group);
        return (
          <a key={group.name} href={group.href} title={`${group.name}: ${online} of ${all} online`}>
            <span class="waffle" aria-hidden="true">
              {kinds.map((kind) =>
                Array.from({ length: Math.ceil(group[kind] / per) }, (_, at) => (
                  <i key={`${kind}${at}`} class={squareOf[kind]} />
                )),
              )}
            </span>
            <span class="gname">
              <bdi class="cut">{group.name}</bdi>{" "}
              <span class="faint">
                {online}/{all}
              </span>
            </span>
          </a>
        );
      })}
    </div>
  );
}
