// Widths of the columns of tables, for the command line and for `status`. Keep this file light: `status` loads it.

/** Stands between two columns. */
export const columnGap = "  ";
/** No column is made narrower than this, in characters. */
export const minColumnWidth = 8;

/**
 * The widths of the columns, in characters. `natural`: those of their texts. `width`: of the table; undefined: unlimited. Takes
 * from the widest column until the table fits, or until no column can be narrower: then the table is wider than `width`.
 */
export function fitColumns(natural: readonly number[], width: number | undefined): number[] {
  const widths = [...natural];
  if (width === undefined) return widths;
  const room = width - columnGap.length * (widths.length - 1);
  for (let surplus = widths.reduce((sum, each) => sum + each, 0) - room; surplus > 0; surplus--) {
    const widest = widths.indexOf(Math.max(...widths));
    if ((widths[widest] ?? 0) <= minColumnWidth) return widths;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}

/** The text, at most `width` characters wide; "…" stands for what is missing. Cuts between characters, so that none is halved. */
export function cutTo(text: string, width: number): string {
  if (Bun.stringWidth(text) <= width) return text;
  let shown = "";
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (Bun.stringWidth(shown + segment) > width - 1) break;
    shown += segment;
  }
  return `${shown}…`;
}
