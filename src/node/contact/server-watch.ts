// Watches the health of an organization that no daemon runs, and heals it: its engine belongs to systemd, or was started
// by hand. Needs root, for the engine's socket. Loaded on demand: most commands end before a probe is answered.

import { release } from "node:os";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { worstDisk } from "../../base/disk-space.ts";
import { messageOf } from "../../base/errors.ts";
import { atIntervals } from "../../base/within.ts";
import { makeDirectory, writeFileAtomic } from "../../base/files.ts";
import * as v from "valibot";
import { controlSocket } from "../../platform/systemd/control-socket.ts";
import { openEchoSocket } from "../../platform/network/echo-socket.ts";
import {
  isSameProcess,
  ageOf,
  isAlive,
  signalProcess,
  type ProcessIdentity,
} from "../../platform/process-identity.ts";
import { isRunByUnits } from "../engine/systemd-engine.ts";
import { engineUnit, journalCommand } from "../../platform/systemd/systemd.ts";
import type { Healing } from "../../protocol/path-report.ts";
import type { System } from "../../base/system.ts";
import { rememberVersions, type EngineControl } from "../engine/engine.ts";
import { runningVersion, type VersionOf } from "../engine/engine-in-use.ts";
import { localApi } from "../engine/local-api.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { readValidJson } from "../files/json-file.ts";
import { readLocalChanges } from "../files/config/local-changes.ts";
import { applyChanges } from "../health/apply-changes.ts";
import { Healer, knownHealing } from "../health/healer.ts";
import { readHealing, writeHealing } from "../health/saved-healing.ts";
import { HangWatch, tunnelsOrRestart, type Hanging } from "../health/hanging-engine.ts";
import { keptHere, type KeptPeers } from "../health/paths/kept-peers.ts";
import { OffloadTrial } from "../health/paths/offload-trial.ts";
import { OrganizationHealth, type HealthDeps } from "../health/organization-health.ts";
import type { PeersSeen } from "../health/shown-peer.ts";
import { exchangeProbes, restoreProbes, savedHealthDirectory } from "../health/saved-health.ts";
import type { HealthRecord, Watch, Watched } from "./health-record.ts";
import type { KeepContext } from "../edge/keep-edge.ts";
import { makePathReporter, ReportedPaths, type PathReporter } from "./path-report.ts";
import { examineEngine, organizationDeps, type OrganizationSettings } from "./organization-deps.ts";

const logLines = 500;
const monotonic = () => performance.now();

/** Continues with the state of the last run of check-auth. */
export function makeServerHealth(
  organization: Organization,
  settings: OrganizationSettings,
  system: System,
  versionOf: VersionOf = rememberVersions(system),
  watched?: {
    healer: Healer;
    offloads: OffloadTrial;
    kept: KeptPeers;
    hang: HangWatch;
    restart: Hanging["restart"];
  },
): OrganizationHealth {
  const { slug, directory, config } = organization;
  const api = localApi(controlSocket(directory), system);
  const saved = savedHealthDirectory(settings.configRoot, system.platform);
  let last: ProcessIdentity | undefined;
  const health: OrganizationHealth = new OrganizationHealth(organization, {
    // Reads what healing knows: without it, `status --check` would call an organization running that `status` calls
    // degraded.
    ...(watched === undefined
      ? savedHealing(saved, slug, system)
      : { healer: watched.healer, offloads: watched.offloads, kept: watched.kept }),
    system,
    monotonic,
    open: openEchoSocket,
    async engine() {
      const found = await examineEngine(organization, settings, system);
      // Where systemd does not answer, the engine that it named before is the one that runs, as long as it lives.
      if (!found.isKnown && found.process === undefined && last !== undefined && isAlive(last))
        found.process = last;
      const { process, program } = found;
      last = process;
      if (process === undefined) return undefined;
      const version = await runningVersion(process, program, versionOf);
      return { pid: process.pid, version, ageMs: ageOf(process) };
    },
    tunnels() {
      if (watched === undefined) return api.hostmap();
      return tunnelsOrRestart(watched.hang, {
        api,
        process: async () => (await examineEngine(organization, settings, system)).process,
        answeredAt: () => health.prober.lastAnswer,
        monotonic,
        restart: watched.restart,
      });
    },
    disk: () => worstDisk([directory]),
    async recentLog() {
      if (!isRunByUnits({ directory, mode: config.mode }, system)) return [];
      const argv = journalCommand(engineUnit(slug), `--lines=${logLines}`);
      return (await system.run(argv)).stdout.split("\n");
    },
  });
  restoreProbes(saved, slug, health, { now: system.now, monotonic });
  return health;
}

/** Reads the peers once, for a command. check-auth then goes on probing the peers that the user asked for. */
export async function readServerPeers(
  organization: Organization,
  settings: OrganizationSettings,
  system: System,
  { withinMs, peer }: { withinMs: number; peer: string | undefined },
): Promise<PeersSeen> {
  const health = makeServerHealth(organization, settings, system);
  const seen = await withHealth(health, () => health.readPeers(withinMs, peer));
  try {
    const saved = savedHealthDirectory(settings.configRoot, system.platform);
    exchangeProbes(saved, organization.slug, health, { now: system.now, monotonic });
  } catch {
    // A full /run must not fail the look. Then the peer is forgotten.
  }
  return seen;
}

/** The state of check-auth's healer. */
function savedHealing(saved: string, slug: string, { now }: Pick<System, "now">): Pick<HealthDeps, "known"> {
  const healing = readHealing(saved, slug, { now, monotonic });
  return healing === undefined ? {} : { known: knownHealing(healing.state) };
}

/** The parts that change the engine, used by check-auth only. */
type Acting = Watched & { command: string; control: EngineControl };

