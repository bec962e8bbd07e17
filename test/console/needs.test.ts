// What the console says needs a person.

import { expect, test } from "bun:test";
import { columnsOf, degraded, expiring, isBackupDue, outdatedEngines } from "../../src/console/needs.ts";
import type { Machine } from "../../src/console/machines.ts";

const now = Date.UTC(2026, 10, 1);
const day = 86_400_000;

const machine = (id: number, more: Partial<Machine> = {}): Machine => ({
  id,
  name: `node-${id}`,
  state: "active",
  online: true,
  ip_address: `10.77.0.${id}`,
  groups: [],
  subnets: [],
  is_lighthouse: false,
  is_relay: false,
  overlay_version: "1.12.0",
  agent_version: null,
  platform: null,
  seenAt: now,
  endsAt: now + 90 * day,
  isBehind: false,
  applied: 1,
  ownerId: null,
  nameKey: "",
  words: "",
  ...more,
});

test("lighthouses and relays that are away, and machines that do not reach peers, are degraded", () => {
  const machines = [
    machine(1),
    machine(2, { online: false }),
    machine(3, { online: false, is_lighthouse: true }),
    machine(4, { online: false, is_relay: true }),
    machine(5, { online: false, is_relay: true, state: "revoked" }),
  ];
  const broken = [1, 2, 3, 4].map((peer) => ({
    node: 1,
    node_name: "node-1",
    peer_name: peer === 4 ? null : `peer-${peer}`,
    peer_address: `10.77.1.${peer}`,
  }));
  expect(degraded(machines, broken)).toEqual([
    { id: 3, name: "node-3", more: "is away: machines find each other by this lighthouse" },
    { id: 4, name: "node-4", more: "is away: it relays for others" },
    { id: 1, name: "node-1", more: "does not reach peer-1, peer-2, peer-3 and 1 more" },
  ]);
  expect(degraded([machine(1)], [])).toEqual([]);
});

test("certificates that end within a week are listed, the first one first", () => {
  const ends = (id: number, days: number, more: Partial<Machine> = {}) =>
    machine(id, { endsAt: now + days * day, ...more });
  const found = expiring(
    [
      ends(1, 8),
      ends(2, 6),
      ends(3, -1),
      ends(4, 1, { state: "revoked" }),
      machine(5, { endsAt: null }),
      // Its user is asked to import it again.
      ends(6, 1, { phone: { system: "ios", imported_at: "", import_by: null } }),
    ],
    now,
  );
  expect(found.map(({ id }) => id)).toEqual([3, 2]);
});

test("engines with published vulnerabilities are named with the version that fixes them", () => {
  const found = outdatedEngines([
    machine(1, { overlay_version: "1.9.5" }),
    machine(2),
    machine(3, { overlay_version: null }),
    machine(4, { overlay_version: "1.9.5", state: "revoked" }),
  ]);
  expect(found).toHaveLength(1);
  expect(found[0]?.more).toContain("fixed in 1.9.7");
});

test("a backup is due when there is none, or the last one is two days old", () => {
  expect(isBackupDue(null, now)).toBe(true);
  expect(isBackupDue(new Date(now - 3 * day).toISOString(), now)).toBe(true);
  expect(isBackupDue(new Date(now - day).toISOString(), now)).toBe(false);
});

test("a time without counts is a gap of the plot", () => {
  const at = (minutes: number) => new Date(now + minutes * 60_000).toISOString();
  const point = (minutes: number, online: number) => ({ at: at(minutes), online, active: 9 });
  expect(columnsOf([point(0, 1), point(5, 2), point(30, 3)], 300)).toEqual([
    [0, 300, 600, 1800].map((seconds) => now / 1000 + seconds),
    [1, 2, null, 3],
    [9, 9, null, 9],
  ]);
});
