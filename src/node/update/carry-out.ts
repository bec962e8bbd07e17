// Carries out an update that the control plane asked for, watches it with the program that ran before, and goes back by
// itself if the node works worse. It must not need the control plane, or anything of the new version, to go back.

import { basename } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Step } from "../../base/plan/plan.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import {
  forgetSeen,
  permittedUpdates,
  readUpdateState,
  writeUpdateState,
  type UpdateState,
} from "../files/update-order.ts";
import { sendReport, type CarryOutDeps, type Outcome } from "./report-update.ts";
import { probeBefore, readBefore, watchUpdate } from "./watch-update.ts";

/** The control plane has just given the order, so it is hardly away for longer. */
const takenTries = 3;
/** Five minutes. After that, the state file keeps the report. */
const outcomeTries = 60;
/** Longer than a ring that waits for the hours of its nodes. */
const longestBackMs = 30 * 86_400_000;

/** Until nothing is left to do. An order that comes meanwhile is found in the file. */
export async function carryOut(deps: CarryOutDeps): Promise<void> {
  const { directory, log } = deps;
  let triedOrder: number | undefined;
  for (;;) {
    const state = readUpdateState(directory);
    if (state === undefined) return;
    const order = state.order.order;
    if (state.step === "done") {
      if (state.unsaid === undefined || triedOrder === order) return;
      triedOrder = order;
      await sendOutcome(deps, order, state.unsaid);
      continue;
    }
    triedOrder = order;
    try {
      const outcome =
        state.order.back === true ? await goBackAsTold(state, deps) : await goForward(state, deps);
      if (outcome !== undefined) await finish(deps, order, outcome);
    } catch (error) {
      log.error(messageOf(error), { team: deps.slug });
      await finish(deps, order, { state: "failed", reason: messageOf(error) });
    }
  }
}

/** Does nothing to the file if another order came, which has to be carried out then. */
async function finish(deps: CarryOutDeps, order: number, outcome: Outcome): Promise<void> {
  const state = readUpdateState(deps.directory);
  if (state?.order.order !== order) return void (await sendReport(deps, order, outcome, { tries: 1 }));
  writeUpdateState(deps.directory, { ...state, step: "done", unsaid: outcome });
  await sendOutcome(deps, order, outcome);
}

/** If the control plane does not take it, the file keeps it, and the next check-in that is answered starts this program again. */
async function sendOutcome(deps: CarryOutDeps, order: number, outcome: Outcome): Promise<void> {
  if (!(await sendReport(deps, order, outcome, { tries: outcomeTries }))) return;
  const state = readUpdateState(deps.directory);
  if (state?.order.order !== order) return;
  const { unsaid: _, ...rest } = state;
  writeUpdateState(deps.directory, rest);
}

/** Undefined: another order came. */
async function goForward(state: UpdateState, deps: CarryOutDeps): Promise<Outcome | undefined> {
  const { order } = state;
  if (state.step === "taken") {
    const refusal = await whyRefused(order, deps);
    if (refusal !== undefined) {
      // After a kill in the middle of the change, the engine may be the new one already.
      await restoreFormer(state, deps);
      return { state: "refused", reason: refusal };
    }
    // Only before the change: the control plane now counts the paths to this node that are broken anyway.
    await sendReport(deps, order.order, { state: "taken" }, { tries: takenTries });
  }
  const prepared = state.former === undefined ? await noteFormer(state, deps) : state;
  if (prepared.step === "taken") {
    const end = await applyChange(prepared, deps);
    if (end !== "applied") return end;
  }
  const outcome = await watchUpdate(deps, prepared);
  if (outcome === undefined || outcome.state === "passed") return outcome;
  await restoreFormer(prepared, deps);
  return outcome;
}

/** Notes what runs before the change, and how well, and returns the state as the file then has it. */
async function noteFormer(state: UpdateState, deps: CarryOutDeps): Promise<UpdateState> {
  const { updater, system, directory } = deps;
  const { agent = null, engine = null } = state.order;
  const former = { agent: await updater.agentVersion(), engine: await updater.engineVersion() };
  const before = await readBefore(deps);
  const change = { at: system.now(), agent, engine };
  const prepared = { ...state, former, change, before, answered: await probeBefore(deps) };
  writeUpdateState(directory, prepared);
  return prepared;
}

