// What a box of the map holds: the squares of a group's nodes, or their names, and how large it is.

import type { Size } from "./places-on-ring.ts";

/** Of a node: filled, half, hollow, triangle. Broken ones first. */
export const squareKinds = ["need", "part", "on", "off"] as const;
export type SquareKind = (typeof squareKinds)[number];

const head = 34;
const foot = 14;
const lineHeight = 20;
const least = 96;
const most = 240;
export const maxNames = 6;

export const columnsOf = (squares: number): number => Math.max(1, Math.round(Math.sqrt(1.85 * squares)));

/** From one square to the next. The more nodes the largest group has, the smaller. */
export function pitchOf(largest: number): number {
  return largest <= 125 ? 11 : largest <= 350 ? 8 : 5;
}
/** Groups of more nodes have one square for several of them. */
export const maxSquares = 1500;

/** `title`: how wide name and count are, in letters. */
export function groupSize(squares: number, pitch: number, title: number, hasLine: boolean): Size {
  const columns = columnsOf(squares);
  const width = Math.max(least, 24 + columns * pitch - 2, Math.min(most, 36 + 7 * title));
  const rows = Math.max(1, Math.ceil(squares / columns));
  return { width, height: head + rows * pitch - 2 + foot + (hasLine ? lineHeight : 0) };
}

/** Of the group in the middle, whose nodes have their names. */
export const namesSize = (count: number): Size => ({
  width: 148,
  height: 36 + lineHeight * Math.min(count, maxNames + 1),
});

/** The left upper corner of a square, from that of the box. */
export function squareAt(at: number, squares: number, pitch: number): { x: number; y: number } {
  const columns = columnsOf(squares);
  return { x: 12 + pitch * (at % columns), y: head + pitch * Math.floor(at / columns) };
}

/** One path for all squares of a kind: hundreds of elements would make the page slow. */
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

/** So many squares for the nodes of each kind, at most `most`: a kind that is there has one. */
export function squaresFor(counts: Readonly<Record<SquareKind, number>>, perSquare: number): SquareKind[] {
  return squareKinds.flatMap((kind) =>
    Array.from({ length: Math.ceil(counts[kind] / perSquare) }, () => kind),
  );
}

/** A name that fits in so many units. */
export function cut(text: string, width: number, letter = 7): string {
  const letters = Math.max(3, Math.floor(width / letter));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
