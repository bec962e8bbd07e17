// Figures of each server over the last day: lines over time, and the sums in words.

import { serversApi } from "../../api/servers.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import type { FunctionComponent } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { formatSize } from "../../base/quantities.ts";
import { lastDays } from "../days.ts";
import { useResource } from "../resource.ts";
import { exact } from "../times.ts";
import { Failure } from "../ui/parts.tsx";
import type { Columns } from "../ui/gaps.ts";
import type { Plot } from "../ui/plot.tsx";

type Point = SentOf<typeof serversApi.history>["hosts"][number]["points"][number];

const hourS = 3600;
const dayS = 24 * hourS;
const lines = [
  ["requests", "quiet"],
  ["check-ins", "good"],
] as const;

export function ServerHistory() {
  const { data, error } = useResource(apiPath(serversApi.history, {}), { isCalm: true });
  const [view, setView] = useState<{ Plot: FunctionComponent<Parameters<typeof Plot>[0]> } | undefined>(
    undefined,
  );
  useEffect(() => {
    // Without its file, the words above say the same.
    import("../ui/plot.tsx").then(
      ({ Plot }) => setView({ Plot }),
      () => undefined,
    );
  }, []);
  return (
    <>
      <h2>The last day</h2>
      {error === undefined ? null : <Failure error={error} />}
      {data?.hosts.length === 0 ? (
        <p class="quiet">
          Nothing was written yet; each server writes a row a minute, shown by five minutes.
        </p>
      ) : null}
      {(data?.hosts ?? []).map(({ host, points }) => (
        <OneHost key={host} host={host} points={points} everyS={data?.every_s ?? 300} Plot={view?.Plot} />
      ))}
    </>
  );
}

type HostProps = {
  host: string;
  points: readonly Point[];
  everyS: number;
  Plot: FunctionComponent<Parameters<typeof Plot>[0]> | undefined;
};

function OneHost({ host, points, everyS, Plot }: HostProps) {
  const [columns, range] = useMemo(() => {
    const drawn = columnsOf(points, everyS);
    const [from, to] = lastDays(1, Date.now(), drawn[0].at(-1));
    // Hours before the first start would look like an outage.
    return [drawn, [Math.max(from, Math.min(drawn[0][0] ?? from, to - hourS)), to] as const] as const;
  }, [points, everyS]);
  const first = columns[0][0] ?? 0;
  const words =
    (first > range[1] - dayS + everyS ? `since the start at ${exact(first * 1000)}: ` : "") +
    wordsOf(points, everyS);
  return (
    <>
      <h3>
        <bdi>{host}</bdi>
      </h3>
      <p class="quiet">{words}</p>
      <div class="plot-place">
        {Plot === undefined ? null : (
          <Plot
            label={`Requests and check-ins a minute: ${words}`}
            columns={columns}
            everyS={everyS}
            range={range}
            lines={lines}
            file={`${host}.csv`}
          />
        )}
      </div>
    </>
  );
}

/** Seconds, requests and check-ins a minute. */
function columnsOf(points: readonly Point[], everyS: number): Columns {
  const rates = (value: (point: Point) => number) => points.map((point) => (value(point) * 60) / everyS);
  return [
    points.map(({ at }) => Date.parse(at) / 1000),
    rates(({ requests }) => requests),
    rates(({ checkins }) => checkins),
  ];
}

function wordsOf(points: readonly Point[], everyS: number): string {
  const most = (values: readonly number[]) => Math.max(0, ...values);
  const sum = (values: readonly number[]) => values.reduce((one, other) => one + other, 0);
  const perMinute = (count: number) => Math.round((count * 60) / everyS);
  const times = points.flatMap(({ p99_ms }) => p99_ms ?? []);
  return [
    `at most ${perMinute(most(points.map(({ requests }) => requests)))} requests (grey) and ${perMinute(most(points.map(({ checkins }) => checkins)))} check-ins (green) a minute`,
    `${sum(points.map(({ errors }) => errors))} errors`,
    ...(times.length === 0 ? [] : [`99 of 100 answers within ${most(times)} ms`]),
    `at most ${most(points.map(({ waiting }) => waiting))} check-ins waiting`,
    `at most ${formatSize(most(points.map(({ memory_bytes }) => memory_bytes)))} of memory`,
  ].join(", ");
}
