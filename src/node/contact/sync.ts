// Applies the control plane's configuration to an organization's directory as one transaction: download, verify keys and
// chain, test with the engine, switch, reload, watch the engine. On failure it rolls back to the previous generation.
//
// Whatever keeps a configuration from being applied, its revocations are applied to the one that stays in force:
//
//   where it fails                                           who applies them          then
//   it cannot be verified, or not be finished here           prepareOrRevoke           throws
//   an engine refuses it, or did so a short time ago         applyOrRevoke             result "returned"
//   this machine cannot try it out, or not switch to it      applyOrRevoke             throws
//   a former run switched to it, and the engine refuses it   applyCurrentOrRevoke      result "returned"

import { given } from "../../base/given.ts";
import { join } from "node:path";
import { formatTime } from "../../base/quantities.ts";
import { messageOf } from "../../base/errors.ts";
import { makeSocketDirectory } from "../../platform/systemd/control-socket.ts";
import { wholeConfiguration, type LeftOut } from "../../engine/left-out.ts";
import { endOfCertificates } from "../files/certificate-end.ts";
import { applyCertificates } from "./certificates-alone.ts";
import type { Download } from "./requests/client.ts";
import { unresolved } from "../files/granted/host-names.ts";
import { withLock } from "../files/lock.ts";
import {
  currentGeneration,
  finishSwitch,
  isApplied,
  lastApplied,
  markApplied,
  pruneGenerations,
  readSyncState,
  stageGeneration,
  switchGeneration,
  writeSyncState,
  type SyncState,
} from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import {
  changeNeeds,
  changesCertificates,
  hasSameFiles,
  runningConfigYml,
  type RunningEngine,
} from "./applying/change-needs.ts";
import { prepareOrRevoke } from "./applying/prepare-config.ts";
import { digestOf, noteRefusal, recentRefusal } from "./applying/recent-refusal.ts";
import { tryStaged } from "./applying/try-staged.ts";
import { fetchConfig, type Next, type SyncDeps } from "./next-config.ts";
import { reloadOrRestart, rollBack } from "./engine-switch.ts";
import { recheckPresent } from "./recheck-config.ts";
import { applyRevocations } from "./revocations-alone.ts";
import { checkedState, warnOfLeftOut } from "../files/config/sent-config.ts";

export type SyncResult = {
  result: "changed" | "same" | "returned";
  configVersion: number;
  /** Why the previous configuration was restored. */
  reason?: string;
  /** Changed keys that take effect at the engine's next start. */
  restartPending: string[];
  /** Settings of the control plane that this machine does not accept. */
  leftOut: readonly LeftOut[];
  /** Whether the running engine was given the configuration that it refused. */
  reached?: boolean;
};

/** Throws for failures of network or control plane. A configuration that fails here is a result, not an error. */
export async function syncOrganization(organization: Organization, deps: SyncDeps): Promise<SyncResult> {
  const { slug, directory } = organization;
  // Without the lock: a slow network must not keep other commands waiting.
  const fetched = await fetchConfig(organization, deps);
  return withLock(directory, deps.command, deps.system, async () => {
    // Complete what a killed run left, and check the configuration in force by the rules of this program.
    finishSwitch(directory);
    // Written whatever engine runs: the unit of the next one gets this directory at its start.
    makeSocketDirectory(directory);
    const replaced = await recheckPresent({ directory, slug }, deps);
    const running = { configYml: runningConfigYml(directory, replaced), version: deps.engine.running };

    // Another run applied a newer version meanwhile. Download only once more: a restored server may have lost versions.
    const download = isOlder(fetched, directory) ? await fetchConfig(organization, deps) : fetched;
    // Opened anew: that run may have replaced node-config.json.
    const current = openOrganization(join(directory, ".."), slug);
    const next = await prepareOrRevoke(current, download, deps);

    const formerLeftOut = (readSyncState(directory)?.left_out ?? []).filter(
      ({ key }) => key !== wholeConfiguration,
    );
    warnOfLeftOut(slug, formerLeftOut, next?.leftOut ?? formerLeftOut, deps.log);

    if (next !== undefined && !hasSameFiles(next, directory))
      return applyOrRevoke(current, next, running, deps);
    if (!isApplied(directory)) {
      const refused = await applyCurrentOrRevoke({ slug, directory }, next, running, deps);
      if (refused !== undefined) return refused;
    }
    const configVersion = noteState(directory, download, next);
    return { result: "same", configVersion, restartPending: [], leftOut: next?.leftOut ?? formerLeftOut };
  });
}

function isOlder(download: Download, directory: string): boolean {
  const version = download.changed ? download.answer.config_version : download.configVersion;
  return version !== undefined && version < (readSyncState(directory)?.config_version ?? 0);
}

/**
 * Gives the engine the files that are in force already, because config.yml was checked again and rewritten, or because a kill
 * came between switch and reload. What the engine runs with is unknown after a kill, and what it should have if an older
 * program kept no source of the files (`next` is undefined): then it is restarted. A refused configuration is rolled back as if
 * there had been no kill. Undefined: the engine runs with them.
 */
