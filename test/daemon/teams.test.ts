// The teams of a machine and what can be asked of them, with real files, a real store and real processes: a script
// stands in for the engine. Only the control plane is played.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { actions, makeHandler, noticeOf } from "../../src/daemon/actions.ts";
import type { ControlPlane, TeamNews } from "../../src/daemon/control-plane.ts";
import { makeGate } from "../../src/daemon/gate.ts";
import type { Answer, Notice, Request } from "../../src/daemon/ipc/messages.ts";
import type { Client } from "../../src/daemon/ipc/answer.ts";
import { openState, type StateStore } from "../../src/daemon/state.ts";
import { makeTeams, type Teams } from "../../src/daemon/teams.ts";
import { AppError } from "../../src/errors.ts";
import { encodePem, makeCa, signCertificate } from "../../src/pki/nebula.ts";
import { realSystem } from "../../src/system.ts";

const system = realSystem();
const said: string[] = [];
const keep = (text: string, fields = {}) => void said.push(`${text} ${JSON.stringify(fields)}`);
const log = { debug() {}, info: keep, warn: keep, error: keep };
const day = 86_400;

let directory = "";
let configRoot = "";
let opened: { teams: Teams; store: StateStore }[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "teams-"));
  configRoot = join(directory, "etc");
  mkdirSync(configRoot);
  [opened, said.length] = [[], 0];
  const script = `#!/bin/bash
case $1 in -version) echo "Version: 1.10.3"; exit;; -test) echo once >>"$0.tests"; exit;; esac
trap 'exit 0' TERM
trap : HUP
echo '{"level":"info","msg":"Nebula interface is active"}'
while :; do sleep 0.01; done
`;
  writeFileSync(join(directory, "engine"), script, { mode: 0o755 });
});

afterEach(async () => {
  for (const { teams, store } of opened) {
    await teams.shutDown();
    store.close();
  }
  rmSync(directory, { recursive: true, force: true });
});

function register(
  slug: string,
  change: { octet?: number; mode?: string; days?: number; registeredAt?: string; network6?: string } = {},
): void {
  const { octet = 77, mode = "desktop", days = 90, registeredAt = "2026-11-20T00:00:00Z", network6 } = change;
  const version = network6 === undefined ? 1 : 2;
  const now = Math.floor(Date.now() / 1000);
  const ca = makeCa({ version, name: slug, notBefore: now - day, notAfter: now + 400 * day });
  const certificate = signCertificate(
    {
      version,
      name: "desk",
      networks: [`10.${octet}.0.5/16`, ...(network6 === undefined ? [] : [network6])],
      unsafeNetworks: [],
      groups: [],
      notBefore: now - day,
      notAfter: now + days * day,
      publicKey: new Uint8Array(32).fill(7),
    },
    ca,
  );
  const node = {
    schema: 1,
    node_id: octet,
    name: "desk",
    org_slug: slug,
    ip_address: `10.${octet}.0.5`,
    mode,
  };
  const rest = { network: `10.${octet}.0.0/16`, is_lighthouse: false, is_relay: false, config_version: 1 };
  mkdirSync(join(configRoot, slug), { recursive: true });
  const files = {
    "config.yml": `tun: {dev: "o-${slug}"}\n`,
    "host.crt": encodePem(certificate),
    "node-config.json": JSON.stringify({ ...node, ...rest, registered_at: registeredAt }),
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(configRoot, slug, name), text);
}

function open(options: { mayStart?: boolean; engine?: string } = {}) {
  const { mayStart = true, engine = join(directory, "engine") } = options;
  const followed: string[] = [];
  const synced: string[] = [];
  const told: TeamNews[] = [];
  const controlPlane: ControlPlane = {
    async follow({ slug }, _control, news, signal) {
      followed.push(slug);
      news.checkedIn("2026-11-20T12:00:00Z");
      told.push(news);
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      // A change that is just being applied.
      await Bun.sleep(20);
      followed.splice(followed.indexOf(slug), 1);
    },
    async sync({ slug }) {
      synced.push(slug);
      await Bun.sleep(20);
      return { access: "ok", action: "none", result: "same", configVersion: synced.length };
    },
  };
  const notices: Notice[] = [];
  const store = openState(join(directory, "state.db"), log, Date.now);
  const teams = makeTeams({
    configRoot,
    stateDirectory: directory,
    store,
    system,
    monotonic: () => performance.now(),
    log,
    gate: makeGate({ configRoot, overlayBinary: engine, overlayBinaryGiven: true }, system, log),
    controlPlane,
    publish: ({ team, status }) => void notices.push(noticeOf(team, status)),
  });
  teams.open(mayStart);
  const made = { teams, store, notices, followed, told, synced };
  opened.push(made);
  return made;
}

