// Times as the console says them.

import { expect, test } from "bun:test";
import { ago } from "../../src/console/ago.ts";

const second = 1000;
const day = 86_400 * second;

test.each([
  [0, "now"],
  [-9 * second, "now"],
  [-120 * second, "2m ago"],
  [-day, "yesterday"],
  [40 * second, "in 40s"],
  [day, "in 1d"],
  [31 * day, "in 1mo"],
  [370 * day, "in 1y"],
])("%d ms from now is %s", (later, words) => {
  expect(ago(later, 0)).toBe(words);
});
