// The console takes a saved change of the rules back, and names the networks that a rule opens.

import type { Rule as StoredRule } from "../../../src/api/rules.ts";
import { expect, test } from "bun:test";
import { peerOf, routerTo, targetOf } from "../../../src/console/access/sides.ts";
import { networksBehind } from "../../../src/protocol/networks-behind.ts";
import type { Rule } from "../../../src/console/access/rules.ts";
import { undoing } from "../../../src/console/access/merge.ts";
import type { Event as AuditEvent } from "../../../src/api/events.ts";
import { ruleChangeOf } from "../../../src/console/activity/rule-change.ts";

const rule = (id: number, ports: string, more: Partial<Rule> = {}): Rule => ({
  id,
  direction: "inbound",
  protocol: "tcp",
  ports,
  peer: "group:web",
  target: "group:db",
  description: "",
  ...more,
});
const shown = (rules: readonly Rule[]) => rules.map(({ id, ports }) => [id, ports]);

test("an edit that was saved as another rule goes back in its place; new rules go, deleted ones return", () => {
  const other = rule(1, "22");
  const change = {
    added: [rule(9, "8082"), rule(10, "53", { protocol: "udp", peer: "any", target: "any" })],
    removed: [rule(4, "8080"), rule(5, "any", { protocol: "icmp", peer: "node:a", target: "node:b" })],
  };
  const { rules, left } = undoing([other, ...change.added], change);
  expect(left).toEqual([]);
  expect(shown(rules)).toEqual([
    [1, "22"],
    [9, "8080"],
    [-2, "any"],
  ]);
  // What this page has just saved still has the number from before.
  const saved = { added: [rule(4, "8082")], removed: [rule(4, "8080")] };
  expect(shown(undoing([other, rule(9, "8082")], saved).rules)).toEqual([
    [1, "22"],
    [9, "8080"],
  ]);
});

test("a description goes back, and what was taken back already stays", () => {
  const change = {
    added: [rule(4, "22", { description: "b" })],
    removed: [rule(4, "22", { description: "a" })],
  };
  expect(undoing(change.added, change).rules).toEqual(change.removed);
  expect(undoing(change.removed, change)).toEqual({ rules: change.removed, left: [] });
  const deletion = { added: [], removed: [rule(5, "22")] };
  expect(shown(undoing([rule(8, "22")], deletion).rules)).toEqual([[8, "22"]]);
});

test("what changed since stays, and so does what names a node that is gone", () => {
  const change = { added: [rule(9, "8082")], removed: [rule(4, "8080")] };
  const later = undoing([rule(12, "8083")], change);
  expect(shown(later.rules)).toEqual([[12, "8083"]]);
  expect(later.left).toEqual([
    "nodes in web may reach nodes in db on tcp 8082: this rule was changed since, and stays so.",
  ]);
  expect(undoing([], change).left[0]).toEndWith("deleted since, and stays so.");
  const gone = undoing([], { added: [], removed: [rule(4, "22", { target: "node:#7" })] });
  expect(gone.rules).toEqual([]);
  expect(gone.left[0]).toEndWith("what this rule names is gone, so the rule cannot come back.");
});

