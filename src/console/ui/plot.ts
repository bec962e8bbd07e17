// A plot over time. Loaded when the first one is shown.

import "../core.ts";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { html } from "../html.ts";

const height = 160;

type PlotProps = {
  /** What it shows, for those who do not see it. */
  label: string;
  /** Seconds since 1970, and a column of values for each line. Null is a gap. */
  columns: [number[], ...(number | null)[][]];
  /** Of the lines: a title, and the name of its colour in the style sheet. */
  lines: readonly (readonly [title: string, colour: string])[];
};

export function Plot({ label, columns, lines }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    let plot = draw(element, columns, lines);
    const again = () => {
      plot.destroy();
      plot = draw(element, columns, lines);
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
  }, [columns, lines]);
  return html`<div class="plot" role="img" aria-label=${label} ref=${place}></div>`;
}

function draw(element: HTMLElement, columns: PlotProps["columns"], lines: PlotProps["lines"]): UPlot {
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
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, _least, most) => [0, Math.max(1, most * 1.1)] } },
      axes: [
        axis,
        { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000] },
      ],
      series: [
        {},
        ...lines.map(([title, name]) => ({
          label: title,
          stroke: colour(name),
          width: 1.5,
          points: { show: columns[0].length < 20 },
        })),
      ],
    },
    columns,
    element,
  );
}
