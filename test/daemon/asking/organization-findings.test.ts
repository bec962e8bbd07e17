// What status, doctor, netcheck and the report to the control plane show of each kind of finding, and who finds that
// nothing watches an organization.

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { OrganizationState } from "../../../src/daemon/ipc/messages.ts";
import { stateText } from "../../../src/daemon/asking/health-text.ts";
import { renderStatus } from "../../../src/daemon/asking/status-text.ts";
import { findingsOf, type Watcher } from "../../../src/daemon/asking/organization-findings.ts";
import { ok } from "../../../src/node/doctor/check.ts";
import { netcheck } from "../../../src/node/doctor/netcheck.ts";
import { examineTraffic } from "../../../src/node/doctor/traffic.ts";
import { allKinds, makeFinding, doctorStatusOf, reportedKind } from "../../../src/node/health/findings.ts";
import { findingOf } from "../../../src/protocol/finding-kinds.ts";
import { verdictOf, type Health } from "../../../src/node/health/verdict.ts";
import type { UnitState } from "../../../src/platform/service-state.ts";
import { makeNodeWorld } from "../../support/node.ts";

const now = Date.UTC(2026, 10, 20, 12);
const healthy: Health = {
  verdict: "running",
  findings: [],
  lighthouses: { answering: 1, of: 1 },
  broken: [],
  checked_at: "2026-11-20T11:59:58Z",
};
const team = (change: Partial<OrganizationState> = {}): OrganizationState => ({
  team: "acme",
  state: "running",
  wanted: "up",
  mode: "server",
  name: "desk",
  ip_address: "10.77.0.5",
  certificate_not_after: "2027-02-18T12:00:00Z",
  uptime_s: 90_061,
  health: healthy,
  ...change,
});

test("each kind of finding is shown by status, doctor and netcheck, and none makes a light green", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const config = { static_host_map: {}, lighthouse: { hosts: ["10.77.0.9"] } };
  writeFileSync(join(organization.directory, "config.yml"), JSON.stringify(config));
  const { system } = world;
  for (const kind of allKinds) {
    const one = makeFinding(kind, "acme", `Something is wrong: ${kind}`, "mend it");
    const health = { ...healthy, ...verdictOf([one]), findings: [one] };
    const seen = team({ health, findings: [one] });
    const text = renderStatus({ daemon: { running: true }, teams: [seen] }, now);
    expect(text).toContain(`acme: ${one.what}: \`mend it\``);
    expect(stateText(seen) === "running").toBe(one.light === "note");
    // The control plane and its console: notes are told by the paths, and what is under way is not told.
    const isTold = one.light !== "note" && kind !== "probing";
    expect(reportedKind([one])).toBe(isTold ? kind : undefined);
    expect(findingOf(kind)).toBe(kind);
    const doctor = await examineTraffic(organization, seen, system);
    const net = await netcheck(organization, {
      system,
      open: async () => "absent" as const,
      probedStatus: async () => seen,
      controlPlane: async () => ok("fine"),
      engine: async () => ({ isRunning: true, running: "1.12.0" }),
    });
    const told = (checks: typeof doctor) =>
      checks
        .filter(({ id }) => id === "traffic")
        .map(({ verdict, evidence }) => [verdict, evidence.slice(0, one.what.length)]);
    expect([kind, told(doctor)]).toEqual([kind, [[doctorStatusOf(kind), one.what]]]);
    expect(told(net)).toEqual(told(doctor));
  }
});

const unit = (change: Partial<UnitState> = {}): UnitState => ({
  is: "running",
  startsAtBoot: true,
  pid: 7,
  ...change,
});

