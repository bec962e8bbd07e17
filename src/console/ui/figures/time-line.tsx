// The time line of the CAs on Certificates.

import type { LineSpan } from "./line-span.ts";

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
  // Two lanes, because a next CA begins before the active one ends.
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
