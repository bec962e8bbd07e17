// Nodes in lists of the console: compact records, columns, actions on several, and what the rules say about one.

import type { Rule as StoredRule } from "../../../src/api/rules.ts";
import { expect, test } from "bun:test";
import { aliasWords } from "../../../src/console/node/aliases.ts";
import { namedIn, standingChange, rulesOfNode } from "../../../src/console/access/rules-of-node.ts";
import { ownerGroup, selfGroup } from "../../../src/protocol/users-groups.ts";
import { exportName, filtered, groupsOf, selectedIn } from "../../../src/console/nodes/filter.ts";
import { vulnerabilitiesOf } from "../../../src/console/nodes/states.ts";
import {
  afterContacts,
  changedBy,
  listedOf,
  withoutSilent,
  type ListedNode,
} from "../../../src/console/nodes/listed-nodes.ts";
import type { Node } from "../../../src/protocol/node.ts";

const node: Node = {
  id: 7,
  name: "Web-10",
  ip_address: "10.77.0.7",
  ip_address6: null,
  subnets: ["192.168.7.0/24"],
  state: "active",
  online: true,
  mode: null,
  is_lighthouse: false,
  is_relay: true,
  public_ip: null,
  external_port: null,
  groups: ["web", "eu"],
  config_overrides: { tun: { mtu: 1300 } },
  certificate: {
    fingerprint: "f",
    version: 2,
    not_before: "2026-11-01T00:00:00Z",
    not_after: "2026-12-01T00:00:00Z",
  },
  config_version: 4,
  applied_config_version: 3,
  agent_version: null,
  overlay_version: "1.12.0",
  platform: "linux",
  last_checkin_at: null,
  created_at: "2026-11-01T00:00:00Z",
  revoked_at: null,
};

test("a list keeps a node's times as numbers, what is searched in lower case, and no overrides", () => {
  const listed = listedOf(node);
  expect(listed).toMatchObject({
    seenAt: null,
    endsAt: Date.UTC(2026, 11, 1),
    isBehind: true,
    ownerId: null,
  });
  expect(listed.words).toBe("web-10\n10.77.0.7\nweb\neu\n1.12.0\nlinux");
  expect(listed).not.toHaveProperty("config_overrides");
  expect(listedOf({ ...node, state: "pending" }).isBehind).toBe(false);
  // Equal groups are kept once.
  expect(listedOf({ ...node, groups: ["web", "eu"] }).groups).toBe(listed.groups);
});

test("a certificate is renewed when a third of its own life is left, also one of an hour", () => {
  expect(listedOf(node).renewsAt).toBe(Date.UTC(2026, 10, 21));
  const certificate = {
    fingerprint: "f",
    version: 2,
    not_before: "2026-11-01T10:00:00Z",
    not_after: "2026-11-01T11:00:00Z",
  } as const;
  const short = listedOf({ ...node, certificate, ephemeral: true });
  expect([short.renewsAt, short.isEphemeral]).toEqual([Date.UTC(2026, 10, 1, 10, 40), true]);
  expect(listedOf({ ...node, certificate: null }).renewsAt).toBeNull();
});

test("the name of an export tells its filter, but not what was searched", () => {
  const all = { show: "", group: "", owner: "", words: [] };
  expect(exportName("acme", all)).toBe("acme-nodes.csv");
  expect(exportName("acme", { ...all, show: "vulnerable" })).toBe("acme-nodes-vulnerable.csv");
  expect(exportName("acme", { ...all, group: "eu/a b", words: ["ada"] })).toBe(
    "acme-nodes-eu_a_b-filtered.csv",
  );
  expect(exportName("acme", { ...all, owner: "7" })).toBe("acme-nodes-filtered.csv");
});

test("an export names the known vulnerabilities of an engine, and where they end", () => {
  expect(vulnerabilitiesOf({ overlay_version: "1.9.5" })).toBe(
    "Update to 1.10.3 or newer: CVE-2025-62820 (fixed in 1.9.7), CVE-2026-25793 (fixed in 1.10.3)",
  );
  for (const overlay_version of [null, "1.12.0"]) expect(vulnerabilitiesOf({ overlay_version })).toBe("");
});

