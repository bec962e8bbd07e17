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

/** Of so many items, all orders are compared; of more, those that swapping two leads to, until no swap helps. */
const maxCompared = 7;
const maxRounds = 50;

/**
 * The order on a ring with the least cost: the sum over all pairs of their paths × their distance on the ring. `weight`: how
 * many paths two items have. `compared`: how many orders were compared, for tests.
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

/** All orders that begin with the first item: on a ring, each other order is one of these, turned. */
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

/** Half of its width (`x`), and half of its height (`y`). */
type Ellipse = { x: number; y: number };
/** Up to this number, boxes have equal angles. More need places by their size: at the sides they stand above each other. */
const maxEqual = 6;
const samples = 240;

/** The centres of boxes around (0, 0), clockwise from the top; two are left and right, four in the corners. */
export function onEllipse(count: number, { x, y }: Ellipse, size: Size): Point[] {
  const start = count === 2 ? Math.PI : count === 4 ? (-3 * Math.PI) / 4 : -Math.PI / 2;
  const at = (angle: number) => ({ x: x * Math.cos(angle), y: y * Math.sin(angle) });
  if (count <= maxEqual)
    return Array.from({ length: count }, (_, each) => at(start + (2 * Math.PI * each) / count));
  // The way around, measured in boxes: equal parts of it are as many boxes apart.
  const points = Array.from({ length: samples + 1 }, (_, each) => at(start + (2 * Math.PI * each) / samples));
  const way = [0];
  for (let each = 1; each <= samples; each++) {
    const [a, b] = [points[each - 1] ?? at(0), points[each] ?? at(0)];
    const step = Math.max(Math.abs(a.x - b.x) / size.width, Math.abs(a.y - b.y) / size.height);
    way.push((way[each - 1] ?? 0) + step);
  }
  const wholeWay = way[samples] ?? 0;
  return Array.from({ length: count }, (_, each) => {
    const sample = way.findIndex((length) => length >= (wholeWay * each) / count);
    return points[Math.max(0, sample)] ?? at(0);
  });
}

export type Placed = { ring: Box[]; middle: Box | undefined; width: number; height: number };
type Ground = { ellipse: Ellipse; gap: number; margin: number; least: Size };
const maxSteps = 80;

/** Places boxes on an ellipse, which grows until no box touches another or the one in the middle. */
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
    // It first grows in height until it is a circle: pages are wider than high, but readers may scroll.
    if (y < x) y *= 1.05;
    else [x, y] = [x * 1.05, y * 1.05];
  }
  const all = [...hub, ...boxes];
  const left = Math.min(0, ...all.map((box) => box.x));
  const right = Math.max(0, ...all.map((box) => box.x + box.width));
  const top = Math.min(0, ...all.map((box) => box.y));
  const bottom = Math.max(0, ...all.map((box) => box.y + box.height));
  const width = Math.max(least.width, right - left + 2 * margin);
  const height = Math.max(least.height, bottom - top + 2 * margin);
  /** From coordinates around (0, 0) to those of the picture: the middle of all boxes, (left + right) / 2, goes to width / 2. */
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
