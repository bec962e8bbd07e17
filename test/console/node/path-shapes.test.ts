// The bars for the paths of a node.

import { expect, test } from "bun:test";
import { barsOf } from "../../../src/console/node/path-shapes.ts";

const bars = (broken: number, relayed: number, direct: number, relays_away: number) =>
  barsOf({ node: 1, broken, relayed, direct, relays_away }).join(" ");

test("each path is a bar; beyond six, each kind has its share", () => {
  expect(bars(1, 1, 2, 0)).toBe("x r d d");
  expect(bars(10, 30, 20, 0)).toBe("x r r r d d");
  expect(bars(1, 99, 0, 0)).toBe("x r r r r r");
  expect(bars(1, 100, 1, 0)).toBe("x r r r r d");
  expect(bars(100, 1, 1, 1)).toBe("x x x r d old");
});

test("many paths that are all direct have no bars, because the number says it", () => {
  expect(bars(0, 0, 6, 0)).toBe("d d d d d d");
  expect(bars(0, 0, 7, 0)).toBe("");
});

test("paths whose relays are all away are drawn, and not as direct ones", () => {
  expect(bars(0, 0, 1, 2)).toBe("d old old");
  expect(bars(0, 0, 0, 7)).toBe("old old old old old old");
  expect(bars(0, 0, 50, 1)).toBe("d d d d d old");
});
