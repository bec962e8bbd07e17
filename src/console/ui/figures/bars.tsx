// Counts over time as bars: those of Activity, whose columns are links, and those of Certificates with a mark.

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
