// The clock of a control plane jumps while real nodes talk to it: nothing is signed, no CA rotation goes on, and the log
// stays short. Once the clock is back, all goes on by itself, and a revoked node is cut off as soon as ever. libfaketime
// sets the clock of the server alone; a boot is a time namespace with another boot id.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { paths } from "../support/paths.ts";
import { Authorities } from "../../src/api/certificates/authorities.ts";
import { buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { inCi, installMissing } from "../support/debian.ts";
import { asRoot, engineNamed } from "../support/engines.ts";
import { makeMembers, until, type Member } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import {
  makeOrganization,
  registerNode,
  signIn,
  tryRegister,
  type Organization,
} from "../support/overlay.ts";
import { createDatabase, describePostgres, startPostgres, type Postgres } from "../support/postgres.ts";
import { figures, revocationBars, revokeOnce } from "../support/revocation.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = installMissing(["/usr/bin/faketime"]);
if (missing !== undefined && inCi) throw new Error(missing);
buildAgent();

const library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/** Servers look at their clock every second, and nodes ask at once after a change. */
const heldMs = inFull ? 75_000 : 8000;

type Boot = { id: string; uptimeS: number };

/** A control plane whose clock a test sets. */
type Clocked = { plane: ControlPlane; set(jump: string): void; restart(boot?: Boot): Promise<void> };

async function startClocked(
  directory: string,
  flags: readonly string[] = [],
): Promise<Clocked & AsyncDisposable> {
  const data = join(directory, "server");
  const clock = join(directory, "clock");
  const set = (jump: string) => writeFileSync(clock, `${jump}\n`);
  set("+0");
  const faked = [
    "env",
    `LD_PRELOAD=${library}`,
    `FAKETIME_TIMESTAMP_FILE=${clock}`,
    "FAKETIME_NO_CACHE=1",
    "DONT_FAKE_MONOTONIC=1",
    "FAKETIME_DONT_FAKE_MONOTONIC=1",
    "NO_FAKE_STAT=1",
  ];
  const booted = ({ id, uptimeS }: Boot) => {
    const path = join(directory, `boot-${id}`);
    writeFileSync(path, `${id}\n`);
    const script = `mount --bind ${path} /proc/sys/kernel/random/boot_id && exec "$@"`;
    const offset = uptimeS - Math.floor(Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]));
    return ["unshare", "--mount", "--time", "--boottime", String(offset), "sh", "-c", script, "sh"];
  };
  const start = (port = 0, boot?: Boot) =>
    startControlPlane(data, flags, port, (argv) => [
      ...(boot === undefined ? [] : booted(boot)),
      ...faked,
      ...argv,
    ]);
  let logs = "";
  let present = await start();
  const plane: ControlPlane = {
    ...present,
    log: () => logs + present.log(),
    // In the right time, as an administrator beside it.
    admin: (args, input = "") => runAgent(["admin", ...args, "--data-dir", data, ...flags], { input }),
  };
  return {
    plane,
    set,
    async restart(boot) {
      await present.stop();
      logs += present.log();
      present = await start(Number(new URL(plane.url).port), boot);
    },
    [Symbol.asyncDispose]: async () => void (await present.stop()),
  };
}

const rotationOf = async ({ api, slug }: Organization) =>
  v.parse(Authorities, await (await api("GET", `/api/org/${slug}/ca/`)).json()).rotation.phase;

const Ready = v.object({ status: v.string(), warnings: v.array(v.string()) });
const warningsOf = async ({ url }: ControlPlane) =>
  v.parse(Ready, await (await fetch(`${url}/readyz`)).json()).warnings;

const refusal = async (answer: Response) => [answer.status, v.parse(ErrorBody, await answer.json()).code];

/** What the server writes by itself: a request has a line of its own, also one that is refused. */
const ownLines = ({ log }: ControlPlane) =>
  log()
    .split("\n")
    .filter((line) => !line.includes("request_id="));
