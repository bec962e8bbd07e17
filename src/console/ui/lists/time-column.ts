// A column of times in a list.

import { utc } from "../../words/times.ts";
import { moment } from "../parts.tsx";
import type { Column } from "./rows.tsx";

/** `at`: ISO 8601, or ms since 1970; those without come last. `never`: words without a time. */
export function timeColumn<T>(
  key: string,
  title: string,
  at: (item: T) => string | number | null,
  { width = 1, never }: { width?: number; never?: (item: T) => string } = {},
): Column<T> {
  const msOf = (item: T) => {
    const time = at(item);
    return time === null ? null : Number(new Date(time));
  };
  const isEmpty = (item: T) => at(item) === null;
  return {
    key,
    title,
    width,
    text: (item) => (isEmpty(item) ? "" : utc(msOf(item) ?? 0)),
    cell: (item) => moment(msOf(item), never?.(item)),
    compare: (a, b) => (msOf(a) ?? 0) - (msOf(b) ?? 0),
    isEmpty,
    // Times change with every check-in: the list does not mark that.
    isRestless: true,
  };
}
