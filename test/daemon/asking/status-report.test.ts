// The text of `agent status`, and when a missing daemon is a failure.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { OrganizationState } from "../../../src/daemon/ipc/messages.ts";
import { areHealthy, isDaemonMissed, readStatus } from "../../../src/daemon/asking/status-report.ts";
import { findingsOf } from "../../../src/daemon/asking/organization-findings.ts";
import { examineDaemon } from "../../../src/daemon/asking/doctor-checks.ts";
import { serveIpc } from "../../../src/daemon/ipc/server.ts";
import { lockState } from "../../../src/daemon/state.ts";
import { libc, quiet } from "../../support/ipc.ts";
import { renderStatus } from "../../../src/daemon/asking/status-text.ts";
import { realSystem } from "../../../src/base/system.ts";
import { whyNoTables } from "../../../src/platform/nftables.ts";
import { makeNodeWorld } from "../../support/node.ts";

const now = Date.UTC(2026, 10, 20, 12);
const status = (change: Partial<OrganizationState> = {}): OrganizationState => ({
  team: "acme",
  state: "running",
  wanted: "up",
  mode: "desktop",
  name: "desk",
  ip_address: "10.77.0.5",
  certificate_not_after: "2027-02-18T12:00:00Z",
  pid: 4711,
  uptime_s: 90_061,
  last_checkin_at: "2026-11-20T11:59:48Z",
  ...change,
});

let directory = "";
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "status-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

test("the first line is the summary, the table has the details", () => {
  const text = renderStatus({ daemon: { running: true }, teams: [status()] }, now);
  const [first, , head, row] = text.split("\n");
  expect(first).toBe("acme is running as 10.77.0.5");
  expect(head?.split(/ {2,}/)).toEqual([
    "ORGANIZATION",
    "STATE",
    "ADDRESS",
    "PROCESS",
    "UPTIME",
    "CERTIFICATE",
    "LAST CHECK-IN",
  ]);
  expect(row?.split(/ {2,}/)).toEqual([
    "acme",
    "running",
    "10.77.0.5",
    "4711",
    "1d 1h",
    "90 days left",
    "12s ago",
  ]);
});

test("several organizations are counted, the active one is marked, messages follow the table", () => {
  const { pid: _, uptime_s: __, last_checkin_at: ___, ...rest } = status({ team: "beta", state: "waiting" });
  const teams = [status({ active: true }), { ...rest, message: "The overlay engine ended (exit status 1)" }];
  const lines = renderStatus({ daemon: { running: true }, teams }, now).split("\n");
  expect(lines[0]).toBe("1 of 2 organizations running");
  expect(lines[3]).toStartWith("acme *");
  expect(lines[4]?.split(/ {2,}/)).toEqual(["beta", "waiting", "10.77.0.5", "-", "-", "90 days left", "-"]);
  expect(lines[6]).toBe("beta: The overlay engine ended (exit status 1)");
});

test("peers are a column if an engine reports them", () => {
  const teams = [status({ peers: 3 }), status({ team: "beta" })];
  const lines = renderStatus({ daemon: { running: true }, teams }, now).split("\n");
  expect(lines.slice(2, 5).map((line) => line.split(/ {2,}/)[5])).toEqual(["PEERS", "3", "-"]);
});

test("keys that wait for a restart are named with the command for it", () => {
  const waiting = status({ restart_pending: ["timers.connection_alive_interval"] });
  const lines = renderStatus({ daemon: { running: true }, teams: [waiting] }, now).split("\n");
  expect(lines[5]).toBe("acme: timers.connection_alive_interval will apply after `agent restart acme`");
});

test("no organization, an expired certificate and a missing daemon are said in words", () => {
  expect(renderStatus({ daemon: { running: false }, teams: [] }, now)).toBe(
    "No organization is registered on this machine\n",
  );
  const expired = status({ certificate_not_after: "2026-11-20T11:00:00Z" });
  expect(renderStatus({ daemon: { running: true }, teams: [expired] }, now)).toContain("expired");
  const stopped = { daemon: { running: false }, teams: [status({ state: "stopped" })] };
  expect(renderStatus(stopped, now)).toStartWith("The daemon is not running: acme is stopped\n");
});

test("a missing daemon counts only with a desktop organization", () => {
  expect(isDaemonMissed({ daemon: { running: false }, teams: [] })).toBe(false);
  expect(isDaemonMissed({ daemon: { running: false }, teams: [status({ mode: "server" })] })).toBe(false);
  expect(isDaemonMissed({ daemon: { running: false }, teams: [status()] })).toBe(true);
  expect(isDaemonMissed({ daemon: { running: true }, teams: [status()] })).toBe(false);
});

test("a daemon that hangs is not called absent, and its process is named", async () => {
  await using world = await makeNodeWorld();
  await world.register({ mode: "desktop" });
  const path = join(directory, "cmd.sock");
  const stateDb = join(directory, "state.db");
  const lock = lockState(stateDb);
  const server = await serveIpc({
    address: { kind: "socket", path },
    access: { groupId: undefined },
    libc,
    system: realSystem(),
    log: quiet,
    handle: () => new Promise<never>(() => {}),
  });
  const hurried = {
    ...world.system,
    sleep: (_: number, signal?: AbortSignal) => realSystem().sleep(50, signal),
  };
  const report = await readStatus(
    { address: { kind: "socket", path }, configRoot: world.root, stateDb },
    { slug: undefined },
    hurried,
  );
  expect(report.daemon).toEqual({ running: false, silent: true, pid: process.pid });
  const text = renderStatus(report, now);
  expect(text).toStartWith("The daemon does not answer: acme is ");
  const daemon = { answers: false, isSilent: true, pid: process.pid };
  expect(findingsOf(status(), { unit: undefined, daemon }, now)).toMatchObject([
    {
      what: expect.stringMatching(/^The daemon listens but does not answer: no change/),
      cure: expect.stringContaining(
        `kill -9 ${process.pid}, then run agent --ipc-mode socket as administrator`,
      ),
    },
  ]);
  const [check] = await examineDaemon(["acme"], report, { isRoot: true });
  expect(check).toMatchObject({ verdict: "fail", evidence: "it listens but does not answer" });
  const second = await world.agent(["--ipc-mode", "socket", "--state-db-path", stateDb]);
  expect(second.stderr).toContain(`Another daemon, process ${process.pid}, already uses ${stateDb}`);
  expect(second.stderr).toContain("agent status");
  lock?.release();
  await server.stop();
});

