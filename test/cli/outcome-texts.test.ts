import { expect, test } from "bun:test";
import { factsOf as drillFacts } from "../../src/cli/admin/nodes/drill.ts";
import { factsOf } from "../../src/cli/admin/nodes/rollout.ts";
import { outcomeText } from "../../src/cli/install/overlay-install.ts";
import { noUpdateText } from "../../src/cli/install/self-update.ts";
import { renderChecks } from "../../src/node/doctor/check.ts";

test.each([
  [{ from: "1.11.1", to: "1.12.0", changed: true }, "/e is now 1.12.0 (was 1.11.1)"],
  [{ from: null, to: "1.12.0", changed: true }, "/e is now 1.12.0"],
  [{ from: "1.6.1", to: "1.6.1", changed: true }, "/e was replaced; its version is still 1.6.1"],
  [
    { from: "1.6.1", to: "1.6.1", changed: true, isFirst: true, link: "/usr/bin/nebula" },
    "/e was made, a link to /usr/bin/nebula; the version in use is still 1.6.1",
  ],
  [
    { from: null, to: "1.6.1", changed: true, isFirst: true, link: "/usr/bin/nebula" },
    "/e is now 1.6.1, a link to /usr/bin/nebula",
  ],
  [{ from: "1.12.0", to: "1.12.0", changed: false }, "/e is already 1.12.0"],
])("an engine that was installed: %j", (outcome, text) => {
  expect(outcomeText({ path: "/e", ...outcome })).toBe(text);
});

test.each([
  [{ from: "0.2.0", to: "0.2.0" }, "0.2.0 is the latest release\n"],
  // Neither a requested version nor a mirror that is behind says which release is the latest.
  [{ from: "0.2.0", to: "0.2.0", version: "0.2.0" }, "No newer release: 0.2.0 is offered, this is 0.2.0\n"],
  [{ from: "0.2.0", to: "0.1.0" }, "No newer release: 0.1.0 is offered, this is 0.2.0\n"],
])("a release that is not newer: %j", (outcome, text) => {
  expect(noUpdateText(outcome)).toBe(text);
});

test("one warning of doctor is not several", () => {
  const warning = { id: "engine", verdict: "warn", evidence: "old", remedy: "update" } as const;
  expect(renderChecks([warning])).toEndWith("\n0 failed, 1 warning, 0 ok or skipped\n");
  expect(renderChecks([warning, warning])).toEndWith("\n0 failed, 2 warnings, 0 ok or skipped\n");
});

test("a rollout names its watch, its hours, and until when it waits for them", () => {
  const ring = { waiting: 1, updating: 0, passed: 0, left_out: 0 };
  const texts = { reason: "", failed_node: null, probe: "", log: "" };
  const versions = { agent: null, engine: "1.12.0", groups: [] };
  const at = { id: 1, state: "running", ring: 1, rings: [ring], created_at: "", ended_at: null };
  const hours = [
    { days: [], from: 22, until: 5 },
    { days: ["sat", "sun"] as const, from: 0, until: 24 },
  ].map((each) => ({ ...each, days: [...each.days] }));
  const shown = { ...versions, ...at, ...texts, hours, watch_s: 10, waits_until: "2026-11-28T22:00:00Z" };
  expect(factsOf(shown)).toEqual([
    "engine 1.12.0: ring 1 of 1, 0 of 1 nodes; a ring is watched for 10 seconds",
    "hours, in each node's own time: 22-5 sat,sun:0-24",
    "waits until 2026-11-28T22:00:00Z: then the hours of a node of ring 1 begin",
  ]);
  const watched = [90, 1800, 3600].map((watch_s) => factsOf({ ...shown, watch_s })[0]?.split(" for ")[1]);
  expect(watched).toEqual(["90 seconds", "30 minutes", "1 hour"]);
});

test("a drill says who was not away, that nobody lost anybody, and when it proves nothing", () => {
  const none = { count: 0, first: [] };
  const hub = { node: 1, node_name: "hub", state: "began", reason: "" };
  const at = { begins_at: "2026-11-28T10:00:00Z", ends_at: "2026-11-28T10:01:00Z", ended_at: null };
  const shown = { id: 3, kind: "lighthouse-away", state: "ended", nodes: [hub], for_s: 60, ...at };
  const drill = { ...shown, reported: 2, watched: 3, silent: none, too_old: none, losses: [], left_out: 0 };
  expect(drillFacts(drill)).toEqual([
    "Drill 3: lighthouse-away (hub) for 60 s from 2026-11-28T10:00:00Z, ended",
    "No node lost a peer.",
    "2 nodes reported, which watched 3 peers.",
  ]);
  expect(drillFacts({ ...drill, watched: 0 })[1]).toContain("proves nothing");
  const refused = { ...hub, state: "refused", reason: "this machine has no nft (the package nftables)" };
  const silent = { count: 3, first: ["a", "b"] };
  expect(drillFacts({ ...drill, nodes: [refused], silent }).slice(1)).toEqual([
    "hub was not away: this machine has no nft (the package nftables)",
    "2 nodes reported, which watched 3 peers.",
    "No report of a, b and 1 more.",
  ]);
});
