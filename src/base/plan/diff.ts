// Differences of two texts by lines.

/**
 * A unified diff: the changed lines with three lines of context. Empty if nothing differs; a missing newline at the end is a
 * difference. `maxCells`: if the numbers of lines between the first and the last change, multiplied, are more than this, all of
 * these lines count as changed, because the table to compare them would be too large.
 */
export function diff(before: string, after: string, maxCells = 4_000_000): string {
  const marked = compareLines(lines(before), lines(after), maxCells);
  /** Whether a line is changed, or within three lines of one that is: then it is shown. */
  const isShown = (at: number) => marked.slice(Math.max(0, at - 3), at + 4).some((line) => line[0] !== " ");
  const hunks: string[] = [];
  // How many lines of each text come before `at`.
  let [inBefore, inAfter] = [0, 0];
  for (let at = 0; at < marked.length;) {
    // A run of lines that are all shown, or all left out.
    const start = { at, inBefore, inAfter };
    while (at < marked.length && isShown(at) === isShown(start.at)) {
      if (marked[at]?.[0] !== "+") inBefore++;
      if (marked[at]?.[0] !== "-") inAfter++;
      at++;
    }
    if (!isShown(start.at)) continue;
    const ranges = `-${rangeOf(start.inBefore, inBefore)} +${rangeOf(start.inAfter, inAfter)}`;
    hunks.push(`@@ ${ranges} @@\n${marked.slice(start.at, at).join("\n")}\n`);
  }
  return hunks.join("");
}

/**
 * The lines from `start` up to `end`, counted from 0, as a unified diff names them: the first one, counted from 1, and how many. An empty
 * range names the line before it.
 */
const rangeOf = (start: number, end: number) => `${start === end ? start : start + 1},${end - start}`;

/** All lines of both texts, each with a space, "-" or "+" before it. */
function compareLines(a: readonly string[], b: readonly string[], maxCells: number): string[] {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  return [
    ...a.slice(0, head).map((line) => ` ${line}`),
    ...compareMiddle(a.slice(head, a.length - tail), b.slice(head, b.length - tail), maxCells),
    ...a.slice(a.length - tail).map((line) => ` ${line}`),
  ];
}

/** Compares by the longest common subsequence. */
function compareMiddle(a: readonly string[], b: readonly string[], maxCells: number): string[] {
  const width = b.length + 1;
  if (a.length * b.length > maxCells) return [...a.map((line) => `-${line}`), ...b.map((line) => `+${line}`)];
  const common = new Uint32Array((a.length + 1) * width);
  /** The length of the longest common subsequence of the lines from i and those from j on. */
  const commonFrom = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      common[i * width + j] =
        a[i] === b[j] ? commonFrom(i + 1, j + 1) + 1 : Math.max(commonFrom(i + 1, j), commonFrom(i, j + 1));
  const marked: string[] = [];
  // Where both ways keep as many lines, the deleted lines come first.
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      marked.push(` ${a[i++]}`);
      j++;
    } else if (j >= b.length || (i < a.length && commonFrom(i + 1, j) >= commonFrom(i, j + 1)))
      marked.push(`-${a[i++]}`);
    else marked.push(`+${b[j++]}`);
  }
  return marked;
}

/** A last line without a newline differs from one with it, and is shown as diff(1) does. */
function lines(text: string): string[] {
  const all = text.split("\n");
  const last = all.pop() ?? "";
  return last === "" ? all : [...all, `${last}\n\\ No newline at end of file`];
}
