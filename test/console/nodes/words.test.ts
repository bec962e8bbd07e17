// What the pages of nodes derive: how long a path is drawn, why a peer is not reached, and what needs somebody.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { countShown, filtered, shows } from "../../../src/console/nodes/filter.ts";
import { lengthOf } from "../../../src/console/node/path-shapes.ts";
import { whyKind, whyWords } from "../../../src/console/node/why-words.ts";
import { listedOf } from "../../../src/console/nodes/listed-nodes.ts";
import { isOverdue, stateOf } from "../../../src/console/nodes/states.ts";
import type { Node } from "../../../src/protocol/node.ts";

const node: Node = {
  id: 1,
  name: "web-1",
  ip_address: "10.77.0.1",
  ip_address6: null,
  subnets: [],
  state: "active",
  online: true,
  mode: null,
  is_lighthouse: false,
  is_relay: false,
  public_ip: null,
  external_port: null,
  groups: [],
  config_overrides: {},
  certificate: {
    fingerprint: "f",
    version: 2,
    not_before: "2026-11-01T00:00:00Z",
    not_after: "2026-12-01T00:00:00Z",
  },
  config_version: 4,
  applied_config_version: 4,
  agent_version: null,
  overlay_version: "1.12.0",
  platform: null,
  last_checkin_at: null,
  created_at: "2026-11-01T00:00:00Z",
  revoked_at: null,
};

test("a longer round trip is a longer line, from a room to an ocean, and none is longer than its place", () => {
  const lengths = [0, 0.2, 1, 5, 25, 80, 300, 5000].map(lengthOf);
  expect(lengths).toEqual(lengths.toSorted((a, b) => a - b));
  expect([lengths[0], lengths.at(-1)]).toEqual([0.1, 1]);
  // 5 ms and 25 ms are told apart by more than a tenth of the line.
  expect((lengths[4] ?? 0) - (lengths[3] ?? 0)).toBeGreaterThan(0.1);
  expect(lengthOf(null)).toBeLessThan(1);
});

test("why a peer is not reached: the first obstacle that is known, and nothing before it is read", () => {
  const peer = { ...node, id: 2, name: "app-1" };
  expect(whyWords(node, undefined, ["any"])).toEqual({ words: "" });
  expect(whyWords(node, peer, undefined)).toEqual({ words: "" });
  expect(whyWords(node, { ...peer, state: "revoked" }, ["any"])).toEqual({ words: "app-1 is revoked." });
  expect(whyWords(node, peer, [])).toEqual({ words: "No rule allows it to reach app-1." });
  expect(whyWords(node, { ...peer, online: false }, ["tcp/8080"])).toEqual({
    words: "The rules allow tcp 8080, but app-1 is away: see whether its machine runs. There:",
    command: "sudo agent doctor",
  });
  expect(whyWords({ ...node, applied_config_version: 3 }, peer, ["any"])).toEqual({
    words:
      "The rules allow everything, and both are online, but web-1 has not applied the newest rules. On web-1:",
    command: "sudo agent sync-config",
  });
  expect(whyWords(node, peer, ["icmp", "tcp/8080"])).toEqual({
    words: expect.stringContaining("something between them probably drops UDP"),
    command: "sudo agent doctor",
  });
});

test("a certificate is overdue as the control plane counts it: within its last week and quarter", () => {
  const at = (day: number) => Date.UTC(2026, 10, day);
  expect([23, 24, 25, 26].map((day) => isOverdue(node, at(day)))).toEqual([false, false, true, true]);
  for (const other of [{ state: "pending" }, { certificate: null }, { ephemeral: true }] as const)
    expect(isOverdue({ ...node, ...other }, at(30))).toBe(false);
  expect(stateOf({ ...node, isOverdue: true })).toEqual(["limited", "certificate not renewed"]);
});

test("lighthouses and relays that are away, and old engines, are states of their own", () => {
  const away = { ...node, online: false };
  expect(stateOf({ ...away, is_lighthouse: true, is_relay: true })).toEqual(["attention", "lighthouse away"]);
  expect(stateOf({ ...away, is_relay: true })).toEqual(["attention", "relay away"]);
  // As on Overview: a relay that cuts no path can wait.
  expect(stateOf({ ...away, is_relay: true, cut: 1 })).toEqual(["attention", "relay away"]);
  expect(stateOf({ ...away, is_relay: true, cut: 0 })).toEqual(["limited", "relay away"]);
  expect(stateOf({ ...node, overlay_version: "1.9.6" })).toEqual(["limited", "old engine"]);
  expect(stateOf({ ...away, overlay_version: "1.9.6" })).toEqual(["away", "away"]);
});

test("each link to a part of the list names a filter that there is", () => {
  const source = join(import.meta.dir, "../../../src/console");
  const named = [...new Bun.Glob("**/*.{ts,tsx}").scanSync(source)].flatMap((path) =>
    [...readFileSync(join(source, path), "utf8").matchAll(/\bshow=([a-z]+)/g)].map(([, name = ""]) => name),
  );
  expect(named.length).toBeGreaterThan(8);
  const known: readonly string[] = shows.map(([name]) => name);
  expect(named.filter((name) => !known.includes(name))).toEqual([]);
});

test("a chip counts what its filter shows; a node with two faults needs somebody once", () => {
  const all = [
    node,
    { ...node, id: 2, overlay_version: "1.9.6" },
    { ...node, id: 3, online: false, is_relay: true },
    { ...node, id: 4, online: false },
  ].map((each) => listedOf({ ...each, certificate: null }));
  const paths = new Map([[2, { relayed: 1, broken: 1 }]]);
  const count = (show: string) => countShown(all, show, 0, paths);
  expect(["", "needs", "relayed", "away", "broken"].map(count)).toEqual([4, 2, 1, 2, 1]);
  const asked = { show: "needs", group: "", owner: "", words: [] };
  expect(filtered(all, asked, 0, paths).map(({ id }) => id)).toEqual([2, 3]);
});

test("a problem is red on the page of a node only if it is red in the list of nodes", () => {
  const sound = { ...node, certificate: null };
  const late = { ...sound, not_applied_since: "2026-11-19T23:40:00Z" };
  const certificate = {
    fingerprint: "f",
    version: 2,
    not_before: "2026-01-01T00:00:00Z",
    not_after: "2026-02-01T00:00:00Z",
  } as const;
  const limited = [late, { ...node, certificate }, { ...sound, overlay_version: "1.9.6" }];
  expect(limited.map((each) => whyKind(each))).toEqual(["info", "info", "info"]);
  expect(whyKind({ ...late, finding: "cloned" })).toBe("bad");
  const relay = { ...sound, online: false, is_relay: true };
  expect([0, 1, undefined].map((cut) => whyKind(relay, { cut }))).toEqual(["info", "bad", "bad"]);
  expect(whyKind({ ...relay, is_lighthouse: true }, { cut: 0 })).toBe("bad");
});
