// The ways of bands and lines between boxes, and the places of their labels. Pure: the same boxes give the same ways.

import { centreOf, overlap, type Box, type Point, type Size } from "./places-on-ring.ts";

export type Curve = { from: Point; control: Point; to: Point };
/** A band to draw between two boxes. `label`: the size of its label. `weight`: heavier bands get their labels first. */
export type Wanted = { key: string; from: Box; to: Box; label: Size; weight: number };
/** How a band is drawn. `label`: the centre of its label; undefined if there is no place for it in the picture. */
export type Way = { curve: Curve; label: Point | undefined };
type Line = readonly [Point, Point];
/** `spokes`: lines that bands should not cross, nor their labels lie on. */
export type Scene = { boxes: readonly Box[]; size: Size; spokes?: readonly Line[] };

/** A curve is looked at in so many points. */
const samples = 24;
/** How far the middle of a band may be moved aside, as a part of its length. Straight is best. */
const bends = [0, 0.08, 0.16, 0.26, 0.38, 0.52, 0.7];
/** How far a band stays away from the boxes of others. */
const clearance = 8;

/** A point of a quadratic Bézier curve. `t`: 0 at its start, 1 at its end. */
export function pointAt({ from, control, to }: Curve, t: number): Point {
  const [a, b, c] = [(1 - t) ** 2, 2 * t * (1 - t), t ** 2];
  return { x: a * from.x + b * control.x + c * to.x, y: a * from.y + b * control.y + c * to.y };
}

/** The ways by key. The time grows with bands × bends × boxes. */
export function waysOf(wanted: readonly Wanted[], scene: Scene): ReadonlyMap<string, Way> {
  const curves = wanted.map((band) => {
    const curve = curveOf(band, scene);
    return { band, curve, points: pointsOf(curve) };
  });
  const labels = placeLabels(curves, scene);
  return new Map(curves.map(({ band: { key }, curve }) => [key, { curve, label: labels.get(key) }]));
}

const pointsOf = (curve: Curve): Point[] =>
  Array.from({ length: samples + 1 }, (_, at) => pointAt(curve, at / samples));

/** The way that passes no foreign box, then crosses the fewest spokes, then is the shortest. */
function curveOf({ from, to }: Wanted, { boxes, size, spokes = [] }: Scene): Curve {
  const [a, b] = [centreOf(from), centreOf(to)];
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  // The side that leads away from the middle of the picture is tried first.
  const outwards = (middle.x - size.width / 2) * (a.y - b.y) + (middle.y - size.height / 2) * (b.x - a.x);
  const side = outwards < 0 ? -1 : 1;
  const foreign = boxes.filter((box) => box !== from && box !== to);
  let best: Curve = { from: a, control: middle, to: b };
  let least = Number.POSITIVE_INFINITY;
  for (const bend of bends)
    for (const way of bend === 0 ? [0] : [side, -side]) {
      // The curve goes half as far aside as its control point.
      const aside = 2 * bend * way;
      const control = { x: middle.x + aside * (a.y - b.y), y: middle.y + aside * (b.x - a.x) };
      const curve = { from: a, control, to: b };
      // Costs: a point in a box or outside counts most, then a crossed spoke, then the bend.
      let cost = 100 * bend;
      // Later bends cost more.
      if (cost >= least) break;
      const points = pointsOf(curve);
      for (const point of points) {
        if (cost >= least) break;
        const { x, y } = point;
        if (x < 0 || y < 0 || x > size.width || y > size.height) cost += 1000;
        if (foreign.some((box) => isIn(point, box, clearance))) cost += 1000;
      }
      for (const spoke of spokes) cost += 40 * crossingsOf(points, spoke);
      if (cost >= least) continue;
      [best, least] = [curve, cost];
    }
  return best;
}

const isIn = ({ x, y }: Point, box: Box, gap = 0): boolean =>
  x > box.x - gap && x < box.x + box.width + gap && y > box.y - gap && y < box.y + box.height + gap;

/** Whether the way from a over b to c turns to one side, and not to the other. */
const turn = (a: Point, b: Point, c: Point) => (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x) > 0;

/** How often a line of points crosses another line. Lines that begin at one point do not cross there. */
function crossingsOf(points: readonly Point[], [from, to]: Line): number {
  let count = 0;
  for (let at = 1; at < points.length; at++) {
    const [a, b] = [points[at - 1] ?? from, points[at] ?? from];
    if (turn(a, b, from) !== turn(a, b, to) && turn(from, to, a) !== turn(from, to, b)) count++;
  }
  return count;
}

type Drawn = { band: Wanted; curve: Curve; points: readonly Point[] };
/** A label stands on its band; if there is no room, beside it on one side or the other. */
const asides = [0, 1, -1];
/** So many places along a band are tried. */
const places = 32;