const clockLines = (plane: ControlPlane) =>
  ownLines(plane).filter((line) => line.includes("clock of this server"));

function validFrom({ places }: Member): number {
  const [certificate] = decodeBundle(readFileSync(join(places.configRoot, "acme/host.crt"), "utf8"));
  return (certificate?.notBefore ?? 0) * 1000;
}

type Scene = { clocked: Clocked; acme: Organization; members: Member[]; directory: string };

async function withScene(
  databaseFlags: () => Promise<string[]>,
  work: (scene: Scene) => Promise<void>,
): Promise<void> {
  using directory = temporaryDirectory();
  using lan = makeLan(["lighthouse", "peer", "victim"]);
  await using clocked = await startClocked(directory.path, await databaseFlags());
  const acme = await makeOrganization(clocked.plane);
  await using scene = await makeMembers(acme, lan, directory.path, engineNamed("sid").nebula);
  await work({ clocked, acme, members: scene.members, directory: directory.path });
}

/** Revokes the third member. Its daemon is killed, so that only the others enforce it, without any command on them. */
async function revokedInTime(
  { acme, members }: Scene,
  what: string,
  between?: () => Promise<Organization>,
): Promise<void> {
  const [lighthouse, peer, victim] = members;
  if (lighthouse === undefined || peer === undefined || victim === undefined) throw new Error("No members");
  const trial = await revokeOnce(acme, victim, [lighthouse, peer], between);
  process.stderr.write(`${what}: ${figures([trial])}\n`);
  expect(trial.reloadMs).toBeLessThan(revocationBars.reloadMs);
  expect(trial.lastPingMs).toBeLessThan(revocationBars.lastPingMs);
}

/** `isShared`: a server on PostgreSQL does not start while its clock differs from that of the database. */
async function survivesJump(
  jump: string,
  databaseFlags: () => Promise<string[]>,
  { isShared = false } = {},
): Promise<void> {
  await withScene(databaseFlags, async (scene) => {
    const { clocked, acme, members, directory } = scene;
    const { plane, set } = clocked;
    const other = await makeOrganization(plane, "other", "10.78.0.0/16");
    const [token, late] = [await other.makeToken(), await other.makeToken(["--uses", "2"])];
    await registerNode(other, join(directory, "waiting"), "waiting", token);
    // It waits for the node, which is registered and does not run.
    expect((await other.api("POST", "/api/org/other/ca/rotate/", { action: "start" })).status).toBe(200);
    expect(await rotationOf(other)).toBe("trust");
    const renew = async ({ id }: Member) => acme.api("POST", paths.renewCert("acme", id), {});
    const before = members.map(validFrom);

    const linesBefore = ownLines(plane).length;
    set(jump);
    await until("the doubt", () => clockLines(plane).length > 0, 10_000);
    const end = performance.now() + heldMs;
    while (performance.now() < end) {
      for (const member of members)
        expect(await refusal(await renew(member))).toEqual([503, "clock_doubted"]);
      const refused = await tryRegister(other, join(directory, "late"), "late", late);
      expect([refused.status, refused.stdout]).toEqual([
        expect.any(Number),
        expect.stringContaining("clock_doubted"),
      ]);
      expect(await warningsOf(plane)).toContain("clock_doubted");
      for (const org of [acme, other]) expect(await rotationOf(org)).toBe(org === acme ? "none" : "trust");
      await Bun.sleep(1000);
    }
    expect(ownLines(plane).length - linesBefore).toBe(1);
    if (isShared) set("+0");
    await clocked.restart();
    if (!isShared) {
      await until("the doubt after a restart", () => clockLines(plane).length > 1, 10_000);
      for (const member of members)
        expect(await refusal(await renew(member))).toEqual([503, "clock_doubted"]);
    }

    set("+0");
    await until(
      "the end of the doubt",
      async () => !(await warningsOf(plane)).includes("clock_doubted"),
      10_000,
    );
    expect(members.map(validFrom)).toEqual(before);
    expect(await rotationOf(other)).toBe("trust");
    await registerNode(other, join(directory, "late"), "late", late);
    await revokedInTime(scene, `a jump of ${jump}`);
    for (const member of members) expect((await renew(member)).status).toBe(200);
    await until(
      "new certificates",
      () => members.every((each, at) => validFrom(each) > (before[at] ?? 0)),
      30_000,
    );
    expect(clockLines(plane).length).toBeLessThan(5);
  });
}