const stateOf = (teams: Teams, slug: string) => teams.status(slug)[0]?.state;

async function until(what: () => boolean): Promise<void> {
  for (let waited = 0; !what(); waited += 5) {
    if (waited > 8000) throw new Error(`Waited in vain for ${what.toString()}`);
    await Bun.sleep(5);
  }
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  return error instanceof AppError ? error.code : String(error);
}

/** Ends a daemon as SIGKILL would: its engines live on. */
async function crash(made: ReturnType<typeof open>): Promise<void> {
  await made.teams.handOver();
  expect(made.followed).toEqual([]);
  made.store.close();
  opened = opened.filter(({ teams }) => teams !== made.teams);
}

test("desktop teams found in the config root are started, stay connected, and are taken over by the next daemon", async () => {
  register("acme");
  register("server", { octet: 78, mode: "server" });
  mkdirSync(join(configRoot, ".beta.pending"));
  const first = open();
  await until(() => stateOf(first.teams, "acme") === "running");
  expect(first.teams.slugs()).toEqual(["acme"]);
  expect(first.followed).toEqual(["acme"]);
  first.told[0]?.restartPending(["tun.dev"]);
  first.told[0]?.restartPending([]);
  first.told[0]?.restartPending(["listen.port", "tun.dev"]);
  const [status] = first.teams.status();
  expect(status).toMatchObject({
    team: "acme",
    state: "running",
    wanted: "up",
    ip_address: "10.77.0.5",
    last_checkin_at: "2026-11-20T12:00:00Z",
    restart_pending: ["tun.dev", "listen.port"],
  });
  await crash(first);
  const second = open();
  expect(second.teams.status()[0]).toMatchObject({
    pid: status?.pid,
    wanted: "up",
    restart_pending: ["tun.dev", "listen.port"],
  });
  await second.teams.restart("acme");
  expect(second.teams.status()[0]?.pid).not.toBe(status?.pid);
  expect(second.teams.status()[0]?.restart_pending).toBeUndefined();
});

test("a stopped team stays stopped and a forgotten one forgotten, across daemons, until somebody asks", async () => {
  register("acme");
  register("beta", { octet: 78 });
  const first = open();
  await until(() => first.teams.status().every(({ state }) => state === "running"));
  await first.teams.stop("acme");
  await first.teams.forget("beta");
  await until(() => first.followed.length === 0);
  expect(first.notices.at(-1)).toEqual({ event: "gone", team: "beta" });
  await crash(first);

  const second = open();
  expect(second.teams.slugs()).toEqual(["acme"]);
  expect(stateOf(second.teams, "acme")).toBe("stopped");
  expect(second.teams.provision()).toEqual(["beta"]);
  await until(() => stateOf(second.teams, "beta") === "running");
  await second.teams.forget("beta");
  await second.teams.start("beta");
  expect(second.teams.slugs()).toEqual(["acme", "beta"]);
  expect(await codeOf(second.teams.start("gamma"))).toBe("not_registered");
  expect(await codeOf(second.teams.stop("gamma"))).toBe("unknown_team");
});

test("without autostart nothing is started, and what runs is kept", async () => {
  register("acme");
  register("beta", { octet: 78 });
  const first = open();
  await until(() => first.teams.status().every(({ state }) => state === "running"));
  await first.teams.stop("beta");
  await crash(first);
  const second = open({ mayStart: false });
  await until(() => stateOf(second.teams, "acme") === "running");
  await second.teams.shutDown();
  await crash(second);
  const third = open({ mayStart: false });
  expect(third.teams.status().map(({ state }) => state)).toEqual(["stopped", "stopped"]);
});

test("teams that collide are refused before the second starts, in any order; switch changes places", async () => {
  register("acme");
  register("beta");
  const { teams } = open();
  await until(() => teams.status().filter(({ state }) => state === "running").length === 1);
  const [winner = "", loser = ""] =
    stateOf(teams, "acme") === "running" ? ["acme", "beta"] : ["beta", "acme"];
  expect(teams.status(loser)[0]?.message).toContain(`${loser} cannot run beside ${winner}: their networks`);
  expect(await codeOf(teams.start(loser))).toBe("collision");
  expect(teams.pid(loser)).toBeUndefined();
  await teams.switch(loser);
  expect(teams.status(loser)[0]).toMatchObject({ state: "running", active: true });
  expect(stateOf(teams, winner)).toBe("stopped");
});

test("an IPv6 network beside the other counts too", async () => {
  register("acme", { network6: "fd77::5/64" });
  register("beta", { octet: 78, network6: "fd77::9/64" });
  const { teams } = open({ mayStart: false });
  await teams.start("acme");
  expect(await codeOf(teams.start("beta"))).toBe("collision");
});

