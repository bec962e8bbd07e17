// A day of the daemon on a fake clock against the real application: check-ins held for 55 s, changes every hour, engines
// that die, a client that polls every minute, another that subscribes. Memory must not grow.

import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHandler, noticeOf } from "../../src/daemon/actions.ts";
import { connectControlPlane } from "../../src/daemon/control-plane.ts";
import { makeGate } from "../../src/daemon/start-checks.ts";
import { connectDaemon } from "../../src/daemon/ipc/client.ts";
import type { Notice, OrganizationState } from "../../src/daemon/ipc/messages.ts";
import { serveIpc } from "../../src/daemon/ipc/server.ts";
import { openState } from "../../src/daemon/state.ts";
import { OrganizationEngines } from "../../src/daemon/organization-engines.ts";
import { isApplied } from "../../src/node/files/generations.ts";
import { openLibc } from "../../src/platform/libc.ts";
import { makeClock, type Clock } from "../support/clock.ts";
import { makeNodeWorld, nodePath, type NodeWorld } from "../support/node.ts";
import { realSystem, type System } from "../../src/base/system.ts";

const [minute, hour] = [60_000, 3_600_000];

/** Logs like the engine: ready, and one reload after the other. */
const fakeEngine = `#!/bin/bash
case $1 in -version) echo "Version: 1.10.3"; exit;; -test) exit;; esac
say() { echo "{\\"level\\":\\"info\\",\\"msg\\":\\"$1\\"}"; }
asked=0 taken=0
trap 'asked=$((asked + 1))' HUP
trap 'exit 0' TERM
say "Nebula interface is active"
while :; do
  if [ $taken -lt $asked ]; then
    taken=$((taken + 1)); say "Caught HUP, reloading config"; say "Client cert refreshed from disk"
  else sleep 0.01; fi
done
`;

async function openDaemon(world: NodeWorld, clock: Clock) {
  const { root, settings, log } = world;
  const engine = join(root, "..", "engine");
  writeFileSync(engine, fakeEngine, { mode: 0o755 });
  const system: System = { ...world.system, sleep: clock.sleep, monotonic: clock.now };
  const stateDirectory = join(root, "..");
  const store = openState(join(stateDirectory, "state.db"), log, system.now);
  const subscribers = new Set<(notice: Notice) => void>();
  const own = { ...settings, overlayBinary: engine, stateDb: "", socketPath: "" };
  const engines = new OrganizationEngines({
    configRoot: root,
    stateDirectory,
    store,
    system,
    log,
    gate: makeGate(own, system, log),
    openEcho: async () => "denied",
    engineVersion: async () => undefined,
    controlPlane: connectControlPlane(own, system, log),
    publish: ({ slug, status }) => {
      for (const notify of subscribers) notify(noticeOf(slug, status));
    },
  });
  const address = { kind: "socket", path: join(stateDirectory, "cmd.sock") } as const;
  const handle = makeHandler({
    engines,
    configRoot: own.configRoot,
    subscribers,
    system,
    log,
    shutDown() {},
  });
  const access = { groupId: undefined };
  const server = await serveIpc({ address, access, libc: openLibc(), handle, system: realSystem(), log });
  engines.open(true);
  return {
    engines,
    address,
    async [Symbol.asyncDispose]() {
      const ended = engines.shutDown();
      await clock.pass(minute);
      await ended;
      await server.stop();
      store.close();
    },
  };
}

function objects(): number {
  Bun.gc(true);
  return heapStats().objectCount;
}

const isUp = (engines: OrganizationEngines) => engines.status()[0]?.state === "running";

/** Real processes need real time, so the fake clock moves slowly meanwhile. */
async function until(clock: Clock, what: () => boolean): Promise<void> {
  for (let looks = 0; !what(); looks++) {
    if (looks > 10_000) throw new Error(`Timed out waiting for ${what.toString()}`);
    await Bun.sleep(1);
    await clock.pass(50);
  }
}

test("24 hours: every change arrives, dead engines are restarted, memory does not grow", async () => {
  const begin = Date.UTC(2026, 10, 21);
  // Pauses are random fractions of milliseconds; a real clock shows whole ones.
  const clock = makeClock((ms) => (wall.ms = begin + Math.floor(ms)));
  let wall = { ms: begin };
  // Only held check-ins use the fake clock; short intervals of the application run in real time.
  const sleep: System["sleep"] = (ms, signal) => (ms > minute / 4 ? clock : realSystem()).sleep(ms, signal);
  const options = { network: { sleep }, accessLifetimeS: 48 * 3600 };
  await using world = await makeNodeWorld("10.77.0.0/16", options);
  wall = world.server.clock;
  const organization = await world.register({ mode: "desktop" });
  await using daemon = await openDaemon(world, clock);
  const looking = await connectDaemon(daemon.address, realSystem(), { patient: false });
  const listening = await connectDaemon(daemon.address, realSystem(), { patient: false });
  await listening.request({ action: "subscribe" });
  let noticed = 0;
  const notices = listening.notices(() => (noticed += 1));

  const certificate = () => readFileSync(join(organization.directory, "host.crt"), "utf8");
  await until(clock, () => isUp(daemon.engines));
  const held: number[] = [];
  const logged: string[] = [];
  let status: OrganizationState | string | undefined;
  for (let passed = 0; passed < 24 * hour; passed += minute) {
    if (passed % hour === 30 * minute) {
      const group = `hour-${passed / hour - 0.5}`;
      await world.api("POST", "/api/org/acme/groups/", { name: group });
      const before = certificate();
      await world.api("PATCH", nodePath(organization), { groups: [group] });
      await until(clock, () => certificate() !== before && isApplied(organization.directory));
    }
    if (passed % (3 * hour) === 2 * hour) {
      const killed = daemon.engines.pid("acme") ?? 0;
      process.kill(killed, "SIGKILL");
      await until(
        clock,
        () => ![killed, undefined].includes(daemon.engines.pid("acme")) && isUp(daemon.engines),
      );
    }
    await clock.pass(minute);
    daemon.engines.tidy();
    [status] = (await looking.request({ action: "status" })).teams ?? [];
    logged.push(...world.logged.filter((line) => !line.startsWith("debug")));
    for (const list of [world.requests, world.logged, world.server.log]) list.length = 0;
    if (passed % (4 * hour) === 3 * hour) held.push(objects());
  }
  process.stderr.write(`objects every four hours: ${held.join(", ")}\n`);
  expect(status).toMatchObject({ state: "running", wanted: "up" });
  expect(logged.filter((line) => line.includes("Engine started"))).toHaveLength(9);
  expect(logged.filter((line) => /Cannot start|no usable/.test(line))).toEqual([]);
  expect(noticed).toBeGreaterThanOrEqual(8 * 4);
  expect(held.at(-1)).toBeLessThan(1.1 * (held[1] ?? 0));
  looking.close();
  listening.close();
  await notices;
}, 120_000);