function makeServerTrial(
  organization: Organization,
  { system, log, command, control }: Acting,
): OffloadTrial {
  const { slug, directory } = organization;
  return new OffloadTrial({
    place: { slug, directory },
    kernel: release(),
    async decide(engine) {
      // Loaded on demand: it decodes certificates, and most runs decide nothing.
      const { decideForStart } = await import("../files/config/rewrite-config.ts");
      await decideForStart({ slug, directory }, engine, { command, system });
    },
    restart: control.restart,
    log,
    open: openEchoSocket,
    system,
  });
}

/** Heals from where the last run of check-auth stopped. */
function makeServerHealer(
  organization: Organization,
  saved: string,
  { system, log, command, control }: Acting,
): Healer {
  const { slug, directory } = organization;
  return new Healer(
    {
      slug,
      api: localApi(controlSocket(directory), system),
      apply: (healing) => applyChanges(organization, { healing }, { command, control, system }),
      log,
    },
    readLocalChanges(directory),
    monotonic(),
    readHealing(saved, slug, { now: system.now, monotonic }),
  );
}

const HungAt = v.object({ restarted_at: v.number() });
/** How long an engine writes its goroutines after SIGQUIT, to the journal. */
const dumpMs = 2000;

/** Restarts an engine that hangs, once an hour: check-auth lives for a minute, so the time is kept in a file. */
function makeServerHang(
  organization: Organization,
  saved: string,
  { settings, system, log, control }: Acting,
): { hang: HangWatch; restart: Hanging["restart"] } {
  const { slug } = organization;
  const path = join(saved, `${slug}.hang.json`);
  const before = readValidJson(path, HungAt)?.restarted_at;
  const hang = new HangWatch(before === undefined ? undefined : monotonic() - (system.now() - before));
  return {
    hang,
    async restart(process) {
      log.error("An engine hangs: its control socket is silent and no peer answers. Restarting it", {
        team: slug,
        pid: process.pid,
      });
      try {
        makeDirectory(saved, 0o755);
        writeFileAtomic(path, `${JSON.stringify({ restarted_at: system.now() })}\n`, 0o600);
        // The engine ends by itself after the dump, and systemd starts it again, unless it is stopped or stuck in the kernel.
        signalProcess(process, "SIGQUIT");
        await system.sleep(dumpMs);
        const present = (await examineEngine(organization, settings, system)).process;
        if (isSameProcess(present, process)) await control.restart();
      } catch (error) {
        log.error("Cannot restart an engine that hangs", { team: slug, reason: messageOf(error) });
      }
    },
  };
}

const firstSaveMs = 2000;
const saveEveryMs = 5000;

/** Watches the organization during `work`, and keeps up to date what `status` shows. */
export async function watchHealth<T>(
  organization: Organization,
  { settings, system, log, versionOf }: Watched,
  record: HealthRecord,
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  const { slug } = organization;
  const { directory } = record;
  const command = `${brand.executable} check-auth`;
  const { control } = organizationDeps(organization, settings, { system, log, command, versionOf });
  const acting = { settings, system, log, versionOf, command, control };
  const healer = makeServerHealer(organization, directory, acting);
  const hanging = makeServerHang(organization, directory, acting);
  const offloads = makeServerTrial(organization, acting);
  const kept = keptHere(organization, { command, control, system }, { monotonic, system, log });
  const health = makeServerHealth(organization, settings, system, versionOf, {
    healer,
    offloads,
    kept,
    ...hanging,
  });
  const clock = { now: system.now, monotonic };
  const save = () =>
    record.save(() => {
      record.write(health.current());
      exchangeProbes(directory, slug, health, clock);
      writeHealing(directory, slug, healer, clock);
    });
  const ended = new AbortController();
  const { signal } = ended;
  const saving = atIntervals(save, { firstMs: firstSaveMs, everyMs: saveEveryMs, signal, system });
  const open = () => openOrganization(settings.configRoot, slug);
  const heardAt = (peers: readonly string[]) => health.prober.lastAnswerOf(peers);
  const beside = isRunByUnits({ directory: organization.directory, mode: organization.config.mode }, system)
    ? besideEngine({ ...organization, open, control, command, log, heardAt, system }, signal)
    : Promise.resolve();
  try {
    const paths = reporterOf(health, healer.healings, directory, slug, system);
    return await withHealth(health, () =>
      work({ onCheckin: record.onCheckin, paths, health: health.reporter }),
    );
  } finally {
    ended.abort(new Error("Done"));
    await Promise.all([saving, beside]);
    save();
  }
}

/** Loaded on demand: `status` looks once, and starts nothing. */
async function besideEngine(context: KeepContext, signal: AbortSignal): Promise<void> {
  const { keepEdge } = await import("../edge/keep-edge.ts");
  await keepEdge(context, signal);
}

/** The next process goes on from what this one reported. */
function reporterOf(
  health: OrganizationHealth,
  healings: Healing[],
  directory: string,
  slug: string,
  { now }: Pick<System, "now">,
): PathReporter {
  const path = join(directory, `${slug}.reported.json`);
  const peers = () => (health.current() === undefined ? undefined : health.peers());
  const store = {
    read: () => readValidJson(path, ReportedPaths),
    write(reported: ReportedPaths) {
      makeDirectory(directory, 0o755);
      // Which peers this node has is for root alone.
      writeFileAtomic(path, `${JSON.stringify(reported)}\n`, 0o600);
    },
  };
  return makePathReporter({ peers, now, store, healings });
}

/** Runs the watch for the time of `work`. */
export async function withHealth<T>(health: OrganizationHealth, work: () => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const running = health.run(ended.signal);
  try {
    return await work();
  } finally {
    ended.abort(new Error("Done"));
    await running;
  }
}