test("without daemon and without organizations the report is empty, not an error", async () => {
  mkdirSync(join(directory, "etc"));
  const places = {
    address: { kind: "socket", path: join(directory, "none.sock") },
    configRoot: join(directory, "etc"),
    stateDb: join(directory, "none.db"),
  } as const;
  expect(await readStatus(places, { slug: undefined }, realSystem())).toEqual({
    daemon: { running: false },
    teams: [],
  });
  expect(
    await readStatus({ ...places, configRoot: join(directory, "none") }, { slug: undefined }, realSystem()),
  ).toEqual({
    daemon: { running: false },
    teams: [],
  });
});

test("an interrupted registration that cannot be finished hides no other organization, and stays as it is", async () => {
  const configRoot = join(directory, "etc");
  for (const name of [".aa.replaced", ".aa.pending", "bb"]) {
    mkdirSync(join(configRoot, name), { recursive: true });
    for (const file of ["node-config.json", "credentials.json"])
      writeFileSync(join(configRoot, name, file), "{}");
  }
  // For root, what a missing permission is for other users.
  mkdirSync(join(configRoot, ".aa.pending/lock"));
  const before = readdirSync(configRoot);
  const address = { kind: "socket", path: join(directory, "none.sock") } as const;
  const places = { address, configRoot, stateDb: join(directory, "none.db") };
  const { teams } = await readStatus(places, { slug: undefined }, realSystem());
  expect(teams.map(({ team }) => team)).toEqual(["aa", "bb"]);
  expect(teams[0]?.message).toContain("lock");
  expect(readdirSync(configRoot)).toEqual(before);
});

test("of a file in the place of an organization, status says what it is, not how to start it", async () => {
  writeFileSync(join(directory, "fill"), "");
  const address = { kind: "socket", path: join(directory, "none.sock") } as const;
  const places = { address, configRoot: directory, stateDb: join(directory, "none.db") };
  const text = renderStatus(await readStatus(places, { slug: undefined }, realSystem()), now);
  expect(text).toContain("fill is a file, not the directory of an organization");
  expect(text).not.toContain("agent start");
});

test("how programs find names stands below the organizations, where names are on", () => {
  const report = { daemon: { running: true }, teams: [status()] };
  const notes = [
    "Programs find names by systemd-resolved",
    "Names of acme: waiting, its interface does not exist",
  ];
  expect(renderStatus({ ...report, names: { way: "resolved", notes } }, now)).toEndWith(
    `\n\n${notes.join("\n")}\n`,
  );
  expect(renderStatus(report, now)).not.toContain("names");
});

test("--check is content only while traffic passes", () => {
  const health = (verdict: string) => ({ health: { verdict } });
  const team = (name: string, change: object) =>
    ({
      team: name,
      mode: "server",
      state: "running",
      wanted: "up",
      ...change,
    }) as unknown as OrganizationState;
  const well = team("acme", health("running"));
  const ill = team("beta", health("degraded"));
  const stopped = team("gamma", { state: "stopped", wanted: "down" });
  const ended = team("delta", { state: "stopped" });
  const check = (teams: OrganizationState[], asked?: string) =>
    areHealthy({ daemon: { running: false }, teams }, asked);
  expect([[well], [well, stopped]].map((each) => check(each))).toEqual([true, true]);
  expect(
    [[], [stopped], [stopped, stopped], [ended], [ill], [well, ill], [well, ended]].map((each) =>
      check(each),
    ),
  ).not.toContain(true);
  expect(check([stopped], "gamma")).toBe(false);
});

test("a confirmation that the user has to give is said with its page, not for a revoked node", () => {
  const confirm = { until: "2026-11-27T12:00:00Z", url: "https://vpn.example.org/console/acme/" };
  const lines = (state: OrganizationState["state"]) =>
    renderStatus({ daemon: { running: true }, teams: [status({ state, confirm })] }, now).split("\n");
  expect(lines("running")[5]).toBe(
    `acme: its user has to confirm it by ${confirm.until}, or it is revoked. Its user signs in and confirms it: ${confirm.url}`,
  );
  expect(lines("revoked").join()).not.toContain(confirm.url);
});

test.skipIf(whyNoTables() !== undefined)(
  "without a daemon, a node in desktop mode reports no flows; one in server mode needs none",
  async () => {
    await using world = await makeNodeWorld();
    for (const [mode, name, said] of [
      ["desktop", "desk", "acme: flows are not reported: the daemon does not run this organization"],
      ["server", "srv", "acme: flows are reported: which peers"],
    ] as const) {
      await world.api("PATCH", "/api/org/acme/", { flows: true });
      rmSync(join(world.root, "acme"), { recursive: true, force: true });
      await world.register({ mode, name });
      expect((await world.agent(["status"])).stdout).toContain(said);
    }
  },
);
