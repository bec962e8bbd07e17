// Edits of two users of the same rules: each edit stays on its rule, and where both changed one, the user chooses.

import { expect, test } from "bun:test";
import {
  clashKey,
  inNewWords,
  mergeRules,
  ruleChanges,
  type Choice,
} from "../../../src/console/access/merge.ts";
import { sentenceOf, type Rule } from "../../../src/console/access/rules.ts";

const rule = (id: number, more: Partial<Rule> = {}): Rule => ({
  id,
  direction: "inbound",
  protocol: "tcp",
  ports: "443",
  peer: "group:web",
  target: "group:db",
  description: "",
  ...more,
});
const port22 = rule(7, { ports: "22", peer: "group:ci", target: "any" });
const closed = { ...port22, target: "group:web" };
const base = [rule(1), port22];

const merged = (mine: readonly Rule[], theirs: readonly Rule[], choice?: Choice) => {
  const { clashes } = mergeRules(base, mine, theirs);
  const choices = new Map(clashes.map((clash) => [clashKey(clash), choice ?? "theirs"] as const));
  const { rules } = mergeRules(base, mine, theirs, choices);
  return {
    clashes,
    rules: rules.map((each) => `${each.id}: ${sentenceOf(each)} ${each.description}`.trim()),
  };
};

test("an edit of a rule never becomes an addition beside the old rule", () => {
  const mine = [rule(1), closed];
  const moved = [rule(1), { ...port22, ports: "2222" }];
  const [first] = merged(mine, moved).clashes;
  expect(first).toEqual({ base: port22, mine: closed, theirs: { ...port22, ports: "2222" } });
  expect(merged(mine, moved, "mine").rules).toEqual([
    "1: nodes in web may reach nodes in db on tcp 443",
    "7: nodes in ci may reach nodes in web on tcp 22",
  ]);
  // Both: theirs stays, and mine is a new rule.
  expect(merged(mine, moved, "both").rules).toEqual([
    "1: nodes in web may reach nodes in db on tcp 443",
    "7: nodes in ci may reach all nodes on tcp 2222",
    "-1: nodes in ci may reach nodes in web on tcp 22",
  ]);
  expect(merged(mine, moved, "theirs").rules).toEqual([
    "1: nodes in web may reach nodes in db on tcp 443",
    "7: nodes in ci may reach all nodes on tcp 2222",
  ]);
});

test("of one rule, the traffic of one user and the description of another are both kept", () => {
  const described = [rule(1), { ...port22, description: "deployments" }];
  const both = ["7: nodes in ci may reach nodes in web on tcp 22 deployments"];
  for (const [mine, theirs] of [
    [[rule(1), closed], described],
    [described, [rule(1), closed]],
  ] as const) {
    const { clashes, rules } = merged(mine, theirs);
    expect([clashes, rules.slice(1)]).toEqual([[], both]);
  }
  const named = [rule(1), { ...closed, description: "mine" }];
  expect(merged(named, described).clashes).toHaveLength(1);
});

test("edits of different rules are all kept, each on its rule, without a question", () => {
  const mine = [rule(1, { ports: "444" }), port22, rule(-1, { ports: "53" })];
  const theirs = [rule(1), rule(8, { protocol: "udp", ports: "53" })];
  expect(merged(mine, theirs)).toEqual({
    clashes: [],
    rules: [
      "1: nodes in web may reach nodes in db on tcp 444",
      "8: nodes in web may reach nodes in db on udp 53",
      "-1: nodes in web may reach nodes in db on tcp 53",
    ],
  });
});

test("a deletion of a rule that another user changed is asked about", () => {
  const described = [rule(1), { ...port22, description: "deployments" }];
  const { clashes, rules } = merged([rule(1)], described, "mine");
  expect(clashes).toEqual([
    { base: port22, mine: undefined, theirs: { ...port22, description: "deployments" } },
  ]);
  expect(rules).toHaveLength(1);
  expect(merged([rule(1)], described).rules).toHaveLength(2);
});