test("an event says which rules came and went, and what cannot be taken back with them", () => {
  const event = (type: string, after: object | null, before: object | null = null) =>
    ruleChangeOf({ type, before, after } as AuditEvent);
  const stored = { ...rule(9, "22"), peer: { any: true }, target: { group: "db" }, description: "b" };
  const applied = {
    counts: { rules_created: 1, rules_deleted: 600 },
    rules_created: [stored],
    rules_deleted: [{ ...stored, id: 4 }],
    rules_described: [{ ...stored, id: 5, before: "a" }],
    groups_created: ["db"],
    nodes: [],
    tests: 0,
  };
  const found = event("policy.applied", applied);
  expect(found?.added.map(({ id, description }) => [id, description])).toEqual([
    [9, "b"],
    [5, "b"],
  ]);
  expect(found?.removed.map(({ id, description }) => [id, description])).toEqual([
    [4, "b"],
    [5, "a"],
  ]);
  expect(found?.others).toEqual([
    "groups",
    "tests",
    "items beyond the first 500, which the event does not list",
  ]);
  const described = { ...applied, counts: { rules_described: 501 }, groups_created: [], tests: undefined };
  expect(event("policy.applied", described)?.others).toEqual([
    "items beyond the first 500, which the event does not list",
  ]);
  expect(event("policy.applied", { counts: {}, rules_created: [], tests: 3 })).toBeUndefined();
  expect(event("node.updated", stored)).toBeUndefined();
  // The event of an update has only what differs: the rest is that of the rule.
  const updated = {
    type: "rule.updated",
    subject: "rule/9",
    before: { ports: "21" },
    after: { ports: "22" },
  };
  const now = { ...stored, direction: "inbound", protocol: "tcp" } as unknown as StoredRule;
  expect(ruleChangeOf(updated as unknown as AuditEvent, now)).toEqual({
    added: [{ ...now, ports: "22" }],
    removed: [{ ...now, ports: "21" }],
    others: [],
  });
  expect(event("rule.deleted", null, stored)).toMatchObject({ added: [], removed: [{ id: 9 }] });
});

const nodes = [
  { name: "gw-berlin", groups: ["routers"], subnets: ["192.168.20.0/24", "192.168.30.0/24"] },
  { name: "db-1", groups: ["db"], subnets: [] },
];

test("a side of a rule has the networks behind the nodes that it names", () => {
  const berlin = ["gw-berlin: 192.168.20.0/24, 192.168.30.0/24"];
  for (const word of ["any", "node:gw-berlin", "group:routers"])
    expect(networksBehind([word], nodes)).toEqual(berlin);
  expect(networksBehind(["any", "node:gw-berlin"], nodes)).toEqual(berlin);
  expect(networksBehind(["group:db", "node:db-1", "user:gw-berlin"], nodes)).toEqual([]);
  const many = Array.from({ length: 7 }, (_, at) => ({
    name: `r${at}`,
    groups: [],
    subnets: [`10.${at}.0.0/16`],
  }));
  expect(networksBehind(["any"], many).slice(4)).toEqual([
    "r4: 10.4.0.0/16",
    "and 2 more nodes with networks",
  ]);
  expect(networksBehind(["any"], many.slice(1)).slice(4)).toEqual(["r5: 10.5.0.0/16", "r6: 10.6.0.0/16"]);
  // A search looks at all of them.
  expect(networksBehind(["any"], many, Infinity)[6]).toBe("r6: 10.6.0.0/16");
});

test("an address or a network is found behind its node", () => {
  const found = (text: string) => routerTo(text, [...nodes, { ...exotic, name: "gw-6" }])?.name;
  expect(["192.168.20.7", "192.168.30.0/24", "10.9.255.1"].map(found)).toEqual([
    "gw-berlin",
    "gw-berlin",
    "gw-6",
  ]);
  for (const text of ["192.168.21.7", "192.168.20", "10.16.0.1", "db-1", "fd00::1", ""])
    expect(found(text)).toBeUndefined();
});
const exotic = { groups: [], subnets: ["fd00::/64", "10.0.0.0/12"] };

test("a network that is typed as what a rule opens is one behind nodes", () => {
  expect(["192.168.30.0/24", "FD00::/64", "group:web", "any"].map(targetOf)).toEqual([
    "network:192.168.30.0/24",
    "network:fd00::/64",
    "group:web",
    "any",
  ]);
  // As a peer it has no kind.
  expect(["network:192.168.30.0/24", "192.168.30.0/24", "group:web"].map(peerOf)).toEqual([
    "192.168.30.0/24",
    "192.168.30.0/24",
    "group:web",
  ]);
});
