// The composition root of the daemon: lock, state, engines, socket and systemd, and the order of their start and stop.

import { dirname } from "node:path";
import { brand } from "../brand.ts";
import { AppError, because, messageOf } from "../base/errors.ts";
import { atIntervals } from "../base/within.ts";
import type { Log } from "../base/log.ts";
import { rememberVersions } from "../node/engine/engine.ts";
import { runningVersion } from "../node/engine/engine-in-use.ts";
import { openOrganization } from "../node/files/organizations.ts";
import { findEngine, type EngineSettings } from "../node/engine/find-engine.ts";
import { openEchoSocket } from "../platform/network/echo-socket.ts";
import { restartSignal } from "../platform/systemd/systemd.ts";
import type { System } from "../base/system.ts";
import { makeHandler, noticeOf, summarize } from "./actions.ts";
import type { ControlPlane } from "./control-plane.ts";
import { rotateLog } from "./engine-logs.ts";
import { makeGate } from "./start-checks.ts";
import { askDaemon } from "./ipc/client.ts";
import type { Notice } from "./ipc/messages.ts";
import { serveIpc } from "./ipc/server.ts";
import type { LocalAddress } from "./ipc/transport.ts";
import { makeOwnDirectory } from "../platform/own-directory.ts";
import { openLibc } from "../platform/libc.ts";
import { namesPlaces } from "../platform/names-places.ts";
import { makeNotifier } from "../platform/systemd/notify.ts";
import { openState, lockState, stateHolder, type StateStore } from "./state.ts";
import { claimState } from "./state-root.ts";
import type { OrganizationEngineDeps } from "./organization-engine.ts";
import { OrganizationEngines } from "./organization-engines.ts";

export type DaemonSettings = EngineSettings & {
  address: LocalAddress;
  configRoot: string;
  stateDb: string;
  autostart: boolean;
  /** The daemon's own log if it is a file. It is rotated like the logs of the engines. */
  logFile: string | undefined;
};

type DaemonDeps = { system: System; log: Log; controlPlane: ControlPlane };

const firstTidyMs = 3000;
const tidyEveryMs = 60_000;
/** How often the length of logs is checked, and how often while one grows too fast. */
const logsEveryMs = 2000;
const floodedEveryMs = 500;

function besideAnother(stateDb: string): AppError {
  const pid = stateHolder(stateDb);
  const which = pid === undefined ? "Another daemon" : `Another daemon, process ${pid},`;
  return new AppError("busy", `${which} already uses ${stateDb}`, {
    hint: `One is enough for all organizations: \`${brand.executable} status\` says whether it answers, and how to restart it if not.`,
  });
}

/**
 * Runs until a signal or `shutdown` ends it. Returns the exit status. What a start has opened is closed again if a later
 * step fails: the process must end, and leave no lock or socket to the next one.
 */
export async function runDaemon(settings: DaemonSettings, deps: DaemonDeps): Promise<number> {
  const { system, log } = deps;
  // Closed in the reverse order: engines are handed over first, the lock is released last.
  await using opened = new AsyncDisposableStack();
  const libc = openLibc();
  makeOwnDirectory(dirname(settings.stateDb), 0o755);
  const lock = lockState(settings.stateDb);
  if (lock === undefined) throw besideAnother(settings.stateDb);
  opened.defer(lock.release);
  // Throws if the state is that of another configuration root, which still has organizations.
  claimState(settings.stateDb, settings.configRoot, log);
  const store = openState(settings.stateDb, log, system.now);
  opened.defer(() => store.close());

  // The engines, which are not started yet.
  const subscribers = new Set<(notice: Notice) => void>();
  const notifier = makeNotifier(libc, system, log);
  const engines = makeEngines(settings, deps, store, ({ slug, status }) => {
    for (const notify of subscribers) notify(noticeOf(slug, status));
    notifier.status(summarize(engines.status()));
  });
  const tidy = () => {
    engines.tidy();
    try {
      if (settings.logFile !== undefined) rotateLog(settings.logFile, log);
    } catch (error) {
      log.error("Cannot rotate the daemon's own log", { reason: messageOf(error) });
    }
  };

  // What ends the daemon, and its loops.
  const signals = listenForSignals(() => {
    provision(engines, log);
    tidy();
  });
  opened.defer(signals.stopListening);
  const shutdownRequest = Promise.withResolvers<"stop">();
  const background = new AbortController();
  const { signal } = background;
  const rounds: Promise<void>[] = [];
  opened.defer(async () => void (await Promise.all(rounds)));

  // The socket answers before engines start, which may take long.
  const access = { groupId: groupAccess(libc.groupId(brand.id), settings.address, log) };
  const about = { engines, configRoot: settings.configRoot, subscribers, system, log };
  const handle = makeHandler({ ...about, shutDown: () => shutdownRequest.resolve("stop") });
  const server = await serveIpc({ address: settings.address, access, libc, handle, system, log });
  opened.defer(() => server.stop());
  opened.defer(() => background.abort(new Error("The daemon ends")));
  if (settings.address.kind === "pipe" && !libc.restrictPipe(settings.address.name, brand.id))
    log.warn("Cannot set the access list of the pipe: only administrators can use the daemon");
  // For a later step that fails: the daemon's usual end hands over below.
  opened.defer(() => engines.handOver());
  // Free what loading the program has left, before lasting objects are allocated beside it: that saves a megabyte.
  Bun.gc(true);
  engines.open(settings.autostart);

  rounds.push(
    atIntervals(tidy, { firstMs: firstTidyMs, everyMs: tidyEveryMs, signal, system }),
    keepLogsShort(engines, system, signal),
    serveNames(settings, { system, log }, signal),
    notifier.feedWatchdog(() => checkSelf(settings.address, system), signal),
  );
  notifier.ready();
  log.info("The daemon is ready", { pid: process.pid, teams: engines.slugs().length });

  const how = await Promise.race([signals.promise, shutdownRequest.promise]);
  notifier.stopping();
  log.info(
    how === "stop"
      ? "The daemon stops its engines and ends"
      : "The daemon ends and leaves its engines running",
  );
  if (how === "stop") await engines.shutDown();
  await engines.handOver();
  if (how === "stop") await leaveAll(engines.slugs(), settings, deps);
  return 0;
}

