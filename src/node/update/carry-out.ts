// Carries out an update that the control plane asked for, watches it with the program that ran before, and goes back by
// itself if the node works worse. It must not need the control plane, or anything of the new version, to go back.

import { basename } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Step } from "../../base/plan/plan.ts";
import { updatable } from "../../protocol/updates/order.ts";
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
/** An order to go back counts for so long after the update: a ring that waits for the permitted hours of its nodes takes less. */
const longestBackMs = 30 * 86_400_000;

/** Carries out the order in the state file, and those that a check-in writes there meanwhile, until nothing is left to do. */
export async function carryOut(deps: CarryOutDeps): Promise<void> {
  const { directory, log } = deps;
  /** The order that was carried out, or whose outcome was sent, in this run: its outcome is not sent again. */
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

/**
 * Changes the state of this order in the file, and returns it. Undefined, and the file stays as it is: another order came, which
 * is carried out then. Called right after each wait, because a check-in may write the file at any time.
 */
function amend(directory: string, order: number, changes: Partial<UpdateState>): UpdateState | undefined {
  const state = readUpdateState(directory);
  if (state?.order.order !== order) return undefined;
  const amended = { ...state, ...changes };
  writeUpdateState(directory, amended);
  return amended;
}

async function finish(deps: CarryOutDeps, order: number, outcome: Outcome): Promise<void> {
  const finished = amend(deps.directory, order, { step: "done", unsaid: outcome });
  if (finished === undefined) await sendReport(deps, order, outcome, { tries: 1 });
  else await sendOutcome(deps, order, outcome);
}

/** If the control plane does not take the outcome, the file keeps it, and the next check-in that is answered runs this program again. */
async function sendOutcome(deps: CarryOutDeps, order: number, outcome: Outcome): Promise<void> {
  const isSent = await sendReport(deps, order, outcome, { tries: outcomeTries });
  if (isSent) amend(deps.directory, order, { unsaid: undefined });
}

/** Undefined: another order came meanwhile. */
async function goForward(state: UpdateState, deps: CarryOutDeps): Promise<Outcome | undefined> {
  const { order } = state;
  if (state.step === "taken") {
    const refusal = await whyRefused(order, deps);
    if (refusal !== undefined) {
      // After a kill in the middle of the change, the engine may be the new one already.
      await restoreFormer(state, deps);
      return { state: "refused", reason: refusal };
    }
    // Only before the change: at this report, the control plane counts the paths to this node that are broken already.
    await sendReport(deps, order.order, { state: "taken" }, { tries: takenTries });
  }
  // Noted once: after a kill in the middle of the change, the new versions may run already.
  const prepared = state.former === undefined ? await noteFormer(state, deps) : state;
  if (prepared === undefined) return undefined;
  if (prepared.step === "taken") {
    const end = await applyChange(prepared, deps);
    if (end !== "applied") return end;
  }
  const outcome = await watchUpdate(deps, prepared);
  if (outcome === undefined || outcome.state === "passed") return outcome;
  await restoreFormer(prepared, deps);
  return outcome;
}

/** Notes what runs before the change, and how well. Undefined: another order came meanwhile. */
async function noteFormer(
  { order: { order, agent, engine } }: UpdateState,
  deps: CarryOutDeps,
): Promise<UpdateState | undefined> {
  const { updater, system, directory } = deps;
  const former = { agent: await updater.agentVersion(), engine: await updater.engineVersion() };
  const before = await readBefore(deps);
  const change = { at: system.now(), agent: agent ?? null, engine: engine ?? null };
  const answered = await probeBefore(deps);
  return amend(directory, order, { former, change, before, answered });
}

/** Undefined: another order came meanwhile. */
async function applyChange(
  prepared: UpdateState,
  deps: CarryOutDeps,
): Promise<"applied" | Outcome | undefined> {
  const { directory } = deps;
  const { order } = prepared;
  // With `settings`, whatever writes config.yml takes the new settings from now on.
  if (amend(directory, order.order, given({ settings: order.settings })) === undefined) return undefined;
  // The note may be of an earlier update to the same version.
  forgetSeen(directory);
  const failure = await makeChange(order, deps);
  if (failure !== undefined) {
    await restoreFormer(prepared, deps);
    const failedProgram = order.agent === undefined ? "engine" : "agent";
    return { state: "failed", reason: failure, ...given({ log: await deps.logLine(failedProgram) }) };
  }
  return amend(directory, order.order, { step: "applied" }) === undefined ? undefined : "applied";
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
    if (!permitted.includes(what)) return notPermitted(what);
    if (installed === null && what === "engine" && updater.lacksEngine()) continue;
    if (installed === null)
      return `The ${what} of this machine does not say its version: ${version} may be lower`;
    if (compareVersions(version, installed) < 0)
      return `This machine has the ${what} ${installed}, which is higher`;
  }
  return order.agent === undefined ? undefined : updater.whyAgentStays();
}

const notPermitted = (what: string) => `Root of this machine does not permit updates of the ${what}`;

/** Resolves with the reason if it failed. The engine first: then the program that runs now is still the installed one. */
async function makeChange({ order, agent, engine, settings }: UpdateState["order"], deps: CarryOutDeps) {
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
 * Brings the former settings and versions back. The agent first: its former version then brings the former engine back. What root
 * has installed since the update stays: the version that is kept for a roll back is then another one than the former.
 */
async function restoreFormer(
  { order: { order }, former, change }: UpdateState,
  { updater, log, slug, directory }: CarryOutDeps,
): Promise<void> {
  const areSettingsChosen = readUpdateState(directory)?.settings === true;
  if (areSettingsChosen && amend(directory, order, { settings: false }) !== undefined) {
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
 * of it, or one that root no longer lets it change.
 */
async function goBackAsTold(state: UpdateState, deps: CarryOutDeps): Promise<Outcome> {
  const { at = Number.POSITIVE_INFINITY } = state.change ?? {};
  if (deps.system.now() - at > longestBackMs)
    return {
      state: "failed",
      reason: "It was updated more than 30 days ago: root alone brings the former version back",
    };
  const permitted = permittedUpdates(deps.directory);
  // What the update changed; null: that was no part of it. A file of an earlier agent does not say it: then all of the versions.
  const changed = updatable.filter((what) => (state.change ?? state.former)?.[what] != null);
  const refused = changed.find((what) => !permitted.includes(what));
  if (refused !== undefined) return { state: "failed", reason: notPermitted(refused) };
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