/** Undefined: another order came meanwhile. */
async function applyChange(
  prepared: UpdateState,
  deps: CarryOutDeps,
): Promise<"applied" | Outcome | undefined> {
  const { directory } = deps;
  const { order } = prepared;
  forgetSeen(directory);
  const chosen = order.settings === true ? { ...prepared, settings: true } : prepared;
  // Before the change: whatever writes config.yml takes the new settings from now on.
  if (chosen !== prepared) writeUpdateState(directory, chosen);
  const failure = await change(order, deps);
  if (failure !== undefined) {
    await restoreFormer(chosen, deps);
    const failedProgram = order.agent === undefined ? "engine" : "agent";
    return { state: "failed", reason: failure, ...given({ log: await deps.logLine(failedProgram) }) };
  }
  if (readUpdateState(directory)?.order.order !== order.order) return undefined;
  writeUpdateState(directory, { ...chosen, step: "applied" });
  return "applied";
}

async function whyRefused(order: UpdateState["order"], deps: CarryOutDeps): Promise<string | undefined> {
  const { updater, directory } = deps;
  const permitted = permittedUpdates(directory);
  const asked = [
    { what: "agent", version: order.agent, installed: await updater.agentVersion() },
    { what: "engine", version: order.engine, installed: await updater.engineVersion() },
  ];
  for (const { what, version, installed } of asked) {
    if (version === undefined) continue;
    if (!permitted.includes(what)) return `Root of this machine does not permit updates of the ${what}`;
    if (installed !== null && compareVersions(version, installed) < 0)
      return `This machine has the ${what} ${installed}, which is higher`;
  }
  return order.agent === undefined ? undefined : updater.whyAgentStays();
}

/** Resolves with the reason if it failed. The engine first: then the program that runs now is still the installed one. */
async function change({ order, agent, engine, settings }: UpdateState["order"], deps: CarryOutDeps) {
  const { updater } = deps;
  try {
    if (settings === true) await updater.switchSettings(order);
    if (engine !== undefined && engine !== (await updater.engineVersion()))
      await updater.updateEngine(engine);
    if (agent !== undefined && agent !== (await updater.agentVersion())) await updater.updateAgent(agent);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * The agent first: its former version then brings the former engine back. What root has installed since stays: the version
 * kept beside it is another one, and may be lower.
 */
async function restoreFormer(
  { order: { order }, former, change }: UpdateState,
  { updater, log, slug, directory }: CarryOutDeps,
): Promise<void> {
  const present = readUpdateState(directory);
  if (present?.settings === true) {
    writeUpdateState(directory, { ...present, settings: false });
    await updater.switchSettings(order);
    log.warn("The former settings are back", { team: slug });
  }
  const steps = {
    agent: { now: () => updater.agentVersion(), back: () => updater.rollBackAgent() },
    engine: { now: () => updater.engineVersion(), back: () => updater.rollBackEngine() },
  };
  for (const what of ["agent", "engine"] as const) {
    const formerVersion = former?.[what] ?? null;
    if (formerVersion === null) continue;
    const version = await steps[what].now();
    const isOurs = change === undefined || version === null || version === change[what];
    if (version === formerVersion || !isOurs) continue;
    await steps[what].back();
    log.warn(`The former version ${formerVersion} is back`, { team: slug });
  }
}

/**
 * For an order to go back. A stolen control plane must not bring back a version that was replaced long ago, for a known defect
 * of it.
 */
async function goBackAsTold(state: UpdateState, deps: CarryOutDeps): Promise<Outcome> {
  const { at = Number.POSITIVE_INFINITY } = state.change ?? {};
  if (deps.system.now() - at > longestBackMs)
    return {
      state: "failed",
      reason: "It was updated more than 30 days ago: root alone brings the former version back",
    };
  await restoreFormer(state, deps);
  return { state: "returned" };
}

/** The commands that carry out the order, unless that is done, for --dry-run. */
export function planCarryOut(directory: string, executable: string): Step[] {
  const { order, step } = readUpdateState(directory) ?? { step: "done" };
  if (order === undefined || step === "done") return [];
  const argvOf = (words: string[], version: string) => [
    executable,
    ...words,
    ...(order.back === true ? ["--rollback"] : ["--version", version]),
  ];
  return [
    ...(order.agent === undefined ? [] : [argvOf(["self-update"], order.agent)]),
    ...(order.engine === undefined ? [] : [argvOf(["overlay", "update"], order.engine)]),
    ...(order.settings === true ? [[executable, "sync-config", "--org-slug", basename(directory)]] : []),
  ].map((command) => ({ step: "run", argv: command }));
}
