// The lines of a plan.

import { expect, test } from "bun:test";
import type { Plan } from "../../../src/api/policy.ts";
import { lossSentence, planText } from "../../../src/server/policy-files/plan-text.ts";

type Class = Plan["access"]["classes"][number];
const one = (name: string) => ({ groups: [], nodes: [name], count: 1 });
const pair = (from: string, to: string, change: Partial<Class>): Class => ({
  from: one(from),
  to: one(to),
  gains: [],
  loses: [],
  pairs: 1,
  ...change,
});

function planOf(classes: Class[], pairs: number): Plan {
  const none = { create: [], delete: [], describe: [] };
  const named = (name: string) => ({ id: 1, name });
  return {
    version: 3,
    is_empty: false,
    rules: none,
    groups: none,
    nodes: [],
    aliases: { create: [], delete: [] },
    tests: { before: 0, after: 0, failing: [] },
    access: {
      pairs_changed: pairs,
      classes,
      classes_left_out: 0,
      pairs: classes.map(({ from, to, gains, loses }) => ({
        from: named(from.nodes[0] ?? ""),
        to: named(to.nodes[0] ?? ""),
        gains,
        loses,
      })),
    },
    kept: [],
  };
}

test("one pair is said once, in the singular", () => {
  expect(planText(planOf([pair("web1", "db1", { gains: ["tcp/22"] })], 1))).toBe(
    "1 pair of nodes gains or loses access:\n  web1 to db1: gains tcp/22\nPolicy version 3; 0 of 0 tests pass\n",
  );
});

test("classes of several nodes have examples of pairs", () => {
  const many = { ...pair("web1", "db1", { loses: ["any"] }), from: { ...one("web1"), count: 2 }, pairs: 2 };
  const text = planText(planOf([many], 2));
  expect(text).toContain("2 pairs of nodes gain or lose access:\n");
  expect(text).toContain("For example:\n  web1 to db1: loses any\n");
});

test("a plan that takes access away names the way back, others do not", () => {
  expect(lossSentence(planOf([pair("laptop", "db1", { loses: ["any"] })], 1))).toContain("--confirm 10m");
  expect(lossSentence(planOf([pair("laptop", "db1", { gains: ["any"] })], 1))).toBeUndefined();
});

test("a description cannot forge a line of the plan", () => {
  const plan = planOf([], 0);
  const rule = { id: 3, direction: "inbound", protocol: "tcp", ports: "22", peer: "any", target: "any" };
  const lines = planText({
    ...plan,
    rules: { ...plan.rules, create: [{ ...rule, description: "a\nrules: []\r\u2028# x\u001b[2K" }] },
  }).split("\n");
  expect(lines[0]).toBe("+ rule 3 inbound tcp/22 peer any target any (a rules: [] # x [2K)");
  expect(lines).toHaveLength(4);
});
