// What an update that is taken back, or that was interrupted, leaves on the machine.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { makeLog } from "../../../src/base/log.ts";
import { realSystem } from "../../../src/base/system.ts";
import { writePermissions } from "../../../src/node/files/permissions.ts";
import { buildInfo } from "../../../src/build-info.ts";
import {
  chosenSettings,
  noteSeen,
  readUpdateState,
  writeUpdateState,
  type UpdateState,
} from "../../../src/node/files/update-order.ts";
import { carryOut } from "../../../src/node/update/carry-out.ts";
import type { CarryOutDeps } from "../../../src/node/update/report-update.ts";
import type { UpdateReport } from "../../../src/protocol/updates/order.ts";
import { writeOrganization } from "../../support/organization-engines.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const log = makeLog({ verbose: false, write: () => {}, now: Date.now, stamped: false });
const day = 86_400_000;
const now = 100 * day;
const go = { order: 10, agent: "0.3.0", engine: "1.12.0", watch_s: 60 };
const former = { agent: "0.2.0", engine: "1.11.1" };
const change = { at: now - day, agent: "0.3.0", engine: "1.12.0" };

function organizationIn(configRoot: string): string {
  writeOrganization(configRoot, "acme");
  return join(configRoot, "acme");
}

function makeNode(directory: string, present: typeof former) {
  const machine = { ...present };
  const told: UpdateReport[] = [];
  const deps: CarryOutDeps = {
    slug: "acme",
    directory,
    updater: {
      whyAgentStays: async () => undefined,
      agentRestarts: async () => undefined,
      agentVersion: async () => machine.agent,
      engineVersion: async () => machine.engine,
      lacksEngine: () => false,
      updateAgent: async (version) => void (machine.agent = version),
      updateEngine: async (version) => void (machine.engine = version),
      rollBackAgent: async () => void (machine.agent = former.agent),
      rollBackEngine: async () => void (machine.engine = former.engine),
      switchSettings: async () => {},
    },
    tunnels: async () => [],
    engineLines: async () => [],
    logLine: async () => undefined,
    report: async (report) => void told.push(report),
    openEcho: async () => "absent",
    system: realSystem(),
    log,
  };
  return { machine, told, deps };
}

/** What the machine has after the order in the file was carried out, and the last report. */
async function carriedOut(
  state: UpdateState,
  present: typeof former,
  { updates = ["agent", "engine"], isHeard = true } = {},
) {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writePermissions(directory, { updates });
  writeUpdateState(directory, state);
  const { machine, told, deps } = makeNode(directory, present);
  const report = async (said: UpdateReport) => {
    told.push(said);
    if (!isHeard) throw new Error("The control plane is away");
  };
  await carryOut({ ...deps, report, system: { ...realSystem(), now: () => now, sleep: async () => {} } });
  const { step, unsaid } = readUpdateState(directory) ?? {};
  expect(step).toBe("done");
  return { ...machine, said: told.at(-1)?.state, ...(unsaid === undefined ? {} : { unsaid }) };
}

const updated = { agent: "0.3.0", engine: "1.12.0" };
const back: UpdateState = { order: { ...go, order: 11, back: true }, step: "taken", former, change };

test("an order to go back brings both former versions back", async () => {
  expect(await carriedOut(back, updated)).toEqual({ ...former, said: "returned" });
  // The file of an agent that did not note what it changed.
  const { change: _, ...earlier } = back;
  expect(await carriedOut(earlier, updated)).toEqual({ ...former, said: "returned" });
});

test("a version that root installed after the update is not taken back", async () => {
  const present = { agent: "0.4.0", engine: "1.12.0" };
  expect(await carriedOut(back, present)).toEqual({
    agent: "0.4.0",
    engine: former.engine,
    said: "returned",
  });
});

test("an update of more than 30 days ago is not taken back", async () => {
  const old = { ...back, change: { ...change, at: now - 31 * day } };
  expect(await carriedOut(old, updated)).toEqual({ ...updated, said: "failed" });
});

test("an order to go back changes nothing that root no longer permits", async () => {
  // The permission to try settings, which each node has, must not open this way.
  const asSettings = { ...back, order: { ...back.order, settings: true } };
  for (const state of [back, asSettings])
    expect(await carriedOut(state, updated, { updates: ["engine"] })).toEqual({ ...updated, said: "failed" });
  const ofEngine = { ...back, change: { ...change, agent: null } };
  const present = { agent: former.agent, engine: "1.12.0" };
  expect(await carriedOut(ofEngine, present, { updates: ["engine"] })).toEqual({
    ...former,
    said: "returned",
  });
});

test("an engine that does not say its version, as on a busy machine, is not replaced: the order may be for a lower one", async () => {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writePermissions(directory, { updates: ["engine"] });
  writeUpdateState(directory, { order: { order: 10, engine: "1.11.1", watch_s: 1 }, step: "taken" });
  const { machine, told, deps } = makeNode(directory, updated);
  const answers = [null];
  const engineVersion = async () => (answers.length > 0 ? (answers.shift() ?? null) : machine.engine);
  await carryOut({ ...deps, updater: { ...deps.updater, engineVersion } });
  expect(machine.engine).toBe("1.12.0");
  expect(told).toMatchObject([{ state: "refused", reason: expect.stringContaining("may be lower") }]);
});

