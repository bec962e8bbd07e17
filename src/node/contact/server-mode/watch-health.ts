// Server mode: check-auth watches the health of an organization whose engine belongs to systemd or was started by hand, and
// heals it. Needs root, for the engine's socket. Loaded on demand: most commands end before a probe is answered.

import { release } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { brand } from "../../../brand.ts";
import { because } from "../../../base/errors.ts";
import { makeDirectory, writeFileAtomic } from "../../../base/files.ts";
import type { System } from "../../../base/system.ts";
import { atIntervals } from "../../../base/within.ts";
import { openEchoSocket } from "../../../platform/network/echo-socket.ts";
import { isSameProcess, signalProcess } from "../../../platform/process-identity.ts";
import { controlSocket } from "../../../platform/systemd/control-socket.ts";
import type { Healing } from "../../../protocol/path-report.ts";
import type { KeepContext } from "../../edge/keep-edge.ts";
import type { EngineControl } from "../../engine/control-engine.ts";
import { localApi } from "../../engine/local-api.ts";
import { isRunByUnits } from "../../engine/systemd-engine.ts";
import { readLocalChanges } from "../../files/config/local-changes.ts";
import { readValidJson } from "../../files/json-file.ts";
import { openOrganization, type Organization } from "../../files/organizations.ts";
import { applyChanges } from "../../health/apply-changes.ts";
import { HangWatch, type Hanging } from "../../health/hanging-engine.ts";
import { Healer } from "../../health/healer.ts";
import type { OrganizationHealth } from "../../health/organization-health.ts";
import { keptHere } from "../../health/paths/kept-peers-here.ts";
import { OffloadTrial } from "../../health/paths/offload-trial.ts";
import { exchangeProbes } from "../../health/saved-probes.ts";
import { readHealing, writeHealing } from "../../health/saved-healing.ts";
import { examineEngine, organizationDeps } from "../organization-deps.ts";
import { makePathReporter, ReportedPaths, type PathReporter } from "../path-report.ts";
import type { HealthRecord, Watch, Watched } from "./health-record.ts";
import { makeServerHealth, withHealth } from "./server-health.ts";

/** What the parts that change the engine need. */
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
      const { decideForStart } = await import("../../files/config/rewrite-config.ts");
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
    system.monotonic(),
    readHealing(saved, slug, system),
  );
}

/** ms since 1970. */
const LastRestart = v.object({ restarted_at: v.number() });
/** How long an engine writes its goroutines to the journal after SIGQUIT. */
const dumpMs = 2000;

/** Restarts an engine that hangs, once an hour: check-auth lives for a minute, so the time is kept in a file. */
function makeServerHang(
  organization: Organization,
  saved: string,
  { settings, system, log, control }: Acting,
): { hang: HangWatch; restart: Hanging["restart"] } {
  const { slug } = organization;
  const path = join(saved, `${slug}.hang.json`);
  const restartedAt = readValidJson(path, LastRestart)?.restarted_at;
  const hang = new HangWatch(
    restartedAt === undefined ? undefined : system.monotonic() - (system.now() - restartedAt),
  );
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
        // The engine ends by itself after the dump, and systemd starts it again. It is still there if it is paused by a signal, or
        // stuck in the kernel.
        signalProcess(process, "SIGQUIT");
        await system.sleep(dumpMs);
        const runningNow = (await examineEngine(organization, settings, system)).process;
        if (isSameProcess(runningNow, process)) await control.restart();
      } catch (error) {
        log.error("Cannot restart an engine that hangs", because(slug, error));
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
  /** Where the health of all organizations is stored. */
  const { directory: saved } = record;
  const command = `${brand.executable} check-auth`;
  const { control } = organizationDeps(organization, command, { settings, system, log, versionOf });
  const acting = { settings, system, log, versionOf, command, control };
  const healer = makeServerHealer(organization, saved, acting);
  const hanging = makeServerHang(organization, saved, acting);
  const offloads = makeServerTrial(organization, acting);
  // Keeps the addresses of peers, for when no lighthouse answers (kept-peers.ts).
  const kept = keptHere(
    organization,
    { command, control, system },
    { monotonic: system.monotonic, system, log },
  );
  const healing = { healer, offloads, kept, ...hanging };
  const health = makeServerHealth(organization, { settings, system, versionOf }, healing);
  const save = () =>
    record.save(() => {
      record.write(health.current());
      exchangeProbes(saved, slug, health, system);
      writeHealing(saved, slug, healer, system);
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
    const paths = reporterOf(health, healer.healings, { saved, slug }, system);
    return await withHealth(health, () =>
      work({ onCheckin: record.onCheckin, paths, health: health.reporter }),
    );
  } finally {
    ended.abort(new Error("Done"));
    await Promise.all([saving, beside]);
    save();
  }
}

/** Keeps the parts beside the engine running (edge/), which are loaded only when there is an engine of systemd. */
async function besideEngine(context: KeepContext, signal: AbortSignal): Promise<void> {
  const { keepEdge } = await import("../../edge/keep-edge.ts");
  await keepEdge(context, signal);
}

/** Stores what it reported, so that the next run of check-auth goes on from there. */
function reporterOf(
  health: OrganizationHealth,
  healings: Healing[],
  { saved, slug }: { saved: string; slug: string },
  { now }: Pick<System, "now">,
): PathReporter {
  const path = join(saved, `${slug}.reported.json`);
  const peers = () => (health.current() === undefined ? undefined : health.peers());
  const store = {
    read: () => readValidJson(path, ReportedPaths),
    write(reported: ReportedPaths) {
      makeDirectory(saved, 0o755);
      // Which peers this node has is for root alone.
      writeFileAtomic(path, `${JSON.stringify(reported)}\n`, 0o600);
    },
  };
  return makePathReporter({ peers, now, store, healings });
}
