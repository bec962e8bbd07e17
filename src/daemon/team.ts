// One team as the daemon holds it: its engine's supervisor, its connection to the control plane, and what is noted of
// it for the next daemon. It knows of no other team.

import { join } from "node:path";
import { messageOf } from "../errors.ts";
import { readTextIfThere } from "../files.ts";
import type { Log } from "../log.ts";
import { isSilent } from "../node/files/config-file.ts";
import { findEngine } from "../node/engine/found-engine.ts";
import { ageOf } from "../platform/process-identity.ts";
import { openOrganization, type Organization } from "../node/files/organizations.ts";
import { certificateWarning } from "../node/files/organization-facts.ts";
import { writesTo } from "../platform/processes.ts";
import type { System } from "../system.ts";
import type { ControlPlane, SyncOutcome, TeamNews } from "./control-plane.ts";
import { logPath, rotateLog } from "./engine-logs.ts";
import type { makeGate } from "./gate.ts";
import type { TeamStatus } from "./ipc/messages.ts";
import { spawnEngine, watchEnd } from "./processes.ts";
import type { StateStore, TeamRecord } from "./state.ts";
import { supervise } from "./supervisor.ts";
import type { makeTeamStatus } from "./team-status.ts";

export type TeamDeps = {
  configRoot: string;
  stateDirectory: string;
  store: StateStore;
  system: Pick<System, "now" | "sleep" | "platform" | "random" | "fetch">;
  monotonic(): number;
  log: Log;
  gate: ReturnType<typeof makeGate>;
  controlPlane: ControlPlane;
  statuses: ReturnType<typeof makeTeamStatus>;
  /** What clients that subscribed are told. */
  publish(notice: { team: string; status: TeamStatus | undefined }): void;
};

export type Team = ReturnType<typeof makeTeam>;

/** systemd waits 25 s for the daemon's end. */
const lastChangeMs = 10_000;

