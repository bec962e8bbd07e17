// The order of lists in the console.

import { expect, test } from "bun:test";
import { inPlaces, ordered } from "../../../../src/console/ui/lists/order.ts";

const columns = [{ key: "name", text: (text: string) => text, isNatural: true as const }];

test("numbers in names are ordered by their value, upper and lower case alike, and the other way round", () => {
  const names = ["node-10", "Node-9", "node-2", "alpha", "", "node-010"];
  const up = ["", "alpha", "node-2", "Node-9", "node-10", "node-010"];
  expect(ordered(names, columns, "name")).toEqual(up);
  expect(ordered(names, columns, "-name")).toEqual(up.toReversed());
  expect(ordered(names, columns, "other")).toEqual(names);
});

test("what has no time comes last in both directions", () => {
  const times = [{ at: null }, { at: 2 }, { at: 1 }, { at: null }, { at: 3 }];
  const compare = (a: { at: number | null }, b: { at: number | null }) => (a.at ?? 0) - (b.at ?? 0);
  const column = {
    key: "at",
    text: () => "",
    compare,
    isEmpty: ({ at }: { at: number | null }) => at === null,
  };
  const at = (order: string) => ordered(times, [column], order).map((each) => each.at);
  expect(at("at")).toEqual([1, 2, 3, null, null]);
  expect(at("-at")).toEqual([3, 2, 1, null, null]);
});

test("rows keep their places, new ones come at the end, and the fewest that would have to move are counted", () => {
  const places = new Map<string, number>();
  const look = (text: string) => {
    const { rows, moved } = inPlaces(text.split(""), (letter) => letter, places);
    return [rows.join(""), moved];
  };
  expect(look("abcd")).toEqual(["abcd", 0]);
  expect(look("dabc")).toEqual(["abcd", 1]);
  expect(look("bcda")).toEqual(["abcd", 1]);
  expect(look("dcba")).toEqual(["abcd", 3]);
  // One is gone, one is new in the middle, and one at the end is where it belongs.
  expect(look("axcde")).toEqual(["acdxe", 1]);
  expect(look("abcdxe")).toEqual(["abcdxe", 0]);
  const same = ["a", "c"];
  expect(inPlaces(same, (letter) => letter, places).rows).toBe(same);
});
