// A plot over time. Loaded when the first one is shown.

import "../core.ts";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { exact, timeFormat, utc } from "../times.ts";
import { withGaps, type Columns } from "./gaps.ts";
import { Export } from "./tools.tsx";

const height = 160;

type PlotProps = {
  /** A text alternative of the plot. */
  label: string;
  columns: Columns;
  /** Each value stands for this time, in seconds. */
  everyS: number;
  /** First and last time of the axis, seconds since 1970, also without values. */
  range: readonly [number, number];
  /** The lines: a title, and the name of its colour in the style sheet. */
  lines: readonly (readonly [title: string, colour: string])[];
  /** The name of an export. */
  file: string;
};

export function Plot({ label, columns, everyS, range, lines, file }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const fresh = () => draw(element, { columns: withGaps(columns, everyS), range, lines });
    let plot = fresh();
    const again = () => {
      plot.destroy();
      plot = fresh();
    };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    const sizes = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    sizes.observe(element);
    return () => {
      scheme.removeEventListener("change", again);
      sizes.disconnect();
      plot.destroy();
    };
  }, [columns, range, lines]);
  const exported = lines.map(([title], at) => ({
    title,
    text: (of: number) => `${columns[at + 1]?.[of] ?? ""}`,
  }));
  return (
    <>
      <div class="plot" role="img" aria-label={label} ref={place} />
      <Export
        file={file}
        items={[...columns[0].keys()]}
        columns={[{ title: "Time", text: (of: number) => utc((columns[0][of] ?? 0) * 1000) }, ...exported]}
      />
    </>
  );
}

const dayS = 86_400;

/** Hours of a day, and days where one begins: in the language of dates and the zone of this browser. */
function timesOf(splits: readonly number[], everyS: number): string[] {
  const hour = timeFormat({ hour: "numeric", minute: "2-digit" });
  const day = timeFormat({ month: "short", day: "numeric" });
  return splits.map((split) => {
    const at = new Date(split * 1000);
    const isMidnight = at.getHours() === 0 && at.getMinutes() === 0;
    return (everyS >= dayS || isMidnight ? day : hour).format(at);
  });
}

/** Values that no line shows, because nothing is known before and after. */
function alone(values: readonly (number | null | undefined)[]): number[] {
  const isKnown = (at: number) => values[at] != null;
  return values.flatMap((_, at) => (isKnown(at) && !isKnown(at - 1) && !isKnown(at + 1) ? [at] : []));
}

function draw(
  element: HTMLElement,
  { columns, range, lines }: Pick<PlotProps, "columns" | "range" | "lines">,
): UPlot {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(`--${name}`);
  const axis = {
    stroke: colour("quiet"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 },
  };
  return new UPlot(
    {
      width: element.clientWidth,
      height,
      cursor: { y: false, drag: { x: false } },
      scales: {
        x: { range: () => [...range] },
        y: { range: (_, _least, most) => [0, Math.max(1, most * 1.1)] },
      },
      axes: [
        { ...axis, size: 32, space: 64, values: (_, splits, __, ___, everyS) => timesOf(splits, everyS) },
        { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000] },
      ],
      series: [
        { value: (_, at) => (at === null ? "--" : exact(at * 1000)) },
        ...lines.map(([title, name]) => ({
          label: title,
          stroke: colour(name),
          width: 1.5,
          points: { show: true, size: 4, filter: (_: UPlot, at: number) => alone(columns[at] ?? []) },
        })),
      ],
    },
    columns,
    element,
  );
}
