// Tables and times as text, for `status` and `peers`. Loads nothing: the commands must start fast.

/** Lines with aligned columns; the first row is the head. */
export function textTable(rows: readonly (readonly string[])[]): string[] {
  const widths =
    rows[0]?.map((_, at) => rows.reduce((width, cells) => Math.max(width, (cells[at] ?? "").length), 0)) ??
    [];
  return rows.map((cells) =>
    cells
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

export function daysLeft(notAfter: string, now: number): string {
  const days = Math.floor((Date.parse(notAfter) - now) / 86_400_000);
  if (Number.isNaN(days)) return "-";
  return days < 0 ? "expired" : `${days} days left`;
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
