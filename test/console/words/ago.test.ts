// Times as the console says them.

import { expect, test } from "bun:test";
import { ago } from "../../../src/console/words/ago.ts";

const second = 1000;
const day = 86_400 * second;

test.each([
  [0, "now"],
  [-9 * second, "now"],
  [-120 * second, "2m ago"],
  [-day, "1d ago"],
  // Not yesterday by the calendar.
  [-1.9 * day, "1d ago"],
  [40 * second, "in 40s"],
  [day, "in 1d"],
  [6.99 * day, "in 7d"],
  [59.9 * 60 * second, "in 1h"],
  [89.99 * day, "in 90d"],
  [120 * day, "in 4mo"],
  [-89.99 * day, "89d ago"],
  [370 * day, "in 1y"],
  [-370 * day, "1y ago"],
])("%d ms from now is %s", (later, words) => {
  expect(ago(later, 0)).toBe(words);
});
