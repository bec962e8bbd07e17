// A column of times in a list.

import { html } from "../html.ts";
import { When } from "./parts.ts";
import type { Column } from "./rows.ts";

/** `at`: ISO 8601. `never`: words without a time. */
export function timeColumn<T>(
  key: string,
  title: string,
  at: (item: T) => string | null,
  { width = 1, never }: { width?: number; never?: (item: T) => string } = {},
): Column<T> {
  return {
    key,
    title,
    width,
    text: (item) => at(item) ?? "",
    cell: (item) => html`<${When} at=${at(item)} never=${never?.(item)} />`,
    compare: (a, b) => (at(a) ?? "").localeCompare(at(b) ?? ""),
  };
}