test("however many ask at once, a team gets one engine, and the last switch wins", async () => {
  register("acme");
  register("beta");
  const { teams } = open({ mayStart: false });
  await teams.forget("acme");
  await Promise.all([teams.start("acme"), teams.start("acme"), teams.start("acme")]);
  // Each leads a session of its own; what the script starts belongs to it.
  const engines = () =>
    Bun.spawnSync(["ps", "-eo", "pid=,sid=,args="])
      .stdout.toString()
      .split("\n")
      .filter((line) => line.includes(`-config ${configRoot}/`))
      .map((line) => line.trim().split(/ +/))
      .flatMap(([pid = "", session]) => (pid === session ? [pid] : []));
  expect(engines()).toEqual([String(teams.pid("acme"))]);
  await Promise.all([teams.switch("beta"), teams.switch("acme"), teams.switch("beta")]);
  expect(teams.status().map(({ team, state, active }) => [team, state, active])).toEqual([
    ["acme", "stopped", undefined],
    ["beta", "running", true],
  ]);
  expect(engines()).toEqual([String(teams.pid("beta"))]);
});

test("what many ask at once costs the machine and the control plane once", async () => {
  register("acme");
  const { teams, synced } = open({ mayStart: false });
  const outcomes = Array.from({ length: 50 }, () => teams.sync("acme"));
  await Bun.sleep(5);
  outcomes.push(...Array.from({ length: 50 }, () => teams.sync("acme")));
  const versions = (await Promise.all(outcomes)).map(({ configVersion }) => configVersion);
  expect([new Set(versions.slice(0, 50)), new Set(versions.slice(50))]).toEqual([new Set([1]), new Set([2])]);
  expect(synced).toEqual(["acme", "acme"]);
  await Promise.all(Array.from({ length: 50 }, () => teams.start("acme")));
  // Before it is granted, and before it is done.
  expect(readFileSync(join(directory, "engine.tests"), "utf8")).toBe("once\nonce\n");
});

test("a daemon that ends stops what is about to start, and refuses every change", async () => {
  register("acme");
  register("beta", { octet: 78 });
  const { teams } = open({ mayStart: false });
  const asked = [codeOf(teams.start("acme")), codeOf(teams.start("beta"))];
  await Bun.sleep(1);
  const ended = teams.shutDown();
  const late = [teams.start("acme"), teams.stop("beta"), teams.switch("beta"), teams.restart("acme")];
  expect(await Promise.all(late.map(codeOf))).toEqual(["busy", "busy", "busy", "busy"]);
  expect(teams.provision()).toEqual([]);
  await ended;
  await Promise.all(asked);
  expect(teams.status().map(({ state, pid }) => [state, pid])).toEqual([
    ["stopped", undefined],
    ["stopped", undefined],
  ]);
});

test("an engine that runs is not stopped for one that would not start", async () => {
  register("acme");
  const { teams } = open();
  await until(() => stateOf(teams, "acme") === "running");
  const pid = teams.pid("acme");
  writeFileSync(join(configRoot, "acme", "config.yml"), "tun: [");
  expect(await codeOf(teams.restart("acme"))).toBe("bad_configuration");
  expect(teams.pid("acme")).toBe(pid);
  expect(stateOf(teams, "acme")).toBe("running");
});

test("an engine that runs is taken over and connected even where its configuration is damaged", async () => {
  register("acme");
  const first = open();
  await until(() => stateOf(first.teams, "acme") === "running");
  const pid = first.teams.pid("acme");
  await crash(first);
  rmSync(join(configRoot, "acme", "config.yml"));
  const second = open();
  expect(second.teams.status()[0]).toMatchObject({ pid, wanted: "up" });
  expect(second.followed).toEqual(["acme"]);
});

test("what forbids a start is the answer, and leaves things as they were", async () => {
  register("acme");
  const { teams } = open({ mayStart: false, engine: join(directory, "none") });
  expect(await codeOf(teams.start("acme"))).toBe("engine_missing");
  writeFileSync(
    join(configRoot, "acme", "auth-revoked.json"),
    JSON.stringify({ revoked_at: "2026-11-20T00:00:00Z", reason: "left", node_id: 77 }),
  );
  expect(await codeOf(teams.start("acme"))).toBe("access_revoked");
  expect(teams.status()[0]).toMatchObject({ state: "revoked", message: "Access was revoked: left" });
});

