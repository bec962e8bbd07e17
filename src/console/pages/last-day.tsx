// The last day of a server: its figures with their lines, and the rest in words.

import { formatSize } from "../../base/quantities.ts";
import { evenly, lastDays } from "../words/days.ts";
import { exact } from "../words/times.ts";
import { Spark, Tile } from "../ui/figures/tile.tsx";
import type { Point } from "./server-figures.ts";

const hourS = 3600;
const dayS = 24 * hourS;

/** `everyS`: the time that each point stands for. */
type LastDayProps = { points: readonly Point[]; everyS: number };

export function LastDay({ points, everyS }: LastDayProps) {
  const newest = points.at(-1);
  const secondsOf = (point: Point | undefined) => Date.parse(point?.at ?? "") / 1000;
  const [from, to] = lastDays(1, Date.now(), secondsOf(newest));
  // Hours before the first start would look like an outage.
  const first = secondsOf(points[0]);
  const start = Math.max(from, Math.min(first, to - hourS));
  // A place for each step of the day, also for those without a point.
  const places = evenly(points, everyS, [start, to]);
  const most = (value: (point: Point) => number | null) =>
    Math.max(0, ...points.map((point) => value(point) ?? 0));
  const tile = (label: string, value: (point: Point) => number | null, say: (value: number) => string) => {
    const shown = newest === undefined ? null : value(newest);
    return (
      <Tile label={label} value={shown === null ? "–" : say(shown)} facts={`at most ${say(most(value))}`}>
        <Spark values={places.map((point) => (point === undefined ? null : value(point)))} />
      </Tile>
    );
  };
  const perMinute = (count: number) => `${Math.round((count * 60) / everyS)}`;
  const errors = points.reduce((sum, each) => sum + each.errors, 0);
  const began = first > to - dayS + everyS ? `, since the start at ${exact(first * 1000)}` : "";
  return (
    <>
      <div class="tiles">
        {tile("Requests a minute", ({ requests }) => requests, perMinute)}
        {tile("Check-ins a minute", ({ checkins }) => checkins, perMinute)}
        {tile(
          "99 of 100 answers within",
          ({ p99_ms }) => p99_ms,
          (ms) => `${ms} ms`,
        )}
        {tile("Memory", ({ memory_bytes }) => memory_bytes, formatSize)}
      </div>
      <div class="in">
        <p class="quiet">
          The last day{began}: at most {perMinute(most(({ requests }) => requests))} requests a minute,{" "}
          {errors} errors, at most {most(({ waiting }) => waiting)} check-ins waiting
        </p>
      </div>
    </>
  );
}