const downloadsOf = ({ daemon }: Member) => daemon.log().split("/download_config/ status=200").length;

/** A machine whose clock is wrong at its boot, until the network sets it. */
async function survivesBoot(jump: string, isDoubted: boolean): Promise<void> {
  await withScene(onSqlite, async (scene) => {
    const { clocked, members, directory, acme } = scene;
    const { plane, set } = clocked;
    const before = members.map(validFrom);
    set(jump);
    await clocked.restart({ id: crypto.randomUUID(), uptimeS: 60 });
    const early = await signIn(plane, "acme");
    const downloaded = members.map(downloadsOf);
    for (const { id } of members)
      expect((await early.api("POST", paths.renewCert("acme", id), {})).status).toBe(isDoubted ? 503 : 200);
    const rotated = await early.api("POST", "/api/org/acme/ca/rotate/", { action: "start" });
    expect(rotated.status).toBe(isDoubted ? 503 : 200);
    const isWarned = (await warningsOf(plane)).includes("clock_doubted");
    expect(isWarned).toBe(isDoubted);
    const refuses = (each: Member, at: number) => downloadsOf(each) > (downloaded[at] ?? 0) + 1;
    if (!isDoubted) await until("downloads that are refused", () => members.every(refuses));
    // The nodes know the time.
    expect((await warningsOf(plane)).includes("clock_doubted_by_nodes")).toBe(!isDoubted);

    // While the nodes refuse what they are sent; then the network sets the clock.
    await revokedInTime({ ...scene, acme: early }, `a boot at ${jump}`, async () => {
      set("+0");
      return acme;
    });
    expect(members.map(validFrom).every((from) => from <= Date.now())).toBe(true);
    const isRight = async () => !(await warningsOf(plane)).includes("clock_doubted");
    await until("the end of the doubt", isRight, 10_000);
    await until("the end of the rotation", async () => (await rotationOf(acme)) === "none", 180_000);
    await registerNode(acme, join(directory, "late"), "late", await acme.makeToken());
    for (const { id } of members)
      expect((await acme.api("POST", paths.renewCert("acme", id), {})).status).toBe(200);
    const hasNew = (each: Member, at: number) => validFrom(each) > (before[at] ?? 0);
    await until("new certificates", () => members.every(hasNew), 90_000);
  });
}

const onSqlite = async () => [];

/** Against the bars of an idle machine one by one: otherwise most of the time is waiting. */
const testBeside = inFull ? test : test.concurrent;

asRoot("the clock of the control plane", () => {
  for (const jump of inFull ? ["+5d", "+3650d", "-400d"] : ["+5d", "+3650d"])
    testBeside(`jumps by ${jump}, and back`, () => survivesJump(jump, onSqlite), 300_000);
  for (const [jump, isDoubted] of [
    ["+5d", false],
    ["-400d", true],
    ...(inFull ? ([["+3650d", true]] as const) : []),
  ] as const)
    testBeside(`is wrong by ${jump} at a boot`, () => survivesBoot(jump, isDoubted), 300_000);
});

describePostgres("the clock of a control plane on PostgreSQL", () => {
  let cluster: Postgres;
  beforeAll(async () => void (cluster = await startPostgres()));
  afterAll(() => cluster.stop());
  const onPostgres = async () => ["--database-url", await createDatabase(cluster.directory)];
  asRoot("of one server", () => {
    test("jumps by +5d, and back", () => survivesJump("+5d", onPostgres, { isShared: true }), 300_000);
  });
});
