// The order of lists in the console.

import { expect, test } from "bun:test";
import { ordered } from "../../src/console/ui/order.ts";

const columns = [{ key: "name", text: (text: string) => text, isNatural: true as const }];

test("numbers in names are ordered by their value, upper and lower case alike, and the other way round", () => {
  const names = ["node-10", "Node-9", "node-2", "alpha", "", "node-010"];
  const up = ["", "alpha", "node-2", "Node-9", "node-10", "node-010"];
  expect(ordered(names, columns, "name")).toEqual(up);
  expect(ordered(names, columns, "-name")).toEqual(up.toReversed());
  expect(ordered(names, columns, "other")).toEqual(names);
});
