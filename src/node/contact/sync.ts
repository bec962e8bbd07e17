// Applies the control plane's configuration to an organization's directory as one transaction: download, verify keys and
// chain, test with the engine, switch, reload, watch the engine. On failure it rolls back to the previous generation.
//
// Whatever keeps a configuration from being applied, its revocations are applied to the one that stays in force:
//
//   where it fails                                           who applies them          then
//   it cannot be verified, or not be finished here           prepareOrRevoke           throws
//   an engine refuses it, or did so a short time ago         applyOrRevoke             result "returned"
//   this machine cannot try it out, or not switch to it      applyOrRevoke             throws
//   a killed run switched to it, and the engine refuses it   applyInForceOrRevoke      result "returned"

import { join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { makeSocketDirectory } from "../../platform/systemd/control-socket.ts";
import { wholeConfiguration } from "../../engine/left-out.ts";
import type { Download } from "./requests/client.ts";
import { withLock } from "../files/lock.ts";
import {
  currentGeneration,
  finishSwitch,
  isApplied,
  lastApplied,
  markApplied,
  readSyncState,
  writeSyncState,
} from "../files/generations.ts";
import { openOrganization, type Organization } from "../files/organizations.ts";
import { applyOrRevoke, resultOfReturn, type SyncResult } from "./applying/apply-next.ts";
import { changeNeeds, hasSameFiles, runningConfigYml, type RunningEngine } from "./applying/change-needs.ts";
import { prepareOrRevoke } from "./applying/prepare-config.ts";
import { fetchConfig, type Next, type SyncDeps } from "./next-config.ts";
import { reloadOrRestart, rollBack } from "./generation-switch.ts";
import { recheckInForce } from "./recheck-config.ts";
import { applyRevocations } from "./revocations-alone.ts";
import { checkedState, warnOfLeftOut } from "../files/config/sent-config.ts";

/** Throws for failures of network or control plane. A configuration that fails here is a result, not an error. */
export async function syncOrganization(organization: Organization, deps: SyncDeps): Promise<SyncResult> {
  const { slug, directory } = organization;
  // Without the lock: a slow network must not keep other commands waiting.
  const firstDownload = await fetchConfig(organization, deps);
  return withLock(directory, deps.command, deps.system, async () => {
    // Complete what a killed run left. Then check the configuration in force by the rules of this program (recheckInForce).
    const restored = finishSwitch(directory);
    // Written whatever engine runs: the unit of the next one gets this directory at its start.
    makeSocketDirectory(directory);
    const replacedYml = await recheckInForce({ directory, slug }, deps);
    // What the engine runs with now, to see which changes need a restart.
    const running = { configYml: runningConfigYml(directory, replacedYml), version: deps.engine.running };

    // Another run may have applied a newer version before this one got the lock. Download only once more: a control plane that
    // was restored from a backup may have lost versions.
    const download = isOlder(firstDownload, directory)
      ? await fetchConfig(organization, deps)
      : firstDownload;
    // Opened again: that run may have replaced node-config.json.
    const reopened = openOrganization(join(directory, ".."), slug);
    // Undefined: the control plane has nothing new, and an older program kept no source of the files in force.
    const next = await prepareOrRevoke(reopened, download, deps);

    // Without the note of a configuration that was refused as a whole: that is no setting.
    const formerLeftOut = (readSyncState(directory)?.left_out ?? []).filter(
      ({ key }) => key !== wholeConfiguration,
    );
    const leftOut = next?.leftOut ?? formerLeftOut;
    warnOfLeftOut(slug, formerLeftOut, leftOut, deps.log);

    if (next !== undefined && !hasSameFiles(next, directory))
      return applyOrRevoke(reopened, next, running, deps);
    if (!isApplied(directory)) {
      const refusal = await applyInForceOrRevoke({ slug, directory }, next, running, deps);
      if (refusal !== undefined) return refusal;
    }
    const configVersion = noteUnchanged(directory, download, next);
    return { result: "same", configVersion, restartPending: [], leftOut, restored };
  });
}

function isOlder(download: Download, directory: string): boolean {
  const version = download.changed ? download.answer.config_version : download.configVersion;
  return version !== undefined && version < (readSyncState(directory)?.config_version ?? 0);
}

/**
 * Gives the engine the files in force, which it may not run with: config.yml was checked again and rewritten, or a kill came
 * between switch and reload. The engine is restarted if a reload may not be enough: after a kill it is unknown what it runs
 * with; without `next` (see above) it is unknown which keys changed. If the engine refuses the files, they are rolled back as
 * if there had been no kill. Undefined: the engine runs with them.
 */
async function applyInForceOrRevoke(
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
    const failedGeneration = currentGeneration(directory);
    const formerGeneration = lastApplied(directory);
    if (failedGeneration === undefined || formerGeneration === undefined || next === undefined) throw error;
    // `reached`: the engine was told to apply the failed files, and it is unknown what it runs with.
    await rollBack(directory, formerGeneration, failedGeneration, { restart: true, reached: true }, control);
    const revocations = await applyRevocations({ directory, slug }, next.sent, { control, log });
    return { ...resultOfReturn(directory, next), reason: `${messageOf(error)}${revocations}` };
  }
}

/** Without changed files, the version and the ETag can still be new. Returns the version in force. */
function noteUnchanged(directory: string, download: Download, next: Next | undefined): number {
  const state = readSyncState(directory);
  const configVersion = download.changed
    ? download.answer.config_version
    : (download.configVersion ?? state?.config_version ?? 0);
  const etag = download.changed ? download.etag : (state?.etag ?? "");
  if (state !== undefined) {
    const checked = next === undefined ? {} : checkedState(next);
    // The control plane sends what is in force: a refusal of something else is over.
    const noted = {
      ...state,
      config_version: configVersion,
      etag,
      ...checked,
      refused: undefined,
      refused_overrides: undefined,
    };
    if (!Bun.deepEquals(noted, state)) writeSyncState(directory, noted);
  }
  return configVersion;
}