test("the rules about a node: what it lets in, what lets it in, what it lets out", () => {
  let id = 0;
  const rule = (
    direction: StoredRule["direction"],
    peer: StoredRule["peer"],
    target: StoredRule["target"],
  ) => ({
    id: ++id,
    direction,
    protocol: "tcp" as const,
    ports: "22",
    peer,
    target,
    description: "",
  });
  const rules: StoredRule[] = [
    rule("inbound", { group: "admin" }, { group: "web" }),
    rule("inbound", { node: 7 }, { group: "db" }),
    rule("inbound", { any: true }, { node: 8 }),
    rule("outbound", { group: "db" }, { node: 7 }),
    rule("outbound", { any: true }, { node: 9 }),
    rule("inbound", { cidr: "192.168.7.0/24" }, { group: "other" }),
    rule("inbound", { group: "db" }, { any: true }),
    rule("inbound", { group: ownerGroup(3) }, { group: ownerGroup(4) }),
    rule("inbound", { group: selfGroup }, { group: "db" }),
  ];
  const ids = (found: readonly StoredRule[]) => found.map((each) => each.id);
  const { inbound, toPeers, outbound } = rulesOfNode(rules, { ...node, owner_id: 4 });
  expect([ids(inbound), ids(toPeers), ids(outbound)]).toEqual([[1, 7, 8], [2, 3, 6, 9], [4]]);
  expect(ids(rulesOfNode(rules, { ...node, owner_id: null }).toPeers)).not.toContain(9);
  expect(namedIn(rules)).toEqual([7, 8, 9]);
  const member = { ...node, groups: ["web"], owner_id: null };
  const { gains, loses } = standingChange(rules, member, { ...member, groups: ["db"] });
  expect([ids(gains.othersReachIt), ids(gains.itReaches)]).toEqual([[2, 4, 9], [7]]);
  expect([ids(loses.othersReachIt), ids(loses.itReaches)]).toEqual([[1], []]);
  const none = { othersReachIt: [], itReaches: [] };
  expect(standingChange(rules, member, member)).toEqual({ gains: none, loses: none });
});

test("a contact makes a node online, an older one or one of a pending node changes nothing", () => {
  const seen = listedOf({ ...node, online: false, last_checkin_at: "2026-11-01T00:00:00Z" });
  const pending = listedOf({ ...node, id: 8, state: "pending", online: false });
  const at = Date.UTC(2026, 10, 1);
  const nodes = [seen, pending];
  const later = afterContacts(nodes, [
    [7, at + 1, 4],
    [8, at + 1, 4],
    [9, at + 1, 4],
  ]);
  expect(later.nodes).toEqual([{ ...seen, online: true, seenAt: at + 1 }, pending]);
  // It has applied another version, so it is read again.
  expect(later.changed).toEqual([7]);
  expect(afterContacts(nodes, [[7, at, 4]])).toEqual({ nodes, changed: [] });
  expect(afterContacts(nodes, [[7, at, 4]]).nodes).toBe(nodes);
  expect(afterContacts(nodes, [[7, at + 1, 3]]).changed).toEqual([]);
});

test("a node that is silent for 150 s is away", () => {
  const seen = listedOf({ ...node, last_checkin_at: "2026-11-01T00:00:00Z" });
  const at = Date.UTC(2026, 10, 1);
  expect(withoutSilent([seen], at + 149_999)[0]?.online).toBe(true);
  expect(withoutSilent([seen], at + 150_000)[0]?.online).toBe(false);
  const unseen = [listedOf({ ...node, online: true })];
  expect(withoutSilent(unseen, at)).toBe(unseen);
});

test("an event names the nodes that it changed, a policy those that it gave groups; else all are read again", () => {
  const by = (type: string, subject: string, after: Record<string, unknown> | null = null) =>
    changedBy({ type, subject, after });
  expect(by("certificate.renewed", "node/7")).toEqual([7]);
  expect(by("rule.created", "rule/7")).toEqual([]);
  expect(by("group.deleted", "group/web")).toBeUndefined();
  const nodes = [
    { id: 3, name: "a" },
    { id: 5, name: "b" },
  ];
  for (const type of ["policy.applied", "policy.reverted"]) {
    expect(by(type, "policy", { counts: { nodes: 2 }, nodes })).toEqual([3, 5]);
    expect(by(type, "policy", { counts: { nodes: 0 }, nodes: [] })).toEqual([]);
    expect(by(type, "policy", { counts: { nodes: 900 }, nodes })).toBeUndefined();
  }
  expect(by("policy.confirmed", "policy", { version: 3 })).toEqual([]);
});

