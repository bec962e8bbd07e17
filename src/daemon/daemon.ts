// The daemon's composition: lock, state, teams, socket, systemd, and the order in which they come and go.

import { dirname } from "node:path";
import { brand } from "../brand.ts";
import { AppError, messageOf } from "../errors.ts";
import type { Log } from "../log.ts";
import type { EngineSettings } from "../node/engine/overlay.ts";
import { restartSignal } from "../platform/systemd.ts";
import type { System } from "../system.ts";
import { headcount, makeHandler, noticeOf } from "./actions.ts";
import type { ControlPlane } from "./control-plane.ts";
import { rotateLog } from "./engine-logs.ts";
import { makeGate } from "./gate.ts";
import { connectDaemon } from "./ipc/client.ts";
import type { Notice } from "./ipc/messages.ts";
import { serveIpc } from "./ipc/server.ts";
import type { LocalAddress } from "./ipc/transport.ts";
import { makeOwnDirectory } from "../platform/own-directory.ts";
import { lockFile } from "../platform/file-lock.ts";
import { openLibc } from "../platform/libc.ts";
import { makeNotifier } from "./notify.ts";
import { openState } from "./state.ts";
import { makeTeams, type Teams } from "./teams.ts";

export type DaemonSettings = EngineSettings & {
  address: LocalAddress;
  configRoot: string;
  stateDb: string;
  autostart: boolean;
  /** Its own log, where it is a file: kept from filling the disk like those of the engines. */
  logFile: string | undefined;
};

export type DaemonDeps = { system: System; log: Log; controlPlane: ControlPlane };

const firstTidyMs = 3000;
const tidyEveryMs = 60_000;

/** Runs until a signal or `shutdown` ends it; the exit status. */
export async function runDaemon(settings: DaemonSettings, deps: DaemonDeps): Promise<number> {
  const { system, log, controlPlane } = deps;
  const libc = openLibc();
  makeOwnDirectory(dirname(settings.stateDb), 0o755);
  if (lockFile(`${settings.stateDb}.lock`) === undefined)
    throw new AppError("busy", `A daemon already works with ${settings.stateDb}`);
  const store = openState(settings.stateDb, log, system.now);
  const subscribers = new Set<(notice: Notice) => void>();
  const notifier = makeNotifier(libc, system, log);
  const teams = makeTeams({
    configRoot: settings.configRoot,
    stateDirectory: dirname(settings.stateDb),
    store,
    system,
    monotonic: () => performance.now(),
    log,
    gate: makeGate(settings, system, log),
    controlPlane,
    publish: ({ team, status }) => {
      for (const notify of subscribers) notify(noticeOf(team, status));
      notifier.status(headcount(teams.status()));
    },
  });
  const tidy = () => {
    teams.tidy();
    try {
      if (settings.logFile !== undefined) rotateLog(settings.logFile, log);
    } catch (error) {
      log.error("The daemon's own log cannot be kept short", { reason: messageOf(error) });
    }
  };
  const ending = listenForSignals(() => {
    lookForTeams(teams, log);
    tidy();
  });
  const end = Promise.withResolvers<"stop">();
  const access = { groupId: groupAccess(libc.groupId(brand.id), settings.address, log) };
  const handle = makeHandler({ teams, subscribers, system, log, shutDown: () => end.resolve("stop") });
  const server = await serveIpc({ address: settings.address, access, libc, handle, system, log });
  if (settings.address.kind === "pipe" && !libc.restrictPipe(settings.address.name, brand.id))
    log.warn("The pipe's access list could not be set: administrators alone can use the daemon");
  teams.open(settings.autostart);

  const background = new AbortController();
  const round = repeat(tidy, system, background.signal);
  const watchdog = notifier.feedWatchdog(() => answersItself(settings.address, system), background.signal);
  notifier.ready();
  log.info("The daemon is ready", { pid: process.pid, teams: teams.slugs().length });

  const how = await Promise.race([ending.promise, end.promise]);
  notifier.stopping();
  log.info(how === "stop" ? "The daemon stops its engines and ends" : "The daemon hands its engines over");
  if (how === "stop") await teams.shutDown();
  await teams.handOver();
  background.abort(new Error("The daemon ends"));
  await server.stop();
  await Promise.all([round, watchdog]);
  store.close();
  ending.forget();
  return 0;
}

/** SIGTERM and SIGINT stop the engines, the signal of a restart leaves them, SIGHUP looks for new teams and tidies up. */
function listenForSignals(provision: () => void) {
  const { promise, resolve } = Promise.withResolvers<"stop" | "hand over">();
  const handlers = [
    ["SIGTERM", () => resolve("stop")],
    ["SIGINT", () => resolve("stop")],
    [restartSignal, () => resolve("hand over")],
    ["SIGHUP", provision],
  ] as const;
  for (const [signal, handler] of handlers) process.on(signal, handler);
  return {
    promise,
    forget: () => {
      for (const [signal, handler] of handlers) process.off(signal, handler);
    },
  };
}

function lookForTeams(teams: Teams, log: Log): void {
  try {
    teams.provision();
  } catch (error) {
    log.error("The teams of this machine cannot be read", { reason: messageOf(error) });
  }
}

function groupAccess(groupId: number | undefined, address: LocalAddress, log: Log): number | undefined {
  if (groupId === undefined && address.kind === "socket")
    log.warn(`There is no group ${brand.id}: root alone can use the daemon`);
  return groupId;
}

/** The first round is soon after the start, which has left most to tidy. */
async function repeat(work: () => void, system: Pick<System, "sleep">, signal: AbortSignal): Promise<void> {
  for (let waitMs = firstTidyMs; !signal.aborted; waitMs = tidyEveryMs) {
    await system.sleep(waitMs, signal).catch(() => undefined);
    if (!signal.aborted) work();
  }
}

/** The daemon asks itself over its own socket: event loop, listener and actions work. */
async function answersItself(address: LocalAddress, system: Pick<System, "sleep">): Promise<void> {
  const client = await connectDaemon(address, system, { patient: false });
  try {
    await client.request({ action: "version" });
  } finally {
    client.close();
  }
}