test("a node without an engine gets the one of the order", async () => {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writePermissions(directory, { updates: ["engine"] });
  writeUpdateState(directory, { order: { order: 10, engine: "1.12.0", watch_s: 1 }, step: "taken" });
  const { told, deps } = makeNode(directory, updated);
  const machine: { engine: string | null } = { engine: null };
  const updater = {
    ...deps.updater,
    engineVersion: async () => machine.engine,
    lacksEngine: () => machine.engine === null,
    updateEngine: async (version: string) => void (machine.engine = version),
  };
  let elapsed = 0;
  const system = { ...realSystem(), sleep: async () => {}, monotonic: () => (elapsed += 1000) };
  await carryOut({ ...deps, updater, system });
  expect([machine.engine, told.at(-1)?.state]).toEqual(["1.12.0", "passed"]);
});

test("an engine that was changed before a kill goes back if root permits the update no longer", async () => {
  const interrupted: UpdateState = { order: go, step: "taken", former, change };
  const present = { agent: former.agent, engine: "1.12.0" };
  expect(await carriedOut(interrupted, present, { updates: ["agent"] })).toEqual({
    ...former,
    said: "refused",
  });
});

test("an order that comes before the change, while peers are probed, is carried out instead", async () => {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writePermissions(directory, { updates: ["agent", "engine"] });
  writeUpdateState(directory, { order: go, step: "taken" });
  const { machine, told, deps } = makeNode(directory, former);
  const updated: string[] = [];
  const update = async (version: string) => {
    updated.push(version);
    throw new Error("The order is withdrawn");
  };
  await carryOut({
    ...deps,
    updater: { ...deps.updater, updateAgent: update, updateEngine: update },
    system: { ...realSystem(), sleep: async () => {} },
    async openEcho() {
      const hasCome = readUpdateState(directory)?.order.order === 11;
      if (!hasCome) writeUpdateState(directory, { order: { ...go, order: 11, back: true }, step: "taken" });
      return "absent";
    },
  });
  expect(updated).toEqual([]);
  expect(machine).toEqual(former);
  expect(told.map(({ order, state }) => [order, state])).toEqual([
    [10, "taken"],
    [11, "returned"],
  ]);
});

test("the last report is kept while the control plane is away, and said when it answers", async () => {
  const unsaid = { state: "returned" };
  expect(await carriedOut(back, updated, { isHeard: false })).toEqual({
    ...former,
    said: "returned",
    unsaid,
  });
  const kept: UpdateState = { ...back, step: "done", unsaid: { state: "passed", answered: 3 } };
  expect(await carriedOut(kept, updated)).toEqual({ ...updated, said: "passed" });
});

/** The last word of a node whose agent is updated, while `during` says what happens at this time (ms) of its watch. */
async function watched(
  watchS: number,
  during: (monotonic: number) => {
    ahead?: number;
    isPlaneAway?: boolean;
    isMute?: boolean;
    isFormerHeard?: boolean;
    isOffline?: boolean;
  },
) {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writePermissions(directory, { updates: ["agent"] });
  writeUpdateState(directory, { order: { order: 10, agent: "0.3.0", watch_s: watchS }, step: "taken" });
  const { machine, told, deps } = makeNode(directory, former);
  let monotonic = 0;
  await carryOut({
    ...deps,
    tunnels: async () => [{ address: "10.77.0.2", isRelayed: false, loss: 0 }],
    openEcho: async (_, onReply) => ({
      send(_to, sequence, payload) {
        if (during(monotonic).isOffline !== true) queueMicrotask(() => onReply({ sequence, payload }));
        return true;
      },
      close() {},
    }),
    async report(said) {
      if (during(monotonic).isPlaneAway === true)
        throw new AppError("control_plane_unreachable", "It is away");
      told.push(said);
    },
    system: {
      ...realSystem(),
      now: () => Date.now() + monotonic + (during(monotonic).ahead ?? 0),
      monotonic: () => monotonic,
      async sleep(ms) {
        monotonic += ms;
        const { isPlaneAway = false, isMute = false, isFormerHeard = false } = during(monotonic);
        if (machine.agent === "0.3.0" && !isPlaneAway && !isMute) noteSeen(directory, "0.3.0");
        if (isFormerHeard) noteSeen(directory, "0.2.0");
        await Bun.sleep(1);
      },
    },
  });
  return {
    agent: machine.agent,
    said: told.at(-1)?.state,
    all: told.map(({ state }) => state),
    unsaid: readUpdateState(directory)?.unsaid?.state,
  };
}

