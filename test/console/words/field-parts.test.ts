// Fields that hold a list.

import { expect, test } from "bun:test";
import { networksIn, sentencesOf } from "../../../src/console/words/field-parts.ts";

test("networks are separated by commas or blanks", () => {
  expect(networksIn(" 192.168.20.0/24 192.168.30.0/24,fd00::/64,\n")).toEqual([
    "192.168.20.0/24",
    "192.168.30.0/24",
    "fd00::/64",
  ]);
  expect(networksIn(" ")).toEqual([]);
});

test("a sentence about one part of a field names the part", () => {
  const errors = { subnets: ["At most 64."], "subnets.1": ["Enter a network."], name: ["Taken."] };
  expect(sentencesOf(errors, "subnets", ["192.168.1.0/24", "nonsense"])).toEqual([
    "At most 64.",
    "nonsense: Enter a network.",
  ]);
  expect(sentencesOf(errors, "name")).toEqual(["Taken."]);
  expect(sentencesOf({ "groups.7": ["Odd."] }, "groups", ["a"])).toEqual(["Odd."]);
  expect(sentencesOf({ "settings.mtu": ["Unknown."] }, "settings")).toEqual(["mtu: Unknown."]);
  expect(sentencesOf(errors, "sub")).toEqual([]);
});
