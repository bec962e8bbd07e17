// Replaces the running executable with that of a signed release, and lets a guard watch the result. It must refuse a
// release that is unsigned, not newer or for another machine, and an executable that a package owns.
//
// Two things are kept beside the executable: the former one, for a rollback (`keptPath`, `planKeep`), and, on a machine that hands
// out releases, the release that is installed (`keptRelease`, `isKept`, `keepArchive`, `keepRelease`, `planKept`).

import { accessSync, constants, existsSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { brand } from "../../brand.ts";
import { buildInfo } from "../../build-info.ts";
import { AppError } from "../../base/errors.ts";
import { makeDirectory } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { planChanges } from "../../platform/machine-changes.ts";
import { findOwner } from "../../platform/packages.ts";
import { privilegeHint } from "../../platform/privilege.ts";
import { daemonUnit, systemctlCommand } from "../../platform/systemd/systemd.ts";
import { planGet } from "../../release/download.ts";
import { readMember } from "../../release/archive.ts";
import { isKept, keepRelease, keptRelease } from "../../release/kept-release.ts";
import { artifactFor, artifactsFor, manifestName, signatureName } from "../../release/manifest.ts";
import {
  keptPath,
  planExchange,
  planKeep,
  rollBack,
  sweepCandidates,
  writeCandidate,
} from "../../release/replace.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { System } from "../../base/system.ts";
import { withLock } from "../files/lock.ts";
import { trustingControlPlanes } from "../files/pinned-authorities.ts";
import { planRestart } from "../enroll/services.ts";
import { refuseUnsafe } from "../enroll/service-checks.ts";
import { programName } from "../../platform/engine-archive.ts";
import { hasSystemd } from "../../platform/service-manager.ts";
import {
  checkRelease,
  fetchRelease,
  type Patience,
  type UpdateRequest,
} from "../../release/published-release.ts";
import {
  planSeenSequence,
  readMarker,
  readSeenSequence,
  rememberSequence,
  writeSeenSequence,
} from "../files/update-marker.ts";
import { planGuard } from "./update-guard.ts";
import { handOverControlPlane, planHandOver } from "./control-plane-handover.ts";
import {
  guardedUnits,
  planUnderGuard,
  refuseSecond,
  replaceUnderGuard,
  versionOf,
  type Places,
} from "./update-trial.ts";
import { archiveToKeep, artifactsToKeep, fetchArchive, keepArchive, planKept } from "./keep-handed-out.ts";

type UpdateOutcome = {
  from: string;
  to: string;
  source: "release" | "rollback";
  changed: boolean;
  path: string;
};

/**
 * Returns the published version and whether it is newer than this one. The release's number is remembered, so that a
 * mirror cannot show an older release afterwards; only a release that passed every check counts.
 */
export async function checkForUpdate(
  request: UpdateRequest,
  places: Places & { dryRun: boolean },
  {
    system,
    log,
  }: { system: Pick<System, "fetch" | "sleep" | "now" | "executable" | "platform">; log: Pick<Log, "debug"> },
  within?: Patience,
): Promise<{ available: boolean; latest: string; returned?: string }> {
  const published = await fetchRelease(request, trustingControlPlanes(places.configRoot, system), within);
  const manifest = checkRelease(published, request, readSeenSequence(places.stateDb), system);
  rememberSequence(places, manifest.sequence, log);
  const available = compareVersions(manifest.version, buildInfo.version) > 0;
  // Throws if the release has no executable for this machine.
  if (available) artifactFor(manifest, buildInfo.target);
  const last = readMarker(places.stateDb);
  const isReturned = last?.result === "returned" && last.to === manifest.version;
  return {
    available,
    latest: manifest.version,
    ...(isReturned ? { returned: last.reason ?? "no reason given" } : {}),
  };
}

/** Updates this executable. With services, resolves when the guard has confirmed that the new version works. */
export async function selfUpdate(
  request: UpdateRequest,
  places: Places,
  system: System,
): Promise<UpdateOutcome> {
  return underUpdateLock("self-update", places, system, async () => {
    const path = system.executable;
    sweepCandidates(path);
    // Another update may have replaced the executable while this process waited for the lock.
    const from = (await versionOf(path, system)) ?? buildInfo.version;
    const { published, manifest, isOtherVersion } = await findRelease(request, from, places, system);
    const outcome = { from, to: manifest.version, source: "release" as const, path };
    /** Where this installation keeps its release, to hand it to other machines. */
    const kept = existsSync(keptRelease(system)) ? keptRelease(system) : undefined;
    if (!isOtherVersion) {
      // An update may have been interrupted after the executable was replaced.
      if (kept !== undefined && !isKept(kept, published, archiveToKeep(manifest)))
        await keepArchive(published, manifest, places, system);
      await handOverControlPlane(path, system);
      return { ...outcome, changed: false };
    }
    const wanted = kept === undefined ? artifactsFor(manifest, buildInfo.target) : artifactsToKeep(manifest);
    const archive = await fetchArchive(wanted, published.base, places, system);
    const program = readMember(archive.content, programName(brand.executable, system));
    const candidate = writeCandidate(path, program);
    try {
      await testCandidate(candidate, manifest.version, system);
    } catch (error) {
      rmSync(candidate, { force: true });
      throw error;
    }
    // Before the exchange: no mirror may show an older release from now on, also if this one is rolled back.
    writeSeenSequence(places.stateDb, manifest.sequence);
    await replaceUnderGuard(candidate, outcome, places, system);
    if (kept !== undefined) keepRelease(kept, { ...published, archive });
    await handOverControlPlane(path, system);
    return { ...outcome, changed: true };
  });
}

/** The release to install. Throws if it must not be installed. */
async function findRelease(
  request: UpdateRequest,
  from: string,
  places: Places,
  system: Pick<System, "fetch" | "sleep" | "now" | "executable" | "platform">,
) {
  const published = await fetchRelease(request, trustingControlPlanes(places.configRoot, system));
  const manifest = checkRelease(published, request, readSeenSequence(places.stateDb), system);
  const order = compareVersions(manifest.version, from);
  if (order < 0 && !request.allowDowngrade) {
    throw new AppError("failed", `Release ${manifest.version} is older than this one (${from})`, {
      hint: "To install it anyway, add --allow-downgrade.",
    });
  }
  return { published, manifest, isOtherVersion: order !== 0 };
}

/**
 * Runs `work` under the lock of updates, if this program may replace its executable. The lock file is beside the executable, so
 * there is one for a machine, wherever the state database is.
 */
async function underUpdateLock<T>(
  command: string,
  places: Places,
  system: System,
  work: () => Promise<T>,
): Promise<T> {
  await requireOwned(system);
  const path = system.executable;
  requireWritable(path, system);
  const directory = dirname(places.stateDb);
  makeDirectory(directory, 0o755);
  const checked = async () => {
    // A running guard would mistake the exchange for a failure of the new version.
    await refuseSecond(places, system);
    return work();
  };
  const lock = join(dirname(path), `.${basename(path)}.lock`);
  return withLock(directory, command, system, checked, {
    path: lock,
    doing: "updating the agent on this machine",
  });
}

function requireWritable(path: string, system: Pick<System, "platform">): void {
  try {
    accessSync(dirname(path), constants.W_OK);
  } catch (error) {
    throw new AppError("os_permission", `This user cannot replace ${path}`, {
      cause: error,
      hint: privilegeHint(system),
    });
  }
}

/** The plan of selfUpdate. Downloads the manifest, but not the executable. */
export async function planSelfUpdate(
  request: UpdateRequest,
  places: Places,
  system: System,
): Promise<Step[]> {
  await requireOwned(system);
  await refuseSecond(places, system);
  const { published, manifest, isOtherVersion } = await findRelease(
    request,
    buildInfo.version,
    places,
    system,
  );
  const get = (name: string) => planGet(published.base, name);
  const requests = [...get(manifestName), ...get(signatureName)];
  const path = system.executable;
  /** This installation keeps its release, to hand it to other machines. */
  const keeps = existsSync(keptRelease(system));
  if (!isOtherVersion)
    return keeps && !isKept(keptRelease(system), published, archiveToKeep(manifest))
      ? [...requests, ...get(archiveToKeep(manifest)), ...planKept(manifest, system)]
      : requests;
  return [
    ...requests,
    ...get(keeps ? archiveToKeep(manifest) : artifactFor(manifest, buildInfo.target).file),
    ...planSeenSequence(places.stateDb, manifest.sequence),
    ...(guardedUnits().length > 0
      ? [...planUnderGuard(path, places), ...(await planGuard(path, system))]
      : [...planSwap(path), ...planChanges(planRestart(places, system))]),
    ...(keeps ? planKept(manifest, system) : []),
    ...(await planHandOver(system)),
  ];
}

/** The executable, and the former one that is kept. */
function planSwap(executable: string): Step[] {
  return [...planKeep(executable), planReplaced(executable, 0o755)];
}

/** Restores the kept executable and restarts the daemon with it. */
export async function rollBackSelf(places: Places, system: System): Promise<UpdateOutcome> {
  return underUpdateLock("self-update --rollback", places, system, async () => {
    const path = system.executable;
    const kept = keptPath(path);
    const to = existsSync(kept) ? await versionOf(kept, system) : undefined;
    const from = (await versionOf(path, system)) ?? buildInfo.version;
    rollBack(path);
    if (hasSystemd()) await system.run(systemctlCommand("try-restart", daemonUnit), { timeoutMs: 90_000 });
    await handOverControlPlane(path, system);
    return { from, to: to ?? "unknown", source: "rollback" as const, changed: true, path };
  });
}

/** The plan of rollBackSelf. */
export async function planRollBackSelf(places: Places, system: System): Promise<Step[]> {
  await requireOwned(system);
  await refuseSecond(places, system);
  const restart: Step = { step: "run", argv: systemctlCommand("try-restart", daemonUnit) };
  const restarts = [...(hasSystemd() ? [restart] : []), ...(await planHandOver(system))];
  return [...planExchange(system.executable), ...restarts];
}

/** Refuses an executable that a package owns or that runs from source; with services, one that others than root can replace. */
async function requireOwned(system: System): Promise<void> {
  const path = system.executable;
  if (guardedUnits().length > 0) refuseUnsafe(path, "executable", system);
  if (buildInfo.target === "source") {
    throw new AppError("failed", "This program runs from source: there is no installed executable to update");
  }
  const update = await findOwner(path, system);
  if (update === undefined) return;
  throw new AppError("failed", `${path} belongs to a package`, { hint: update });
}

/** The candidate must run on this machine and report the version of the manifest. */
async function testCandidate(candidate: string, version: string, system: System): Promise<void> {
  const reported = await versionOf(candidate, system);
  if (reported === version) return;
  throw new AppError("failed", `The new executable reports version ${reported ?? "none"}, not ${version}`, {
    hint: "Nothing was replaced.",
  });
}
