// What a box of the map holds: the squares of a group's nodes, or their names, and how large it is.

import type { Size } from "./places-on-ring.ts";

/**
 * What a node is, in the order of the squares: `need` (a triangle) needs an administrator, `part` (half) has a relayed path, `on`
 * (filled) is well, `off` (hollow) is away.
 */
export const squareKinds = ["need", "part", "on", "off"] as const;
export type SquareKind = (typeof squareKinds)[number];

/** The heights of a box above and below its squares, and of a line of text, in units of the picture. */
const head = 34;
const foot = 14;
const lineHeight = 20;
/** A box is at least so wide, and its title makes it no wider than that. */
const leastWidth = 96;
const mostWidthOfTitle = 240;
/** A box with names has at most so many; one more if that is the last. */
export const maxNames = 6;

/** How many columns so many squares have: about twice as wide as high. */
export const columnsOf = (squares: number): number => Math.max(1, Math.round(Math.sqrt(1.85 * squares)));

/** The distance from one square to the next: the more squares the largest group has, the smaller. */
export function pitchOf(largest: number): number {
  return largest <= 125 ? 11 : largest <= 350 ? 8 : 5;
}
/** Of the whole picture. With more nodes, a square stands for several. */
export const maxSquares = 1500;

/**
 * The size of a box with squares, which have 12 units on each side. `title`: the letters of name and count, each 7 units wide.
 * `hasLine`: a line of text below the squares. The 2: after the last square there is no gap.
 */
export function groupSize(squares: number, pitch: number, title: number, hasLine: boolean): Size {
  const columns = columnsOf(squares);
  const width = Math.max(leastWidth, 24 + columns * pitch - 2, Math.min(mostWidthOfTitle, 36 + 7 * title));
  const rows = Math.max(1, Math.ceil(squares / columns));
  return { width, height: head + rows * pitch - 2 + foot + (hasLine ? lineHeight : 0) };
}

/** The size of a box with the names of `count` nodes. */
export const namesSize = (count: number): Size => ({
  width: 148,
  height: 36 + lineHeight * Math.min(count, maxNames + 1),
});

/** The left upper corner of a square, from that of the box. */
export function squareAt(at: number, squares: number, pitch: number): { x: number; y: number } {
  const columns = columnsOf(squares);
  return { x: 12 + pitch * (at % columns), y: head + pitch * Math.floor(at / columns) };
}

/**
 * One path for all squares of a kind: hundreds of elements would make the page slow. `half`: the filled half of a `part` square, whose
 * outline is that of `off`.
 */
export function squaresPath(
  places: readonly { x: number; y: number }[],
  kind: SquareKind | "half",
  pitch: number,
): string {
  const size = pitch - 2;
  return places.map(({ x, y }) => squarePath(round(x), round(y), kind, size)).join("");
}

const round = (value: number) => Math.round(10 * value) / 10;

function squarePath(x: number, y: number, kind: SquareKind | "half", size: number): string {
  if (kind === "need") {
    const half = round(size / 2 + 1);
    return `M${round(x + size / 2)} ${y - 1}l${half} ${size + 1}h${-2 * half}z`;
  }
  if (kind === "half") return `M${x} ${y}h${size / 2}v${size}h${-size / 2}z`;
  // A line lies on both sides of its path.
  const inset = kind === "on" ? 0 : 0.5;
  const corner = kind === "on" ? Math.min(2, size / 3) : Math.min(1.5, size / 4);
  const straight = round(size - 2 * inset - 2 * corner);
  const arc = (dx: number, dy: number) => `a${corner} ${corner} 0 0 1 ${dx} ${dy}`;
  return (
    `M${round(x + inset + corner)} ${y + inset}h${straight}${arc(corner, corner)}v${straight}${arc(-corner, corner)}` +
    `h${-straight}${arc(-corner, -corner)}v${-straight}${arc(corner, -corner)}z`
  );
}

/** The squares for so many nodes of each kind. `perSquare`: nodes a square; a kind with any node has a square. */
export function squaresFor(counts: Readonly<Record<SquareKind, number>>, perSquare: number): SquareKind[] {
  return squareKinds.flatMap((kind) =>
    Array.from({ length: Math.ceil(counts[kind] / perSquare) }, () => kind),
  );
}

/** A text cut to a width. `letter`: the mean width of a letter. */
export function cut(text: string, width: number, letter = 7): string {
  const letters = Math.max(3, Math.floor(width / letter));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