test("a team that is registered anew gets a new connection and a new engine", async () => {
  register("acme");
  const { teams, followed } = open();
  await until(() => stateOf(teams, "acme") === "running");
  const before = teams.pid("acme");
  expect(teams.provision()).toEqual([]);
  register("acme", { registeredAt: "2026-11-21T00:00:00Z" });
  expect(teams.provision()).toEqual(["acme"]);
  await until(() => stateOf(teams, "acme") === "running" && teams.pid("acme") !== before);
  await until(() => followed.length === 1);
});

test("a certificate that ends soon is said from fourteen days before", async () => {
  register("acme", { days: 10 });
  register("beta", { octet: 78, days: 20 });
  const { teams } = open({ mayStart: false });
  expect(teams.status().map(({ message }) => message)).toEqual(["The certificate ends in 9 days", undefined]);
  teams.tidy();
  teams.tidy();
  expect(said.filter((line) => line.includes("certificate"))).toEqual([
    'The certificate ends in 9 days {"team":"acme"}',
  ]);
});

test("a damaged directory costs only its own team", async () => {
  register("acme");
  register("beta", { octet: 78 });
  writeFileSync(join(configRoot, "beta", "node-config.json"), "{");
  const { teams } = open();
  await until(() => stateOf(teams, "acme") === "running");
  expect(teams.slugs()).toEqual(["acme"]);
  expect(said.join("\n")).toContain("is left out");
});

const client = (right: "root" | "member"): Client & { lines: Notice[]; leave(): void } => {
  const gone = new AbortController();
  const lines: Notice[] = [];
  return {
    peer: { pid: 9, uid: right === "root" ? 0 : 1000, gid: 100, right },
    notify: (notice) => void lines.push(notice),
    stay() {},
    gone: gone.signal,
    lines,
    leave: () => gone.abort(new Error("left")),
  };
};

test("every action of the table is there, and only root may end the daemon", async () => {
  register("acme");
  const { teams } = open();
  await until(() => stateOf(teams, "acme") === "running");
  let ended = 0;
  const handle = makeHandler({ teams, subscribers: new Set(), system, log, shutDown: () => (ended += 1) });
  const ask = (request: Request, right: "root" | "member" = "member"): Promise<Answer> =>
    handle(request, client(right));
  expect(Object.keys(actions).sort()).toEqual(
    "delete list logs provision restart shutdown start status stop subscribe switch sync teams version".split(
      " ",
    ),
  );
  expect(await ask({ action: "teams" })).toMatchObject({ ok: true, teams: ["acme"] });
  for (const action of ["list", "status"])
    expect(await ask({ action })).toMatchObject({
      ok: true,
      teams: [{ team: "acme", mode: "desktop" }],
      pid: process.pid,
    });
  expect(await ask({ action: "sync", team: "acme" })).toMatchObject({
    result: "same",
    access: "ok",
    config_version: 1,
  });
  expect(await ask({ action: "stop", team: "acme", reason: "night" })).toMatchObject({
    ok: true,
    team: "acme",
  });
  expect(said.join("\n")).toMatch(/Asked for a change.*"uid":1000,"pid":9,"reason":"night"/);
  expect(await codeOf(ask({ action: "shutdown" }))).toBe("permission_denied");
  expect(said.at(-1)).toContain("refused");
  for (const action of ["start", "stop", "restart", "switch", "delete", "sync", "logs"])
    expect(await codeOf(ask({ action }))).toBe("validation_failed");
  for (const action of ["nonsense", "constructor", "__proto__"])
    expect(await codeOf(ask({ action }))).toBe("unknown_action");
  expect(ended).toBe(0);
  await ask({ action: "shutdown" }, "root");
  expect(ended).toBe(1);
});

test("logs are read and followed, changes are told to those who subscribed", async () => {
  register("acme");
  const { teams } = open();
  await until(() => stateOf(teams, "acme") === "running");
  const subscribers = new Set<(notice: Notice) => void>();
  const handle = makeHandler({ teams, subscribers, system, log, shutDown() {} });
  const reader = client("member");
  const answer = await handle({ action: "logs", team: "acme", lines: 5, follow: true }, reader);
  expect(answer.lines?.[0]).toContain("is active");
  const path = teams.logPath("acme");
  expect(dirname(path)).toBe(join(directory, "logs"));
  await Bun.write(path, `${await Bun.file(path).text()}one more\n`);
  await until(() => reader.lines.length > 0);
  expect(reader.lines).toEqual([{ event: "log", team: "acme", line: "one more" }]);
  await handle({ action: "subscribe" }, reader);
  expect(subscribers.size).toBe(1);
  reader.leave();
  expect(subscribers.size).toBe(0);
  expect(await codeOf(handle({ action: "logs", team: "beta" }, reader))).toBe("unknown_team");
});
