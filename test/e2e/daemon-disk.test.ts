// The daemon on a disk that is full, and with a state database that is damaged: engines run on, what cannot be kept is
// refused and said, and all is well again when the disk is, without a restart.

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { OrganizationState } from "../../src/daemon/ipc/messages.ts";
import { AppError } from "../../src/base/errors.ts";
import { buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import {
  ask,
  command,
  enginesOf,
  placesBelow,
  registerDesktop,
  startDaemon,
  statusOf,
  untilStatus,
} from "../support/daemon.ts";
import { runSync } from "../support/debian.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

/** A desktop team that is registered and has no daemon yet. */
async function makeDesk(directory: string, acme: Organization) {
  const places = placesBelow(join(directory, "desk"), "/usr/bin/nebula");
  await registerDesktop(acme, places, await acme.makeToken(), "desk");
  return places;
}

/** A small disk of its own at this place. */
function smallDisk(at: string, size = "1m"): Disposable {
  mkdirSync(at, { recursive: true });
  runSync(["mount", "-t", "tmpfs", "-o", `size=${size}`, "tmpfs", at]);
  return { [Symbol.dispose]: () => void runSync(["umount", "--lazy", at]) };
}

async function refusal(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => "done",
    (error: unknown) => (error instanceof AppError ? `${error.code}: ${error.message}` : String(error)),
  );
}