export function makeTeam(slug: string, initial: TeamRecord, deps: TeamDeps) {
  const { store, log, system, gate } = deps;
  const path = logPath(deps.stateDirectory, slug);
  const configPath = join(deps.configRoot, slug, "config.yml");
  const organization = () => openOrganization(deps.configRoot, slug);
  let record = initial;
  /** The record could not be written; the next round tries again. */
  let unsaved = false;
  let warned: string | undefined;
  let connection: AbortController | undefined;
  let following: Promise<void> = Promise.resolve();
  let lastSync: Promise<unknown> = Promise.resolve();
  let nextSync: Promise<SyncOutcome> | undefined;
  /** Which registration its connection and engine belong to: `register --force` replaces the directory. */
  let registration = registrationOf(organization());

  const supervisor = supervise(record.wanted, {
    team: slug,
    logPath: path,
    system,
    monotonic: deps.monotonic,
    log,
    prepare: () => gate.enter(organization()),
    isSilent: () => isSilent(readTextIfThere(configPath) ?? ""),
    logsHere: ({ pid }) => writesTo(pid, path),
    find: () => findEngine(configPath),
    ageOf,
    spawn: spawnEngine,
    watchEnd: (process, signal) => watchEnd(process, system, signal),
    remember,
    changed() {
      const { is } = supervisor.state().phase;
      if (is === "stopped" || is === "waiting") gate.leave(slug);
      deps.publish({ team: slug, status: status() });
    },
  });

  /** What happened by itself is noted as soon as there is room. */
  function note(change: Partial<TeamRecord>): void {
    record = { ...record, ...change };
    try {
      store.putTeam(slug, record);
      unsaved = false;
    } catch (error) {
      unsaved = true;
      log.error("A team's state cannot be noted", { team: slug, reason: messageOf(error) });
    }
  }

  /** A fresh engine has read everything. */
  function remember(process: TeamRecord["process"]): void {
    const same = process?.started === record.process?.started;
    note(same ? { process } : { process, restartPending: undefined });
  }

  const news: TeamNews = {
    // Kept in memory until something else is written: one write a minute for each team is not worth it.
    checkedIn: (at) => (record = { ...record, lastCheckinAt: at }),
    restartPending(keys) {
      // What an earlier change left waiting still waits.
      const all = new Set([...(record.restartPending ?? []), ...keys]);
      if (keys.length > 0) note({ restartPending: [...all] });
    },
  };

  function connect(): void {
    if (connection !== undefined) return;
    const own = (connection = new AbortController());
    following = deps.controlPlane
      .follow(organization(), supervisor.control, news, own.signal)
      .catch((error: unknown) => {
        if (!own.signal.aborted)
          log.error("The connection to a control plane has ended", { team: slug, reason: messageOf(error) });
      });
  }

  function disconnect(): void {
    connection?.abort(new Error("The team is stopped"));
    connection = undefined;
  }

  const status = (): TeamStatus =>
    deps.statuses.describe(slug, { supervisor, record }, store.active() === slug);

  /** Once for each day that is left. */
  function warnOfEnd(): void {
    const warning = certificateWarning(status().certificate_not_after, system.now());
    if (warning !== undefined && warning !== warned) log.warn(warning, { team: slug });
    warned = warning;
  }

  return {
    supervisor,
    status,
    connect,
    disconnect,
    note,
    logPath: path,
    /** What somebody asked for: durable before it is carried out; a full disk refuses it. */
    save(change: Partial<TeamRecord>): void {
      const changed = { ...record, ...change };
      store.putTeam(slug, changed);
      record = changed;
      unsaved = false;
    },
    /** At its first sight: adopts the engine that runs, else starts one if that is wanted. */
    bringUp(mayStart: boolean): void {
      const revoked = gate.isRevoked(organization());
      const wanted = record.wanted === "up";
      const adopted = supervisor.adopt(record.process);
      if (!adopted && record.process !== undefined) note({ process: undefined });
      // Before anything can fail: what is damaged here is mended from there.
      if (wanted) connect();
      if (adopted) occupy();
      if (revoked) later(supervisor.stop());
      else if (wanted && (adopted || mayStart)) later(supervisor.start());
    },
    /** A team that was registered anew gets a new connection, and its engine new keys; false if it was not. */
    renew(): boolean {
      const present = registrationOf(organization());
      if (present === registration) return false;
      registration = present;
      disconnect();
      if (record.wanted === "down") return false;
      connect();
      later(supervisor.restart());
      return true;
    },
    /** One at a time: all who ask while one is under way get the next one. */
    sync(): Promise<SyncOutcome> {
      nextSync ??= lastSync.then(() => {
        nextSync = undefined;
        const own = deps.controlPlane.sync(organization(), supervisor.control, news);
        lastSync = own.catch(() => undefined);
        return own;
      });
      return nextSync;
    },
    /** What has to be done now and then: its log kept short, its note written if there was no room, its end foreseen. */
    tidy(): void {
      rotateLog(path, log);
      if (unsaved) note({});
      warnOfEnd();
    },
    /** Leaves the engine to the next daemon. A change that is being applied is not left half-way. */
    async handOver(): Promise<void> {
      disconnect();
      const over = new AbortController();
      const late = system.sleep(lastChangeMs, over.signal).catch(() => undefined);
      await Promise.race([following, late]);
      over.abort(new Error("Handed over"));
      supervisor.release();
      if (unsaved) note({});
    },
  };

  function occupy(): void {
    try {
      gate.occupy(organization());
    } catch (error) {
      log.warn("What an engine has taken cannot be read", { team: slug, reason: messageOf(error) });
    }
  }

  /** Nobody waits for it: the supervisor goes on trying, and `status` says why. */
  function later(work: Promise<void>): void {
    work.catch((error: unknown) => log.debug("Not so yet", { team: slug, reason: messageOf(error) }));
  }
}

function registrationOf({ config }: Organization): string {
  return `${config.node_id} ${config.registered_at}`;
}
