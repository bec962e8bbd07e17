// Tables and times as text, for `status` and `peers`. Loads next to nothing: the commands must start fast.

import { countOf } from "../../base/quantities.ts";
import { cutTo, fitColumns, columnGap } from "../../base/columns.ts";

/** Lines with aligned columns; the first row is the head. `width`: of the terminal; undefined: as wide as the text. */
export function textTable(rows: readonly (readonly string[])[], width?: number): string[] {
  const [head = []] = rows;
  const natural = head.map((_, at) => Math.max(...rows.map((cells) => Bun.stringWidth(cells[at] ?? ""))));
  const widths = fitColumns(natural, width);
  return rows.map((cells) =>
    cells
      .map((cell, at) => {
        const cut = cutTo(cell, widths[at] ?? 0);
        return cut + " ".repeat((widths[at] ?? 0) - Bun.stringWidth(cut));
      })
      .join(columnGap)
      .trimEnd(),
  );
}

export function daysLeft(notAfter: string, now: number): string {
  const leftMs = Date.parse(notAfter) - now;
  if (Number.isNaN(leftMs)) return "-";
  return leftMs < 0 ? "expired" : `${daysOrLess(leftMs)} left`;
}

/** Certificates of ephemeral nodes live for an hour: "0 days" would look like an end. */
function daysOrLess(ms: number): string {
  const minutes = Math.floor(ms / 60_000);
  if (minutes >= 1440) return countOf(Math.floor(minutes / 1440), "day");
  if (minutes >= 60) return countOf(Math.floor(minutes / 60), "hour");
  return countOf(minutes, "minute");
}

/** The two largest units: "3d 4h", "12m 5s". */
export function roughly(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "m"],
    [whole % 60, "s"],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  const shown = first < 0 ? parts.slice(-1) : parts.slice(first, first + 2);
  return shown.map(([count, unit]) => `${count}${unit}`).join(" ");
}
