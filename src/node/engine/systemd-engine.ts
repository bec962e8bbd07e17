// Controls an engine that systemd runs (mode server): its process is the unit's main process, its log is the journal.

import { dirname, join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { requireOwnUnits, unitsServe } from "../../platform/config-root.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import { engineUnit, isEnabled, journalCommand, systemctlCommand } from "../../platform/systemd/systemd.ts";
import { askedProperties, startedProgram, unitProperties } from "../../platform/systemd/unit-properties.ts";
import type { System } from "../../base/system.ts";
import {
  controlEngine,
  harmlessAgeMs,
  staysAlive,
  waitUntilReady,
  type EngineControl,
} from "./control-engine.ts";
import { isFlood } from "./log-lines.ts";
import { findEngineProcess } from "./engine-process.ts";
import type { LogTail } from "./engine-log.ts";
import { needsRestart } from "../files/config/needs-restart.ts";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { ageOf, identifyProcess, isAlive, type ProcessIdentity } from "../../platform/process-identity.ts";

/**
 * Whether systemd runs the engine of an organization: in server mode, in the config root that the units are for. In another root,
 * an organization of the same name is another node, whose engine is found by its arguments.
 */
export function isRunByUnits(
  { directory, mode }: { directory: string; mode: string },
  system: Pick<System, "platform">,
): boolean {
  return mode === "server" && hasSystemd(system) && unitsServe(dirname(directory));
}

/** Pause between two reads of the journal. */
const journalEveryMs = 150;

type Place = { slug: string; directory: string };

type UsedSystem = Pick<System, "run" | "sleep" | "platform">;

export type SystemdEngine = EngineControl &
  Record<"start" | "stop" | "startAgain" | "enable" | "disable", () => Promise<void>> & {
    /** Whether the unit runs or is about to. */
    isUp(): Promise<boolean>;
    /** False if root has disabled the unit with systemctl. */
    isEnabled(): Promise<boolean>;
    /** Whether systemd left the last start out, because a condition of the unit did not hold: config.yml was gone. */
    wasLeftOut(): Promise<boolean>;
  };

/**
 * Controls the engine of one organization's unit. `isSilent`: whether its log level hides the messages about start and reload. Throws
 * conflict if the units run the organizations of another config root.
 */
export function systemdEngine(
  place: Place,
  system: UsedSystem,
  isSilent: () => boolean = () => false,
): SystemdEngine {
  const { slug, directory } = place;
  requireOwnUnits(dirname(directory));
  const unit = engineUnit(slug);
  // An engine that a user stopped meanwhile stays stopped.
  const tryRestart = () => restart(place, "try-restart", { silent: isSilent() }, system);
  const control = async (tail: LogTail) => {
    const identity = await mainProcess(place, system);
    const engine = {
      process: () => (identity !== undefined && isAlive(identity) ? identity : undefined),
      log: () => tail,
      controlSocket: controlSocket(directory),
      restart: tryRestart,
      isSilent,
      isFlooded: () => isFlooded(unit, system),
    };
    return controlEngine(engine, system);
  };
  return {
    running: async () => (await mainProcess(place, system)) !== undefined,
    process: () => mainProcess(place, system),
    reload: async () => {
      const { reloadByApi } = await import("./local-api.ts");
      // Tried first: reading the journal takes longer than a reload by the control socket. Undefined: the engine has no socket.
      const keys = await reloadByApi(controlSocket(directory), system);
      if (keys?.some(needsRestart) === true) return tryRestart();
      if (keys !== undefined) return;
      await readJournal(unit, system, async (tail) => {
        const identity = await mainProcess(place, system);
        // Another process may have restarted the unit just now, and SIGHUP ends an engine that is not ready.
        if (identity !== undefined) await system.sleep(Math.max(0, harmlessAgeMs - ageOf(identity)));
        await (await control(tail)).reload();
      });
    },
    restart: tryRestart,
    startAgain: () => restart(place, "restart", { silent: isSilent() }, system),
    alive: async (ms) => staysAlive(await mainProcess(place, system), ms, system),
    start: () => askSystemd("start", unit, system),
    stop: () => askSystemd("stop", unit, system),
    enable: () => askSystemd("enable", unit, system),
    // Also stops it. Marking it as stopped is not enough: the unit of version 0.1.0 ignores that, and starts at the next boot.
    disable: () => askSystemd("disable --now", unit, system),
    isUp: () => isUp(unit, system),
    wasLeftOut: async () => {
      const names = ["ActiveState", "ConditionResult", "ConditionTimestampMonotonic"] as const;
      const found = await unitProperties(unit, names, system);
      // Before the first start the result is "no", too, with the time 0.
      return (
        found?.ActiveState === "inactive" &&
        found.ConditionResult === "no" &&
        Number(found.ConditionTimestampMonotonic) > 0
      );
    },
    isEnabled: async () =>
      (await unitProperties(unit, ["UnitFileState"], system))?.UnitFileState.startsWith("enabled") ??
      isEnabled(unit),
  };
}

/**
 * The process of the unit, and the program that its next start runs, which a drop-in of an administrator may have changed. Both are
 * undefined if there is no such unit. `isKnown`: false if systemd does not answer: then the process is the one that has the
 * arguments of the unit, if any, and what the next start runs is unknown.
 */
export async function examineUnit(
  { slug, directory }: Place,
  system: Pick<System, "run" | "sleep">,
): Promise<{ process: ProcessIdentity | undefined; program: string | undefined; isKnown: boolean }> {
  // Asks several times: what is unknown here is not reported.
  const answer = await askedProperties(engineUnit(slug), ["MainPID", "ExecStart"], system);
  if (answer === undefined) return { process: byArguments(directory), program: undefined, isKnown: false };
  const { MainPID: pid, ExecStart: start } = answer;
  return { process: identifyProcess(Number(pid)), program: startedProgram(start), isKnown: true };
}

const byArguments = (directory: string) => findEngineProcess(join(directory, "config.yml"));

async function isUp(unit: string, system: UsedSystem): Promise<boolean> {
  const state = (await unitProperties(unit, ["ActiveState"], system))?.ActiveState;
  return state !== undefined && ["active", "activating", "reloading"].includes(state);
}

/** Resolves when the engine is active, or when the unit is off (try-restart). */
async function restart(
  place: Place,
  verb: "restart" | "try-restart",
  { silent }: { silent: boolean },
  system: UsedSystem,
): Promise<void> {
  const unit = engineUnit(place.slug);
  await readJournal(unit, system, async (tail) => {
    await askSystemd(verb, unit, system);
    if (!(await isUp(unit, system))) return;
    const identity = await mainProcess(place, system);
    const options = { silent, isFlooded: () => isFlooded(unit, system) };
    await waitUntilReady(tail, () => identity !== undefined && isAlive(identity), options, system);
  });
}

/** The unit's process or, if systemd does not answer, the one that has its arguments. */
async function mainProcess(
  { slug, directory }: Place,
  system: UsedSystem,
): Promise<ProcessIdentity | undefined> {
  const answer = await unitProperties(engineUnit(slug), ["MainPID"], system);
  return answer === undefined ? byArguments(directory) : identifyProcess(Number(answer.MainPID));
}

/** Throws engine_failed with the reason of systemd. */
async function askSystemd(
  verb: "start" | "stop" | "restart" | "try-restart" | "enable" | "disable --now",
  unit: string,
  system: UsedSystem,
): Promise<void> {
  const { status, stderr } = await system.run(systemctlCommand(...verb.split(" "), unit), {
    timeoutMs: 60_000,
  });
  if (status === 0) return;
  const reason = stderr.trim().split("\n")[0] ?? "";
  throw new AppError(
    "engine_failed",
    `systemd could not ${verb.split(" ")[0]} ${unit}: ${reason || `exit ${status}`}`,
  );
}

/**
 * Reads the unit's journal during `work`, from its present end. It reads again and again instead of following: `journalctl --follow`
 * ends at once if the machine has no inotify instance left.
 */
async function readJournal<T>(
  unit: string,
  system: UsedSystem,
  work: (tail: LogTail) => Promise<T>,
): Promise<T> {
  let { cursor } = await journal(unit, ["--lines=1"], system);
  const unread: string[] = [];
  const ended = new AbortController();
  const reading = (async () => {
    while (!ended.signal.aborted) {
      const after = cursor === undefined ? [] : [`--after-cursor=${cursor}`];
      // A read that fails, for example because no process can be started now, is tried again: `work` has its own time limit.
      const added = await journal(unit, after, system).catch(() => undefined);
      cursor = added?.cursor ?? cursor;
      for (const line of added?.lines ?? []) unread.push(line);
      await system.sleep(journalEveryMs, ended.signal).catch(() => undefined);
    }
  })();
  try {
    return await work({ read: () => unread.splice(0) });
  } finally {
    ended.abort(new Error("Done"));
    await reading;
  }
}

/** The journal keeps the first lines of each interval (LogRateLimitBurst in the unit), and drops the rest. */
async function isFlooded(unit: string, system: UsedSystem): Promise<boolean> {
  return isFlood((await journal(unit, ["--lines=300", "--since=-60s"], system)).lines);
}

/** Lines of the journal, and where the next read begins; undefined if there are none. */
async function journal(
  unit: string,
  flags: readonly string[],
  system: UsedSystem,
): Promise<{ lines: string[]; cursor: string | undefined }> {
  const { stdout } = await system.run(journalCommand(unit, "--show-cursor", ...flags));
  const lines = stdout.split("\n").filter((line) => line !== "");
  const cursor = /^-- cursor: (\S+)$/.exec(lines.at(-1) ?? "")?.[1];
  return { lines: cursor === undefined ? lines : lines.slice(0, -1), cursor };
}
