// Widths of the columns of tables, for the command line and for `status`. Keep this file light: `status` loads it.

export const gap = "  ";
/** Columns are not made narrower than this many characters. The last one may be "…": text is missing. */
export const narrowest = 8;

/** Takes from the widest column until the table fits. */
export function fit(natural: readonly number[], width: number | undefined): number[] {
  const widths = [...natural];
  if (width === undefined) return widths;
  const room = width - gap.length * (widths.length - 1);
  for (let surplus = widths.reduce((sum, each) => sum + each, 0) - room; surplus > 0; surplus--) {
    const widest = widths.indexOf(Math.max(...widths));
    if ((widths[widest] ?? 0) <= narrowest) return widths;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}

/** Cuts at characters, so that none is halved. */
export function cutTo(text: string, width: number): string {
  if (Bun.stringWidth(text) <= width) return text;
  let shown = "";
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (Bun.stringWidth(shown + segment) > width - 1) break;
    shown += segment;
  }
  return `${shown}…`;
}
