// The places of the map: the order on the ring, and boxes that do not touch.

import { expect, test } from "bun:test";
import { onEllipse, overlap, place, ringOrder } from "../../../src/console/map/places-on-ring.ts";

const names = (count: number) => Array.from({ length: count }, (_, at) => `group-${at}`);
/** Paths between the groups of a pair, by the digits of their names. */
const weightBy = (of: (a: number, b: number) => number) => (a: string, b: string) =>
  of(Number(a.slice(6)), Number(b.slice(6)));
/** The sum of paths × steps apart. */
function costOf(order: readonly string[], weight: (a: string, b: string) => number): number {
  let sum = 0;
  for (const [a, one] of order.entries())
    for (const [b, other] of order.entries())
      if (a < b) sum += weight(one, other) * Math.min(b - a, order.length - b + a);
  return sum;
}

test("the order has the least sum of paths × steps: groups with many paths are neighbours", () => {
  // A ring in another order than that of the names: 0 3 1 4 2 5.
  const next = new Map([0, 3, 1, 4, 2, 5].map((each, at, all) => [each, all[(at + 1) % 6]]));
  const weight = weightBy((a, b) => (next.get(a) === b || next.get(b) === a ? 100 : 1));
  const { order, compared } = ringOrder(names(6), weight);
  expect(order.slice(0, 1)).toEqual(["group-0"]);
  // Each of the six is a neighbour of the next.
  expect(costOf(order, weight)).toBe(6 * 100 + 3 * 3 + 6 * 2);
  // All orders that begin with the first, and the order of names.
  expect(compared).toBe(1 + 120);
});

test("beyond seven, swaps make it better and never worse, in a bounded number of steps", () => {
  for (const count of [8, 12, 24]) {
    const weight = weightBy((a, b) => ((a * 7 + b * 13) % 11) * 10);
    const all = names(count);
    const { order, compared } = ringOrder(all, weight);
    expect(order.toSorted()).toEqual(all.toSorted());
    expect(costOf(order, weight)).toBeLessThan(costOf(all, weight));
    expect(compared).toBeLessThanOrEqual(20 * ((count * (count - 1)) / 2));
    expect(ringOrder(all, weight).order).toEqual(order);
  }
});

test("one group, two, and none have an order", () => {
  for (const count of [0, 1, 2, 3]) expect(ringOrder(names(count), () => 1).order).toEqual(names(count));
});

const ground = { ellipse: { x: 258, y: 216 }, gap: 24, margin: 16, least: { width: 692, height: 460 } };

test("no boxes touch, whatever their number and size, and all lie within the picture", () => {
  for (let count = 1; count <= 24; count++)
    for (const hub of [undefined, { width: 132, height: 116 }]) {
      const sizes = Array.from({ length: count }, (_, at) => ({
        width: 96 + ((at * 37) % 100),
        height: 60 + ((at * 53) % 90),
      }));
      const { ring, middle, width, height } = place(sizes, hub, ground);
      const all = middle === undefined ? ring : [...ring, middle];
      expect(all).toHaveLength(count + (hub === undefined ? 0 : 1));
      const touching = all.flatMap((a, at) => all.slice(at + 1).filter((b) => overlap(a, b, 16)));
      expect([count, touching]).toEqual([count, []]);
      for (const box of all) {
        expect(Math.min(box.x, box.y)).toBeGreaterThanOrEqual(0);
        expect([box.x + box.width <= width, box.y + box.height <= height]).toEqual([true, true]);
      }
      expect(place(sizes, hub, ground)).toEqual({ ring, middle, width, height });
    }
});

test("a few stand at equal angles from the top, four in the corners", () => {
  const [top, right] = onEllipse(5, { x: 100, y: 80 }, { width: 10, height: 10 });
  expect([Math.round(top?.x ?? 1), Math.round(top?.y ?? 1)]).toEqual([0, -80]);
  expect(right?.x).toBeGreaterThan(90);
  const corners = onEllipse(4, { x: 100, y: 80 }, { width: 10, height: 10 });
  expect(corners.map(({ x, y }) => [Math.sign(x), Math.sign(y)])).toEqual([
    [-1, -1],
    [1, -1],
    [1, 1],
    [-1, 1],
  ]);
});