async function applyCurrentOrRevoke(
  { slug, directory }: { slug: string; directory: string },
  next: Next | undefined,
  running: RunningEngine,
  { control, log }: SyncDeps,
): Promise<SyncResult | undefined> {
  try {
    const restart = next === undefined || changeNeeds(directory, running, next).restart;
    await reloadOrRestart(control, { restart });
    markApplied(directory);
    return undefined;
  } catch (error) {
    const [failedGeneration, formerGeneration] = [currentGeneration(directory), lastApplied(directory)];
    if (failedGeneration === undefined || formerGeneration === undefined || next === undefined) throw error;
    await rollBack(directory, formerGeneration, failedGeneration, { restart: true, reached: true }, control);
    const revocations = await applyRevocations({ directory, slug }, next.sent, { control, log });
    return { ...resultOfReturn(directory, next), reason: `${messageOf(error)}${revocations}` };
  }
}

/** Applies a configuration. If it is refused, at least its revocations and certificates are applied. */
async function applyOrRevoke(
  organization: Organization,
  next: Next,
  running: RunningEngine,
  deps: SyncDeps,
): Promise<SyncResult> {
  const { directory } = organization;
  const digest = digestOf(next, deps.engine);
  const known = deps.isAsked === true ? undefined : recentRefusal(directory, digest, deps.system.now());
  if (known !== undefined) {
    const revocations = await applyRevocations(organization, next.sent, deps);
    const reason = `${known.reason}${revocations}`;
    noteRefusal(directory, reason, known);
    return { ...resultOfReturn(directory, next), reason };
  }
  let result: SyncResult;
  try {
    result = await apply(organization, next, running, deps);
  } catch (error) {
    await applyRevocations(organization, next.sent, deps);
    throw error;
  }
  if (result.reason === undefined) return result;
  const revocations = await applyRevocations(organization, next.sent, deps);
  const certificates = await applyCertificates(organization, next.files, deps);
  const reason = `${result.reason}${revocations}${certificates.text}`;
  const isByRunning = result.reached === true || certificates.reached;
  const at = formatTime(deps.system.now());
  noteRefusal(directory, reason, isByRunning ? { digest, reason: result.reason, at } : undefined);
  return { ...result, reason };
}

/** Without the reason. The version is that of the configuration that stays in force. */
function resultOfReturn(directory: string, { leftOut }: Next): Omit<SyncResult, "reason"> {
  const configVersion = readSyncState(directory)?.config_version ?? 0;
  return { result: "returned", configVersion, restartPending: [], leftOut };
}

/** A result with a reason: an engine refuses the configuration, and the former generation is in force again. */
async function apply(
  organization: Organization,
  next: Next,
  running: RunningEngine,
  deps: SyncDeps,
): Promise<SyncResult> {
  const { slug, directory } = organization;
  const { control, log } = deps;
  const formerGeneration = currentGeneration(directory);
  // First remove what a killed run left.
  pruneGenerations(directory);
  const files = { ...next.files, "config.yml": next.configYml };
  const generation = stageGeneration(directory, files, nextState(directory, next, deps), next.serverYml);
  const returned = resultOfReturn(directory, next);
  const refusal = await tryStaged(organization, generation, next, deps);
  if (refusal !== undefined) return { ...returned, reason: refusal };
  const { restart, later } = changeNeeds(directory, running, next);
  let reached = false;
  try {
    switchGeneration(directory, generation);
    reached = true;
    await reloadOrRestart(control, { restart });
  } catch (error) {
    const reason = messageOf(error);
    if (formerGeneration === undefined) {
      log.warn("The new configuration failed, and there is no previous one", { team: slug, reason });
      throw error;
    }
    log.warn("The new configuration failed; rolling back to the previous one", { team: slug, reason });
    await rollBack(directory, formerGeneration, generation, { restart, reached }, control);
    if (!reached) throw error;
    return { ...returned, reason, reached };
  }
  markApplied(directory);
  pruneGenerations(directory);
  for (const name of unresolved(next.names)) {
    log.warn("Cannot resolve the public address of a node; config.yml leaves it out", { team: slug, name });
  }
  const { configVersion, leftOut } = next;
  return { result: "changed", configVersion, restartPending: restart ? [] : later, leftOut };
}

/** sync.json of the next generation. */
function nextState(directory: string, next: Next, { system }: SyncDeps): SyncState {
  const now = formatTime(system.now());
  const certificatesChangedAt = changesCertificates(directory, next)
    ? now
    : readSyncState(directory)?.certificates_changed_at;
  return {
    etag: next.etag,
    config_version: next.configVersion,
    applied_at: now,
    certificate_not_after: endOfCertificates(next.files["host.crt"]),
    ...given({ certificates_changed_at: certificatesChangedAt, host_names: next.names }),
    ...checkedState(next),
  };
}

/** Without changed files, the reported version and the ETag still change. */
function noteState(directory: string, download: Download, next: Next | undefined): number {
  const state = readSyncState(directory);
  const configVersion = download.changed
    ? download.answer.config_version
    : (download.configVersion ?? state?.config_version ?? 0);
  const etag = download.changed ? download.etag : (state?.etag ?? "");
  if (state !== undefined) {
    const checked = next === undefined ? {} : checkedState(next);
    const noted = { ...state, config_version: configVersion, etag, ...checked, refused: undefined };
    if (!Bun.deepEquals(noted, state)) writeSyncState(directory, noted);
  }
  return configVersion;
}