function makeEngines(
  settings: DaemonSettings,
  { system, log, controlPlane }: DaemonDeps,
  store: StateStore,
  publish: OrganizationEngineDeps["publish"],
): OrganizationEngines {
  const versionOf = rememberVersions(system);
  return new OrganizationEngines({
    configRoot: settings.configRoot,
    stateDirectory: dirname(settings.stateDb),
    store,
    system,
    log,
    gate: makeGate(settings, system, log),
    openEcho: openEchoSocket,
    engineVersion: (process) => runningVersion(process, findEngine(settings, system)?.path, versionOf),
    controlPlane,
    publish,
  });
}

/** Tells control planes that ephemeral nodes leave: they end with the daemon that runs them. */
async function leaveAll(
  slugs: readonly string[],
  { configRoot }: DaemonSettings,
  { controlPlane, log }: DaemonDeps,
): Promise<void> {
  await Promise.all(
    slugs.map(async (slug) => {
      try {
        await controlPlane.leave(openOrganization(configRoot, slug));
      } catch (error) {
        log.debug("Cannot tell the control plane that this node ends", because(slug, error));
      }
    }),
  );
}

/** SIGTERM and SIGINT stop the engines, the restart signal leaves them running, SIGHUP loads new organizations. */
function listenForSignals(onHangUp: () => void) {
  const { promise, resolve } = Promise.withResolvers<"stop" | "hand over">();
  const handlers = [
    ["SIGTERM", () => resolve("stop")],
    ["SIGINT", () => resolve("stop")],
    [restartSignal, () => resolve("hand over")],
    ["SIGHUP", onHangUp],
  ] as const;
  for (const [signal, handler] of handlers) process.on(signal, handler);
  return {
    promise,
    stopListening: () => {
      for (const [signal, handler] of handlers) process.off(signal, handler);
    },
  };
}

function provision(engines: OrganizationEngines, log: Log): void {
  try {
    engines.provision();
  } catch (error) {
    log.error("Cannot list the organizations of this machine", { reason: messageOf(error) });
  }
}

function groupAccess(groupId: number | undefined, address: LocalAddress, log: Log): number | undefined {
  if (groupId === undefined && address.kind === "socket")
    log.warn(`There is no group ${brand.id}: only root can use the daemon`);
  return groupId;
}

/** Serves names to programs where no unit does. Loaded on demand: it needs megabytes. */
async function serveNames(
  settings: DaemonSettings,
  needs: Pick<DaemonDeps, "system" | "log">,
  signal: AbortSignal,
): Promise<void> {
  const { switchPath } = namesPlaces(needs.system, settings.stateDb);
  // Undefined where a systemd unit serves names.
  if (switchPath === undefined) return;
  const { serveNamesInDaemon } = await import("../node/names/daemon-names.ts");
  await serveNamesInDaemon(settings, switchPath, needs, signal);
}

/** Rotates the engines' logs before they fill the disk. */
async function keepLogsShort(
  engines: Pick<OrganizationEngines, "rotateLogs">,
  system: Pick<System, "sleep">,
  signal: AbortSignal,
): Promise<void> {
  // Invalid packets make an engine write 9 MB a second: during such a flood, check more often.
  for (let waitMs = logsEveryMs; !signal.aborted;) {
    await system.sleep(waitMs, signal).catch(() => undefined);
    if (!signal.aborted) waitMs = engines.rotateLogs() ? floodedEveryMs : Math.min(logsEveryMs, 2 * waitMs);
  }
}

/** Sends a request over the daemon's own socket: proves that event loop, listener and actions work. */
async function checkSelf(address: LocalAddress, system: Pick<System, "sleep">): Promise<void> {
  await askDaemon(address, system, { action: "version" }, { patient: false });
}