test("reports that the control plane did not take are sent again while the node is watched", async () => {
  const outcome = await watched(900, (ms) => ({ isPlaneAway: ms > 1000 && ms < 30_000 }));
  expect(outcome.all).toEqual(["taken", "applied", "passed"]);
  const late = await watched(900, (ms) => ({ isPlaneAway: ms < 8000 }));
  expect(late.all).toEqual(["taken", "applied", "passed"]);
});

test("a watch that goes on after a kill does not report that the change begins", async () => {
  const applied: UpdateState = {
    order: { order: 10, settings: true, watch_s: 1 },
    step: "applied",
    former,
    change,
    answered: [],
  };
  expect((await settingsOf(applied)).all).toEqual(["applied", "passed"]);
});

test("a clock that jumps while the node is watched is no silence of its agent", async () => {
  const outcome = await watched(300, (ms) => ({ ahead: ms > 100_000 ? 3_600_000 : 0 }));
  expect(outcome).toMatchObject({ said: "passed", agent: "0.3.0" });
});

test("a machine that sleeps while it is watched has time to find its network again", async () => {
  const isOffline = (at: number) => at >= 30_000 && at < 50_000;
  const slept = await watched(120, (at) => ({
    isOffline: isOffline(at),
    ahead: at < 30_000 ? 0 : 3_600_000,
  }));
  expect(slept).toMatchObject({ agent: "0.3.0", said: "passed" });
  const awake = await watched(120, (at) => ({ isOffline: isOffline(at) }));
  expect(awake).toMatchObject({ agent: former.agent, said: "failed" });
  // A network that does not come back is a fault.
  const lost = await watched(120, (at) => ({ isOffline: at >= 30_000, ahead: at < 30_000 ? 0 : 3_600_000 }));
  expect(lost).toMatchObject({ agent: former.agent, said: "failed" });
});

test("a replaced program that checks in meanwhile does not hide the new one", async () => {
  const outcome = await watched(300, () => ({ isFormerHeard: true }));
  expect(outcome).toMatchObject({ said: "passed", agent: "0.3.0" });
});

test("a control plane that is away for some minutes is no silence of the agent", async () => {
  const outcome = await watched(900, (ms) => ({ isPlaneAway: ms > 50_000 && ms < 450_000 }));
  expect(outcome).toMatchObject({ said: "passed", agent: "0.3.0" });
});

test("an agent that does not check in goes back while the control plane is there, and in the end without it", async () => {
  const back = { agent: former.agent, said: "failed" };
  expect(await watched(900, (ms) => ({ isMute: ms > 50_000 }))).toMatchObject(back);
  const alone = await watched(3600, (ms) => ({ isPlaneAway: ms > 50_000 }));
  expect(alone).toMatchObject({ agent: former.agent, unsaid: "failed" });
});

/**
 * Whether the settings were chosen at each switch, and the last report. `refuses`: the engine does not run with the new ones.
 * `seenFromMs`: when the agent checks in first.
 */
async function settingsOf(state: UpdateState, { refuses = false, seenFromMs = 0 } = {}) {
  using root = temporaryDirectory();
  const directory = organizationIn(root.path);
  writeUpdateState(directory, state);
  const { told, deps } = makeNode(directory, former);
  const chosen: (number | undefined)[] = [];
  let monotonic = 0;
  const system = {
    ...realSystem(),
    monotonic: () => monotonic,
    async sleep(ms: number) {
      monotonic += ms;
      if (monotonic >= seenFromMs) noteSeen(directory, buildInfo.version);
    },
  };
  const switchSettings = async () => {
    chosen.push(chosenSettings(directory));
    if (refuses && chosen.at(-1) !== undefined) throw new Error("It refuses them");
  };
  await carryOut({ ...deps, updater: { ...deps.updater, switchSettings }, system });
  return {
    chosen,
    all: told.map(({ state: said }) => said),
    said: told.at(-1)?.state,
    reason: told.at(-1)?.reason,
  };
}

test("settings need no permission of root, and are taken back if the engine refuses them, or by an order", async () => {
  const order = { order: 10, settings: true, watch_s: 10 };
  expect(await settingsOf({ order, step: "taken" })).toMatchObject({
    chosen: [10],
    said: "passed",
    reason: undefined,
  });
  expect(await settingsOf({ order, step: "taken" }, { refuses: true })).toMatchObject({
    chosen: [10, undefined],
    said: "failed",
    reason: "It refuses them",
  });
  const back = { ...order, order: 11, back: true };
  const stateOf = { order: back, step: "taken", former, change: { at: Date.now() } } as const;
  expect(await settingsOf({ ...stateOf, settings: true })).toMatchObject({
    chosen: [undefined],
    said: "returned",
    reason: undefined,
  });
});

test("an agent that pauses after an outage of the control plane is no fault of settings", async () => {
  const order = { order: 10, settings: true, watch_s: 300 };
  const outcome = await settingsOf({ order, step: "taken" }, { seenFromMs: 120_000 });
  expect(outcome.said).toBe("passed");
  const mute = await settingsOf({ order, step: "taken" }, { seenFromMs: 3_600_000 });
  expect(mute).toMatchObject({ said: "failed", chosen: [10, undefined] });
});
