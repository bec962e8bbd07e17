// The last seven days by hours: the bars above the page Activity. Pure.

import type { EventHour } from "../../api/events.ts";
import { dayOf } from "../words/ago.ts";
import { isFailure } from "./event-filter.ts";

/** Hours that one press on the week chooses: a single one would be too narrow for a finger. */
export const pressHours = 6;
const weekDays = 7;

/** `place`: from the beginning of the week, in hours of the browser's zone. */
export type WeekHour = { place: number; count: number; failures: number };
export type WeekDay = {
  /** Its beginning, in ms. */
  start: number;
  /** The words of the address for each part of it, and what happened then. */
  spans: readonly { from: string; to: string; count: number; failures: number }[];
};

/** The last seven days, today the last one, with the hours in which something happened. */
export function weekOf(hours: readonly EventHour[], now: number): { bars: WeekHour[]; days: WeekDay[] } {
  const today = new Date(now);
  const [year, month, date] = [today.getFullYear(), today.getMonth(), today.getDate()];
  const startOf = (day: number, hour = 0) => new Date(year, month, date + day - weekDays + 1, hour);
  const starts = Array.from({ length: weekDays }, (_, day) => startOf(day).getTime());
  const bars = hours.flatMap(({ at, count, types }): WeekHour[] => {
    const time = Date.parse(at);
    const day = starts.findLastIndex((start) => start <= time);
    if (day === -1 || time >= startOf(weekDays).getTime()) return [];
    const failed = Object.entries(types).map(([type, of]) => (isFailure(type) ? of : 0));
    return [{ place: day * 24 + new Date(time).getHours(), count, failures: sum(failed) }];
  });
  const word = (at: Date) => `${dayOf(at.getTime())}T${`${at.getHours()}`.padStart(2, "0")}`;
  const days = starts.map((start, day) => ({
    start,
    spans: Array.from({ length: 24 / pressHours }, (_, at) => {
      const first = day * 24 + at * pressHours;
      const within = bars.filter(({ place }) => place >= first && place < first + pressHours);
      return {
        from: word(startOf(day, at * pressHours)),
        to: word(startOf(day, (at + 1) * pressHours)),
        count: sum(within.map(({ count }) => count)),
        failures: sum(within.map((each) => each.failures)),
      };
    }),
  }));
  return { bars, days };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((one, other) => one + other, 0);