asRoot("the daemon's disk", () => {
  test("full: changes are refused and said, the engine is watched on, also by the next daemon; with room again all goes on", async () => {
    using directory = temporaryDirectory();
    await using plane = await startControlPlane(join(directory.path, "server"));
    const places = await makeDesk(directory.path, await makeOrganization(plane));
    using lan = makeLan(["desk"]);
    const disk = join(places.stateDb, "..");
    using mounted = smallDisk(disk);
    expect(mounted).toBeDefined();
    let daemon = await startDaemon(lan.host("desk"), places);
    const { pid = 0 } = await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);

    Bun.spawnSync(["dd", "if=/dev/zero", `of=${disk}/fill`, "bs=4k"], { stderr: "ignore" });
    for (const action of ["stop", "switch", "delete"])
      expect(await refusal(ask(places, { action, team: "acme" }))).toStartWith("disk_full: Cannot write");
    expect(await statusOf(places, "acme")).toMatchObject({ state: "running", wanted: "up", pid });
    process.kill(pid, "SIGKILL");
    const isNew = ({ state, pid: now }: OrganizationState) => state === "running" && now !== pid;
    const again = await untilStatus(places, "acme", isNew, 60_000);
    expect(daemon.log()).toContain("Cannot save the state of an organization");

    daemon.signal("SIGKILL");
    await daemon.exited;
    daemon = await startDaemon(lan.host("desk"), places);
    expect(await statusOf(places, "acme")).toMatchObject({ wanted: "up", pid: again.pid });
    expect(await refusal(ask(places, { action: "stop", team: "acme" }))).toStartWith("disk_full: ");

    rmSync(join(disk, "fill"));
    daemon.signal("SIGHUP");
    await ask(places, { action: "stop", team: "acme" });
    await ask(places, { action: "start", team: "acme" });
    const { pid: last } = await statusOf(places, "acme");
    expect(last).not.toBe(again.pid);
    daemon.signal("SIGKILL");
    await daemon.exited;
    const next = await startDaemon(lan.host("desk"), places);
    expect(await statusOf(places, "acme")).toMatchObject({ wanted: "up", pid: last });
    await ask(places, { action: "shutdown" });
    expect(await next.exited).toBe(0);
  }, 180_000);

  test("nearly full: status and doctor say so before it is full, and only as long", async () => {
    using directory = temporaryDirectory();
    await using plane = await startControlPlane(join(directory.path, "server"));
    const places = await makeDesk(directory.path, await makeOrganization(plane));
    using lan = makeLan(["desk"]);
    const disk = join(places.stateDb, "..");
    using mounted = smallDisk(disk, "300m");
    expect(mounted).toBeDefined();
    const daemon = await startDaemon(lan.host("desk"), places);
    await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
    const kindsOf = ({ health }: OrganizationState) => (health?.findings ?? []).map(({ kind }) => kind);
    const told = (kind: string | undefined) =>
      untilStatus(
        places,
        "acme",
        (team) => kindsOf(team).find((each) => each.startsWith("disk_")) === kind,
        30_000,
      );
    const fill = (size: string) => runSync(["fallocate", "-l", size, join(disk, "fill")]);
    await told(undefined);
    fill("275m");
    await told("disk_filling");
    const { stdout } = await command(places, ["status"]);
    expect(stdout).toMatch(
      /^acme: The disk is nearly full: \S+ MB of \S+ MB are free at \S+: Free some disk space/m,
    );
    fill("299m");
    await told("disk_full");
    const doctor = await command(places, ["doctor"]);
    expect(doctor.stdout).toMatch(/^FAIL +acme traffic +The disk is full: /m);
    rmSync(join(disk, "fill"));
    await told(undefined);
    await ask(places, { action: "shutdown" });
    expect(await daemon.exited).toBe(0);
  }, 180_000);

  test.each([
    ["in its usual place", "/var/lib/overlay-agent/server"],
    ["where its settings say", "/srv/plane"],
  ])(
    "of a control plane %s: doctor warns before it is full, and fails when it is",
    async (_, data) => {
      using directory = temporaryDirectory();
      const root = join(directory.path, "root");
      /** Sees the disk in that place; the machine does not. */
      const doctorWith = async (fill: string) => {
        const script = `
        mkdir -p ${directory.path}/m
        mount -t tmpfs tmpfs ${directory.path}/m
        cd ${directory.path}/m
        for each in etc var srv; do
          mkdir -p up/$each work/$each
          mount -t overlay overlay -o lowerdir=/$each,upperdir=up/$each,workdir=work/$each /$each
        done
        mkdir -p /etc/overlay-agent ${data}
        echo 'data-dir = "${data}"' >/etc/overlay-agent/control-plane.toml
        mount -t tmpfs -o size=300m tmpfs ${data}
        fallocate -l ${fill} ${data}/fill
        exec "$@"`;
        const { stdout } = await runAgent(["doctor", "--json", "--config-root", root], {
          inside: (argv) => ["unshare", "--mount", "sh", "-ec", script, "sh", ...argv],
        });
        const Checks = v.object({
          checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
        });
        return v.parse(Checks, JSON.parse(stdout)).checks.find(({ id }) => id === "control-plane-disk");
      };
      expect(await doctorWith("100m")).toMatchObject({ verdict: "ok" });
      expect(await doctorWith("275m")).toMatchObject({
        verdict: "warn",
        evidence: expect.stringMatching(new RegExp(`MB are free at ${data}`)),
      });
      expect(await doctorWith("299m")).toMatchObject({ verdict: "fail" });
    },
    60_000,
  );

  test("damaged: the state is renamed and rebuilt around the running engine", async () => {
    using directory = temporaryDirectory();
    await using plane = await startControlPlane(join(directory.path, "server"));
    const places = await makeDesk(directory.path, await makeOrganization(plane));
    using lan = makeLan(["desk"]);
    const first = await startDaemon(lan.host("desk"), places);
    const { pid } = await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
    first.signal("SIGKILL");
    await first.exited;
    // A sound log of its changes would mend it.
    rmSync(`${places.stateDb}-wal`);
    writeFileSync(places.stateDb, "no database, and long enough to be taken for one ".repeat(100));
    const second = await startDaemon(lan.host("desk"), places);
    expect(await statusOf(places, "acme")).toMatchObject({ wanted: "up", pid });
    expect(enginesOf(places)).toEqual([pid ?? 0]);
    expect(second.log()).toContain("The state database is damaged");
    expect(readdirSync(join(places.stateDb, "..")).some((name) => name.includes(".damaged-"))).toBe(true);
    await ask(places, { action: "shutdown" });
    expect(await second.exited).toBe(0);
    expect(enginesOf(places)).toEqual([]);
  }, 120_000);
});