test("a rule that another console replaced by one with a new number is still the same rule", () => {
  const theirs = [rule(1), { ...port22, id: 12, ports: "2222" }];
  expect(merged([rule(1), closed], theirs, "mine").rules).toEqual([
    "1: nodes in web may reach nodes in db on tcp 443",
    "12: nodes in ci may reach nodes in web on tcp 22",
  ]);
  // A port that I closed stays closed.
  expect(merged([rule(1)], theirs, "mine").rules).toHaveLength(1);
  // Both did the same.
  expect(merged([rule(1), closed], [rule(1), { ...closed, id: 12 }]).clashes).toEqual([]);
});

test("my edit of a rule that another user deleted is a new rule, if I choose it", () => {
  const { clashes, rules } = merged([rule(1), closed], [rule(1)], "mine");
  expect(clashes).toEqual([{ base: port22, mine: closed, theirs: undefined }]);
  expect(rules).toEqual([
    "1: nodes in web may reach nodes in db on tcp 443",
    "-1: nodes in ci may reach nodes in web on tcp 22",
  ]);
  expect(merged([rule(1), closed], [rule(1)]).rules).toHaveLength(1);
  expect(merged([rule(1)], [rule(1)]).clashes).toEqual([]);
});

test("rules of two users that differ in their description alone are one rule", () => {
  const added = (id: number, description: string) => [...base, rule(id, { ports: "8080", description })];
  expect(mergeRules(base, added(-1, "mine"), added(9, "theirs")).rules).toEqual(added(9, "theirs"));
  const [first, ...rest] = base;
  if (first === undefined) throw new Error("A rule");
  const twice = [...rest, rule(-1, { ports: "8080" }), rule(-2, { ports: "8080", description: "again" })];
  expect(mergeRules(base, [first, ...twice], base).rules).toEqual([
    first,
    ...rest,
    rule(-1, { ports: "8080" }),
  ]);
});

test("edits made while others are saved are put on the rules under their new numbers", () => {
  const sent = [rule(1), closed, rule(-1, { ports: "53" })];
  const saved = [rule(1), { ...closed, id: 12 }, rule(13, { ports: "53" })];
  const later = [rule(1), closed, rule(-1, { ports: "54" })];
  const { clashes, rules } = mergeRules(sent, later, saved);
  expect(clashes).toEqual([]);
  expect(rules.map(({ id, ports }) => `${id} ${ports}`)).toEqual(["1 443", "12 22", "13 54"]);
});

test("a choice ends when the other version changes again", () => {
  const mine = [rule(1), closed];
  const [first] = mergeRules(base, mine, [rule(1), { ...port22, ports: "2222" }]).clashes;
  const theirs = [rule(1), { ...port22, ports: "2223" }];
  const choices = new Map<string, Choice>(first === undefined ? [] : [[clashKey(first), "mine"]]);
  expect(choices.size).toBe(1);
  expect(mergeRules(base, mine, theirs, choices).rules).toEqual(theirs);
});

test("a change of the description alone is a change, once", () => {
  const after = { ...port22, description: "deployments" };
  expect(ruleChanges(base, [rule(1), after])).toEqual([{ before: port22, after }]);
  expect(ruleChanges(base, base)).toEqual([]);
  expect(ruleChanges(base, [rule(1)])).toEqual([{ before: port22, after: undefined }]);
  expect(ruleChanges(base, [...base, rule(9, { ports: "1" })])).toEqual([
    { before: undefined, after: rule(9, { ports: "1" }) },
  ]);
});

test("a node that is revoked, restored or renamed is no change of a rule", () => {
  const side = (id: number) => JSON.stringify({ node: id });
  const old = new Map([
    [side(7), "node:web-5"],
    [side(8), "node:a"],
    ['{"any":true}', "any"],
  ]);
  const now = new Map([
    [side(7), "node:#7 web-5"],
    [side(8), "node:b"],
    ['{"any":true}', "any"],
  ]);
  const saved = [rule(1, { peer: "node:web-5", target: "node:a" }), rule(2, { peer: "any" })];
  const newest = [rule(1, { peer: "node:#7 web-5", target: "node:b" }), rule(2, { peer: "any" })];
  expect(ruleChanges(inNewWords(saved, old, now), newest)).toEqual([]);
  expect(ruleChanges(inNewWords(newest, now, old), saved)).toEqual([]);
  // The same list while no word changed: a plan that is asked for is of this list.
  expect(inNewWords(saved, old, old)).toBe(saved);
  // A rule that was deleted gives no new word to the others.
  expect(inNewWords(saved, old, new Map())).toBe(saved);
});