describe("an organization that nothing watches", () => {
  const kinds = (change: Partial<OrganizationState>, watcher: Watcher) =>
    findingsOf(team(change), watcher, now).map(({ kind, cure }) => [kind, cure]);
  const checkedAt = now - 30_000;
  const start = "agent start acme";

  test("in server mode: its timer is stopped, masked, missing or disabled, or the last check is older than three intervals", () => {
    const of = (watcher: Watcher, change: Partial<OrganizationState> = {}) => kinds(change, watcher);
    expect(of({ unit: unit(), checkedAt })).toEqual([]);
    expect(of({ unit: unit({ is: "stopped" }), checkedAt })).toEqual([["not_checked", start]]);
    expect(of({ unit: unit({ is: "masked" }), checkedAt })).toEqual([["not_checked", start]]);
    expect(of({ unit: unit({ is: "missing" }), checkedAt })).toEqual([
      ["not_checked", "agent install-systemd"],
    ]);
    expect(of({ unit: unit({ startsAtBoot: false }), checkedAt })).toEqual([["not_started_at_boot", start]]);
    const check = ["not_checked", "agent check-auth --org-slug acme"];
    expect(of({ unit: unit(), checkedAt: now - 181_000 })).toEqual([check]);
    expect(of({ unit: unit(), checkedAt: now + 181_000 })).toEqual([check]);
    expect(of({ unit: unit(), checkedAt: undefined })).toEqual([check]);
    expect(of({ unit: unit(), checkedAt: undefined }, { uptime_s: 100 })).toEqual([]);
    // Without its engine there is nothing to watch, if the user wants none.
    expect(of({ unit: unit({ is: "stopped" }) }, { state: "stopped", wanted: "down" })).toEqual([]);
    expect(of({ unit: unit({ is: "stopped" }) }, { state: "stopped", wanted: "up" })).toEqual([
      ["not_running", start],
      ["not_checked", start],
    ]);
    const lacking = unit({ lacks: "/usr/local/bin/agent" });
    expect(of({ unit: lacking, checkedAt })).toEqual([["not_checked", start]]);
    // An unanswered question is no "not installed", and no "stopped".
    for (const state of ["running", "stopped"] as const)
      expect(of({ unit: unit({ is: "unknown" }), checkedAt }, { state })).toEqual([
        ["manager_silent", expect.stringContaining("systemctl is-system-running")],
      ]);
    // Somebody else's affair: no systemd.
    expect(of({ unit: undefined })).toEqual([]);
  });

  test("in desktop mode: the daemon does not run, or not after a reboot", () => {
    const of = (watcher: Watcher) => kinds({ mode: "desktop" }, watcher).map(([kind]) => kind);
    const daemon = { answers: true, pid: 7 };
    expect(of({ unit: unit(), daemon })).toEqual([]);
    expect(of({ unit: undefined, daemon })).toEqual([]);
    expect(of({ unit: unit({ is: "unknown" }), daemon })).toEqual([]);
    expect(of({ unit: unit({ is: "unknown" }), daemon: { answers: false } })).toEqual(["manager_silent"]);
    // Started by hand, beside a unit that is off.
    expect(of({ unit: unit({ is: "stopped", startsAtBoot: false, pid: undefined }), daemon })).toEqual([]);
    expect(of({ unit: unit({ startsAtBoot: false }), daemon })).toEqual(["not_started_at_boot"]);
    expect(of({ unit: unit({ is: "stopped" }), daemon: { answers: false } })).toEqual(["not_checked"]);
    expect(of({ unit: undefined, daemon: { answers: false } })).toEqual(["not_checked"]);
  });

  test("is not green before the first look, nor with an expired certificate, nor if the daemon does not know it", () => {
    const { health: _, ...unseen } = team();
    const watcher = { unit: unit(), checkedAt };
    expect(findingsOf(unseen, watcher, now).map(({ kind }) => kind)).toEqual(["probing"]);
    expect(kinds({ certificate_not_after: "2026-11-20T11:00:00Z" }, watcher).map(([kind]) => kind)).toEqual([
      "certificate_expired",
    ]);
    const forgotten = { unit: unit(), isForgotten: true };
    expect(kinds({ mode: "desktop", state: "stopped", wanted: "down" }, forgotten)).toEqual([
      ["forgotten", start],
    ]);
  });

  test("what a daemon of an earlier version says is shown, too", () => {
    const { findings: __, ...health } = {
      ...healthy,
      verdict: "degraded" as const,
      reason: "The lighthouse hub does not answer",
    };
    expect(findingsOf(team({ health }), { unit: unit(), checkedAt }, now)).toMatchObject([
      { kind: "lighthouses_silent", what: "The lighthouse hub does not answer" },
    ]);
  });
});

test("without host.key no start is advised, which could not help", () => {
  const [found] = findingsOf(team({ state: "stopped" }), { unit: undefined, lacksKey: true }, now);
  expect(found).toMatchObject({
    kind: "not_running",
    what: "It should run, but is stopped: its host.key is missing",
    cure: expect.stringContaining("register again: agent doctor has the line"),
  });
  expect(findingsOf(team({ state: "stopped" }), { unit: undefined }, now)[0]?.cure).toBe("agent start acme");
});