test("a list of nodes is filtered by state, group, owner and words", () => {
  const at = Date.UTC(2026, 10, 20);
  const week = 7 * 86_400_000;
  const record = (id: number, more: Partial<ListedNode>): ListedNode => ({
    ...listedOf({ ...node, id, name: `m-${id}` }),
    isBehind: false,
    ...more,
  });
  const pick = ({ overlay_version, words }: ListedNode) => ({ overlay_version, words });
  const all = [
    { ...record(1, { online: true, seenAt: at }), ...pick(listedOf({ ...node, overlay_version: "1.9.6" })) },
    record(2, { online: false, seenAt: at - 1000, ownerId: 4 }),
    record(3, { online: false, seenAt: at - week, groups: ["db"], isBehind: true }),
    record(4, { online: false, seenAt: null, state: "pending" }),
  ];
  const none = { show: "", group: "", owner: "", words: [] };
  const ids = (filter: object) => filtered(all, { ...none, ...filter }, at).map(({ id }) => id);
  expect(filtered(all, none, at)).toBe(all);
  expect(ids({ show: "online" })).toEqual([1]);
  expect(ids({ show: "away" })).toEqual([2, 3]);
  expect(ids({ show: "week" })).toEqual([3]);
  expect(ids({ show: "behind" })).toEqual([3]);
  expect(ids({ show: "pending" })).toEqual([4]);
  expect(ids({ show: "vulnerable" })).toEqual([1]);
  expect(ids({ words: ["1.9.6"] })).toEqual([1]);
  const aliases = aliasWords([
    { name: "intranet", node: 2 },
    { name: "wiki", node: 2 },
    { name: "intra", node: 9 },
  ]);
  expect(aliases.get(2)).toBe("intranet, wiki");
  const byAlias = (word: string) => filtered(all, { ...none, words: [word] }, at, undefined, aliases);
  expect(byAlias("intra").map(({ id }) => id)).toEqual([2]);
  expect(byAlias("nowhere")).toEqual([]);
  const paths = new Map([
    [1, { relayed: 1, broken: 1 }],
    [2, { relayed: 1, broken: 1 }],
    [3, { relayed: 0, broken: 0 }],
  ]);
  // What nodes that are away reported is old.
  for (const show of ["relayed", "broken"])
    expect(filtered(all, { ...none, show }, at, paths).map(({ id }) => id)).toEqual([1]);
  const roles = [
    record(5, { is_relay: true, is_lighthouse: false }),
    record(6, { is_relay: false, is_lighthouse: true }),
  ];
  const ofRole = (show: string) => filtered(roles, { ...none, show }, at).map(({ id }) => id);
  expect([ofRole("relay"), ofRole("lighthouse")]).toEqual([[5], [6]]);
  // What the overview counts.
  const phone = { system: "ios" as const, imported_at: "", import_by: new Date(at).toISOString() };
  const needy = [
    record(7, { is_relay: true, online: false }),
    record(8, { is_relay: false, online: true, isLate: true }),
    record(9, { is_relay: false, online: false, isLate: true }),
    record(10, { phone }),
    record(11, { phone: { ...phone, import_by: new Date(at + 1).toISOString() } }),
  ];
  const needing = (show: string) => filtered(needy, { ...none, show }, at).map(({ id }) => id);
  expect([needing("hubs"), needing("late"), needing("due")]).toEqual([[7], [8], [10]]);
  // Words of an address that someone typed.
  expect(ids({ show: "constructor" })).toEqual([1, 2, 3, 4]);
  expect(ids({ group: "db" })).toEqual([3]);
  expect(ids({ owner: "4" })).toEqual([2]);
  expect(ids({ show: "away", words: ["m-2"] })).toEqual([2]);
  expect(groupsOf(all)).toEqual(["db", "eu", "web"]);
  // Nothing that is hidden stays selected.
  const away = filtered(all, { ...none, show: "away" }, at);
  expect(selectedIn(new Set([1, 3, 9]), away).map(({ id }) => id)).toEqual([3]);
});
