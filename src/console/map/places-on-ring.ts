// The order of groups or nodes on the ring of the map, and their places. No simulation: the same data give the same picture.

export type Size = { width: number; height: number };
/** `x` and `y` of the left upper corner. */
export type Box = Size & { x: number; y: number };
export type Point = { x: number; y: number };

export const centreOf = ({ x, y, width, height }: Box): Point => ({ x: x + width / 2, y: y + height / 2 });

export const overlap = (a: Box, b: Box, gap = 0): boolean =>
  a.x < b.x + b.width + gap &&
  b.x < a.x + a.width + gap &&
  a.y < b.y + b.height + gap &&
  b.y < a.y + a.height + gap;

/** All orders of so many are compared; of more, those that one swap leads to. */
const maxCompared = 7;
const maxRounds = 50;

/**
 * The order with the least sum of paths × steps apart. `weight`: how many paths two of them have. `compared`: how many orders
 * were.
 */
export function ringOrder<T>(
  items: readonly T[],
  weight: (a: T, b: T) => number,
): { order: T[]; compared: number } {
  const count = items.length;
  const weights = Float64Array.from(items.flatMap((a) => items.map((b) => weight(a, b))));
  let compared = 0;
  const cost = (order: readonly number[]) => {
    compared++;
    let sum = 0;
    for (let a = 0; a < count; a++) {
      const row = (order[a] ?? 0) * count;
      for (let b = a + 1; b < count; b++)
        sum += (weights[row + (order[b] ?? 0)] ?? 0) * Math.min(b - a, count - b + a);
    }
    return sum;
  };
  let best = items.map((_, at) => at);
  let least = cost(best);
  const compare = (order: readonly number[]) => {
    const sum = cost(order);
    if (sum >= least) return false;
    [best, least] = [[...order], sum];
    return true;
  };
  if (count <= maxCompared) for (const order of ordersOf(best)) compare(order);
  else {
    let isBetter = true;
    for (let round = 0; isBetter && round < maxRounds; round++) {
      isBetter = false;
      for (let a = 0; a < count; a++)
        for (let b = a + 1; b < count; b++) if (compare(swapped(best, a, b))) isBetter = true;
    }
  }
  return { order: best.flatMap((at) => items.slice(at, at + 1)), compared };
}

/** All that begin with the first one: on a ring, the others are turned. */
function* ordersOf([first, ...rest]: readonly number[]): Generator<number[]> {
  if (first === undefined) return;
  if (rest.length < 2) yield [first, ...rest];
  else for (const tail of permutations(rest)) yield [first, ...tail];
}

function* permutations(items: readonly number[]): Generator<number[]> {
  if (items.length < 2) yield [...items];
  for (const [at, item] of items.entries())
    if (items.length > 1) for (const rest of permutations(items.toSpliced(at, 1))) yield [item, ...rest];
}

function swapped(order: readonly number[], a: number, b: number): number[] {
  const next = [...order];
  [next[a], next[b]] = [order[b] ?? 0, order[a] ?? 0];
  return next;
}

type Ellipse = { x: number; y: number };
/** Beyond this number, places follow the size of boxes: above each other at the sides, beside each other at top and bottom. */
const maxEqual = 6;
const samples = 240;

/** The centres of boxes around (0, 0), clockwise from the top; of four in the corners. */
export function onEllipse(count: number, { x, y }: Ellipse, size: Size): Point[] {
  const start = count === 2 ? Math.PI : count === 4 ? (-3 * Math.PI) / 4 : -Math.PI / 2;
  const at = (angle: number) => ({ x: x * Math.cos(angle), y: y * Math.sin(angle) });
  if (count <= maxEqual)
    return Array.from({ length: count }, (_, each) => at(start + (2 * Math.PI * each) / count));
  // The way around, measured in boxes.
  const points = Array.from({ length: samples + 1 }, (_, each) => at(start + (2 * Math.PI * each) / samples));
  const way = [0];
  for (let each = 1; each <= samples; each++) {
    const [a, b] = [points[each - 1] ?? at(0), points[each] ?? at(0)];
    const step = Math.max(Math.abs(a.x - b.x) / size.width, Math.abs(a.y - b.y) / size.height);
    way.push((way[each - 1] ?? 0) + step);
  }
  const all = way[samples] ?? 0;
  return Array.from({ length: count }, (_, each) => {
    const found = way.findIndex((length) => length >= (all * each) / count);
    return points[Math.max(0, found)] ?? at(0);
  });
}

export type Placed = { ring: Box[]; middle: Box | undefined; width: number; height: number };
type Ground = { ellipse: Ellipse; gap: number; margin: number; least: Size };
const maxSteps = 80;

/** Places boxes on an ellipse that grows until no two of them, and none and the middle, touch. */
export function place(
  sizes: readonly Size[],
  middle: Size | undefined,
  { ellipse, gap, margin, least }: Ground,
): Placed {
  const widest = Math.max(0, ...sizes.map(({ width }) => width)) + gap;
  const highest = Math.max(0, ...sizes.map(({ height }) => height)) + gap;
  let { x, y } = ellipse;
  const around = (centre: Point, { width, height }: Size): Box => ({
    x: centre.x - width / 2,
    y: centre.y - height / 2,
    width,
    height,
  });
  const hub = middle === undefined ? [] : [around({ x: 0, y: 0 }, middle)];
  let boxes: Box[] = [];
  for (let step = 0; step < maxSteps; step++) {
    const points = onEllipse(sizes.length, { x, y }, { width: widest, height: highest });
    boxes = sizes.map((size, at) => around(points[at] ?? { x: 0, y: 0 }, size));
    if (sizes.length === 1 && middle === undefined) boxes = sizes.map((size) => around({ x: 0, y: 0 }, size));
    if (!touch([...hub, ...boxes], gap)) break;
    // Pages are wider than high, but readers may scroll.
    if (y < x) y *= 1.05;
    else [x, y] = [x * 1.05, y * 1.05];
  }
  const all = [...hub, ...boxes];
  const [left, right] = [
    Math.min(0, ...all.map((box) => box.x)),
    Math.max(0, ...all.map((b) => b.x + b.width)),
  ];
  const [top, bottom] = [
    Math.min(0, ...all.map((box) => box.y)),
    Math.max(0, ...all.map((b) => b.y + b.height)),
  ];
  const width = Math.max(least.width, right - left + 2 * margin);
  const height = Math.max(least.height, bottom - top + 2 * margin);
  const move = (box: Box): Box => ({
    ...box,
    x: box.x + (width - left - right) / 2,
    y: box.y + (height - top - bottom) / 2,
  });
  return { ring: boxes.map(move), middle: hub.map(move)[0], width, height };
}

const touch = (boxes: readonly Box[], gap: number): boolean =>
  boxes.some((box, at) => boxes.slice(at + 1).some((other) => overlap(box, other, gap)));

const maxKept = 12;
const kept = new Map<string, unknown>();

/** Orders and places of the pages shown last: going back costs nothing, and nothing moves while its key is the same. */
export function keptFor<T>(key: string, make: () => T): T {
  const known = kept.get(key) as T | undefined;
  const value = known ?? make();
  kept.delete(key);
  kept.set(key, value);
  for (const old of kept.keys()) if (kept.size > maxKept) kept.delete(old);
  return value;
}