/** The centres of the labels, by the keys of their bands. The heaviest bands choose first. */
function placeLabels(curves: readonly Drawn[], { boxes, size, spokes = [] }: Scene): Map<string, Point> {
  const labels = new Map<string, Point>();
  const taken: Box[] = [];
  const bandsIn = cellsOf(curves);
  for (const { band, curve } of curves.toSorted((a, b) => b.band.weight - a.band.weight)) {
    const free = freePart(curve, boxes);
    if (free === undefined) continue;
    const middle = (free.from + free.to) / 2;
    let best: Box | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const { t, aside, far } of candidates(free, middle)) {
      if (far >= least) break;
      const box = labelAt(curve, t, aside, band.label);
      const covers = (other: Box) => overlap(box, other, 3);
      if (!isInSight(box, size) || boxes.some(covers) || taken.some(covers)) continue;
      const onSpokes = spokes.filter((spoke) => passes(box, spoke)).length;
      // The label covers its own band, which counts for nothing.
      const cost = far + 60 * onSpokes + 25 * (bandsIn(box) - 1);
      if (cost < least) [best, least] = [box, cost];
    }
    if (best === undefined) continue;
    taken.push(best);
    labels.set(band.key, centreOf(best));
  }
  return labels;
}

/** The size of the cells of a grid that says where bands are. */
const cellSize = 20;

/** How many bands pass a box, about: a label on another band is hard to read. */
function cellsOf(curves: readonly Drawn[]): (box: Box) => number {
  const cells = new Map<number, Set<Drawn>>();
  // No picture has a thousand rows of cells.
  const keyOf = (column: number, row: number) => column * 1000 + row;
  for (const each of curves)
    for (const { x, y } of each.points) {
      const key = keyOf(Math.floor(x / cellSize), Math.floor(y / cellSize));
      const known = cells.get(key) ?? new Set();
      cells.set(key, known.add(each));
    }
  return ({ x, y, width, height }) => {
    const found = new Set<Drawn>();
    for (let column = Math.floor(x / cellSize); column * cellSize < x + width; column++)
      for (let row = Math.floor(y / cellSize); row * cellSize < y + height; row++)
        for (const each of cells.get(keyOf(column, row)) ?? []) found.add(each);
    return found.size;
  };
}

/** The places for a label on the free part of a band, the nearest to its middle first. `far`: the cost of the distance. */
function candidates(free: { from: number; to: number }, middle: number) {
  return Array.from({ length: places }, (_, at) => at / places)
    .filter((t) => t > 0 && t >= free.from && t <= free.to)
    .flatMap((t) =>
      asides.map((aside) => ({ t, aside, far: 100 * Math.abs(t - middle) + 45 * Math.abs(aside) })),
    )
    .toSorted((a, b) => a.far - b.far);
}

const isInSight = ({ x, y, width, height }: Box, size: Size): boolean =>
  x >= 2 && y >= 2 && x + width <= size.width - 2 && y + height <= size.height - 2;

function labelAt(curve: Curve, t: number, aside: number, { width, height }: Size): Box {
  const { x, y } = pointAt(curve, t);
  const [a, b] = [pointAt(curve, t - 0.02), pointAt(curve, t + 0.02)];
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const normal = { x: (a.y - b.y) / length, y: (b.x - a.x) / length };
  // Half of the label's extent in the direction of the normal, and a gap of 8.
  const far = aside * (8 + (Math.abs(normal.x) * width + Math.abs(normal.y) * height) / 2);
  return { x: x + far * normal.x - width / 2, y: y + far * normal.y - height / 2, width, height };
}

function passes(box: Box, [a, b]: Line): boolean {
  for (let at = 0; at <= samples; at++) {
    const t = at / samples;
    if (isIn({ x: a.x + t * (b.x - a.x), y: a.y + t * (b.y - a.y) }, box, 2)) return true;
  }
  return false;
}

/** The longest part of a band that no box covers: from 0, its start, to 1, its end. */
function freePart(curve: Curve, boxes: readonly Box[]): { from: number; to: number } | undefined {
  let best: { from: number; to: number } | undefined;
  let begin: number | undefined;
  for (let at = 0; at <= places + 1; at++) {
    const t = at / places;
    const isFree = at <= places && !boxes.some((box) => isIn(pointAt(curve, t), box));
    if (isFree) begin ??= t;
    else if (begin !== undefined) {
      const part = { from: begin, to: (at - 1) / places };
      if (best === undefined || part.to - part.from > best.to - best.from) best = part;
      begin = undefined;
    }
  }
  return best;
}

/** A number with one digit after the point. */
const rounded = (value: number) => `${Math.round(10 * value) / 10}`;
const pointText = ({ x, y }: Point) => `${rounded(x)} ${rounded(y)}`;

/** The curve as a path of SVG. `aside`: moved to one side by so many units, for the dash beside a band. */
export function pathOfCurve({ from, control, to }: Curve, aside = 0): string {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const [x, y] = [(aside * (from.y - to.y)) / length, (aside * (to.x - from.x)) / length];
  const moved = (point: Point) => pointText({ x: point.x + x, y: point.y + y });
  return `M${moved(from)}Q${moved(control)} ${moved(to)}`;
}
