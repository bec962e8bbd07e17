// Random histories of an organization in desktop mode: commands, orders, restarts, kills and absence of the daemon. After
// each step the machine is as the model says. Everything is real: the daemon's parts, the control plane, files, engine.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectControlPlane } from "../../src/daemon/control-plane.ts";
import { makeGate } from "../../src/daemon/start-checks.ts";
import { OrganizationEngines } from "../../src/daemon/organization-engines.ts";
import { openState } from "../../src/daemon/state.ts";
import { readStatusWithoutDaemon } from "../../src/daemon/asking/status-without-daemon.ts";
import { AppError } from "../../src/base/errors.ts";
import { checkAuth } from "../../src/node/contact/check-auth.ts";
import { organizationDeps } from "../../src/node/contact/organization-deps.ts";
import { findEngineProcess } from "../../src/node/engine/engine-process.ts";
import type { Organization } from "../../src/node/files/organizations.ts";
import { readRevokedNote } from "../../src/node/files/revoked-notes.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { history, registered, shouldRun, shownState, type Model } from "../support/desired-state.ts";
import { engine, hasEngine, makeNodeWorld, nodePath, syncNow, type NodeWorld } from "../support/node.ts";
import { until } from "../support/until.ts";
import { inFull } from "../support/soak.ts";

const histories = inFull ? 100 : 10;
const steps = [
  ...(["start", "stop", "restart", "switch"] as const),
  ...(["revoke", "restore", "revoke", "restore", "check"] as const),
  ...(["reboot", "kill the daemon", "stop the daemon", "start the daemon", "start the daemon"] as const),
];
type Step = (typeof steps)[number];

type Daemon = { engines: OrganizationEngines; close(): void };

/** A machine with one organization, and the control plane. */
async function makeMachine(world: NodeWorld) {
  const organization = await world.register({ mode: "desktop" });
  // Without a tun device the engine needs no rights and changes nothing on this machine.
  await world.api("PATCH", "/api/org/acme/", { config_overrides: { tun: { disabled: true } } });
  const overrides = "listen:\n  host: 127.0.0.1\n  port: 0\n";
  writeFileSync(join(organization.directory, "overrides.yml"), overrides);
  await syncNow(world, organization);
  const settings = { ...world.settings, overlayBinary: engine, stateDb: "", socketPath: "" };
  // Pauses between check-ins are short; those of processes are real.
  const sleep: System["sleep"] = (ms, signal) => realSystem().sleep(Math.min(ms, 20), signal);
  const impatient = { ...world.system, sleep };
  const open = (): Daemon => {
    const store = openState(join(world.root, "../state.db"), world.log, world.system.now);
    const engines = new OrganizationEngines({
      configRoot: world.root,
      stateDirectory: join(world.root, ".."),
      store,
      system: world.system,
      log: world.log,
      gate: makeGate(settings, world.system, world.log),
      openEcho: async () => "denied",
      engineVersion: async () => undefined,
      controlPlane: connectControlPlane(settings, impatient, world.log),
      publish() {},
    });
    engines.open(true);
    return { engines, close: () => store.close() };
  };
  const checkAlone = () => {
    const deps = organizationDeps(organization, "check-auth", {
      settings,
      system: impatient,
      log: world.log,
    });
    return checkAuth(organization, deps, 0);
  };
  return { world, organization, open, checkAlone };
}

type Machine = Awaited<ReturnType<typeof makeMachine>>;
type State = { model: Model; daemon: Daemon | undefined; leftRunning: boolean };

/** While it is connected, the daemon carries out each order at once. */
function hear(model: Model, isConnected: boolean): Model {
  return isConnected && model.wanted === "up" ? { ...model, knowsRevoked: model.isRevoked } : model;
}

async function end({ engines, close }: Daemon, how: "stop" | "kill"): Promise<void> {
  if (how === "stop") await engines.shutDown();
  await engines.handOver();
  close();
}

async function request(
  verb: "start" | "restart" | "switch",
  { model, daemon, ...rest }: State,
): Promise<State> {
  if (daemon === undefined) return { model, daemon, ...rest };
  const code = await daemon.engines[verb]("acme").then(
    () => "ok",
    (error: unknown) => (error instanceof AppError ? error.code : String(error)),
  );
  // A switch to a revoked organization would leave none, so it is refused and not remembered.
  if (verb === "switch" && model.knowsRevoked) {
    expect(code).toBe("access_revoked");
    return { model, daemon, ...rest };
  }
  const next = hear({ ...model, wanted: "up" }, true);
  // A revocation that this machine does not know yet may come during the start, or just after it.
  const isNews = model.isRevoked && !model.knowsRevoked;
  if (verb === "switch" && isNews && code === "access_revoked")
    return { ...rest, daemon, model: { ...model, knowsRevoked: true } };
  expect(isNews ? ["ok", "access_revoked"] : [next.knowsRevoked ? "access_revoked" : "ok"]).toContain(code);
  return { ...rest, daemon, model: next };
}

async function take(step: Step, state: State, machine: Machine): Promise<State> {
  const { model, daemon } = state;
  const { world, organization, open, checkAlone } = machine;
  const isUp = daemon !== undefined;
  switch (step) {
    case "start":
    case "restart":
    case "switch":
      return request(step, state);
    case "stop":
      await daemon?.engines.stop("acme");
      return isUp ? { ...state, model: { ...model, wanted: "down" } } : state;
    case "revoke":
    case "restore": {
      const isRevoked = step === "revoke";
      if (model.isRevoked === isRevoked) return state;
      await (isRevoked
        ? world.api("DELETE", nodePath(organization))
        : world.api("POST", `${nodePath(organization)}restore/`, {}));
      return { ...state, model: hear({ ...model, isRevoked }, isUp) };
    }
    case "check": {
      if (isUp) await daemon.engines.sync("acme");
      else await checkAlone();
      const leftRunning = state.leftRunning && !model.isRevoked;
      return { ...state, leftRunning, model: { ...model, knowsRevoked: model.isRevoked } };
    }
    case "reboot":
      if (isUp) await end(daemon, "stop");
      return { daemon: open(), leftRunning: false, model: hear(model, true) };
    case "kill the daemon":
      if (!isUp) return state;
      await end(daemon, "kill");
      return { model, daemon: undefined, leftRunning: shouldRun(model) };
    case "stop the daemon":
      if (!isUp) return state;
      await end(daemon, "stop");
      return { model, daemon: undefined, leftRunning: false };
    case "start the daemon":
      return isUp ? state : { daemon: open(), leftRunning: false, model: hear(model, true) };
  }
}

const isEngineUp = ({ directory }: Organization) =>
  findEngineProcess(join(directory, "config.yml")) !== undefined;

/** Waits until the machine is at rest as the model says, and looks again a moment later. */
async function expectModel(
  { model, daemon, leftRunning }: State,
  { world, organization }: Machine,
): Promise<void> {
  const runs = daemon === undefined ? leftRunning : shouldRun(model);
  const now = () => ({
    runs: isEngineUp(organization),
    revoked: readRevokedNote(organization.directory) !== undefined,
    state: daemon?.engines.status()[0]?.state,
    wanted: daemon?.engines.status()[0]?.wanted,
  });
  const wanted = {
    runs,
    revoked: model.knowsRevoked,
    state: daemon === undefined ? undefined : shownState(model),
    wanted: daemon === undefined ? undefined : model.wanted,
  };
  await until(() => Bun.deepEquals(now(), wanted)).catch(() => undefined);
  await Bun.sleep(30);
  expect(now()).toEqual(wanted);
  if (daemon !== undefined) return;
  const places = { configRoot: world.root, stateDb: join(world.root, "../state.db") };
  const { status } = await readStatusWithoutDaemon(places, "acme", world.system);
  const shown = model.knowsRevoked ? "revoked" : leftRunning ? "running" : "stopped";
  expect([status.state, status.wanted]).toEqual([shown, model.wanted]);
}

async function run(seed: number, chosen: readonly Step[]): Promise<void> {
  await using world = await makeNodeWorld();
  const machine = await makeMachine(world);
  let state: State = { model: registered, daemon: machine.open(), leftRunning: false };
  const taken: Step[] = [];
  try {
    await expectModel(state, machine);
    for (const step of chosen) {
      taken.push(step);
      state = await take(step, state, machine);
      await expectModel(state, machine);
    }
  } catch (error) {
    throw new Error(`History ${seed}: ${taken.join(", ")}`, { cause: error });
  } finally {
    // A killed daemon has left its engine.
    await end(state.daemon ?? machine.open(), "stop");
  }
  expect(isEngineUp(machine.organization)).toBe(false);
}

test.skipIf(!hasEngine)(
  "an organization that is stopped while it is revoked comes back after a restore and a start",
  () => run(0, ["revoke", "stop", "restore", "start"]),
);

test.skipIf(!hasEngine)("a start while it is revoked is remembered: a restore brings it back", () =>
  run(0, ["stop", "check", "revoke", "start", "reboot", "restore"]),
);

test.skipIf(!hasEngine)(
  `${histories} random histories in desktop mode`,
  async () => {
    for (let seed = 1; seed <= histories; seed++) await run(seed, history(steps, 14, seed));
  },
  1_800_000,
);
