// Applies the next configuration: stages it as a generation, tests it, switches to it and watches the engine, or rolls back.

import { messageOf } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { formatTime } from "../../../base/quantities.ts";
import type { LeftOut } from "../../../engine/left-out.ts";
import { endOfCertificates } from "../../files/certificate-end.ts";
import { checkedState } from "../../files/config/sent-config.ts";
import {
  currentGeneration,
  pruneGenerations,
  readSyncState,
  stageGeneration,
} from "../../files/generations.ts";
import type { SyncState } from "../../files/config/sync-state.ts";
import { neverResolved } from "../../files/granted/host-names.ts";
import type { Organization } from "../../files/organizations.ts";
import { applyCertificates } from "../certificates-alone.ts";
import { rollBack, trySwitch } from "../generation-switch.ts";
import type { Next, SyncDeps } from "../next-config.ts";
import { applyRevocations } from "../revocations-alone.ts";
import { changeNeeds, changesCertificates, type RunningEngine } from "./change-needs.ts";
import { digestOf, noteRefusal, recentRefusal } from "./recent-refusal.ts";
import { tryStaged } from "./try-staged.ts";

/** `returned`: the configuration was refused, and the previous one is in force. */
export type SyncResult = {
  result: "changed" | "same" | "returned";
  configVersion: number;
  /** Why the engine refused the configuration. Set if it `returned`. */
  reason?: string;
  /** Changed keys that take effect at the engine's next start. */
  restartPending: string[];
  /** Settings of the control plane that this machine does not accept. */
  leftOut: readonly LeftOut[];
  /** If it is the same: files of it that were missing, and are there again. */
  restored?: readonly string[];
  /** Whether the running engine was given the configuration that it refused. */
  reached?: boolean;
  /** Whether it is refused because of overrides.yml. */
  isOfOverrides?: boolean;
};

/**
 * Applies a configuration. If it is refused, at least its revocations and certificates are applied. `running`: what the engine
 * runs with now.
 */
export async function applyOrRevoke(
  organization: Organization,
  next: Next,
  running: RunningEngine,
  deps: SyncDeps,
): Promise<SyncResult> {
  const { directory } = organization;
  const digest = digestOf(next, deps.engine);
  const recent = deps.isAsked === true ? undefined : recentRefusal(directory, digest, deps.system.now());
  if (recent !== undefined) {
    // Its certificates were tried alone then: with others it would have another digest.
    const revocations = await applyRevocations(organization, next.sent, deps);
    const reason = `${recent.reason}${revocations}`;
    // `recent` keeps its time, so that the running engine is given the configuration again after an hour (recent-refusal.ts).
    noteRefusal(directory, { reason, byRunningEngine: recent });
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
  const isByRunningEngine = result.reached === true || certificates.reached;
  // Only such a refusal keeps the configuration from being tried again: each trial by the running engine may drop tunnels.
  const at = formatTime(deps.system.now());
  const byRunningEngine = isByRunningEngine ? { digest, reason: result.reason, at } : undefined;
  noteRefusal(directory, { reason, byRunningEngine, isOfOverrides: result.isOfOverrides });
  return { ...result, reason };
}

/** Without the reason. The version is that of the configuration that stays in force. */
export function resultOfReturn(directory: string, { leftOut }: Next): Omit<SyncResult, "reason"> {
  const configVersion = readSyncState(directory)?.config_version ?? 0;
  return { result: "returned", configVersion, restartPending: [], leftOut };
}

/**
 * The result is "changed" or, if an engine refuses the configuration, "returned". Throws for a failure of this machine, and if
 * there is no former generation.
 */
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
  // Read before the switch, so it has the version of the former generation.
  const returned = resultOfReturn(directory, next);
  const refusal = await tryStaged(organization, generation, next, deps);
  if (refusal !== undefined) return { ...returned, ...refusal };
  const { restart, later } = changeNeeds(directory, running, next);
  const failure = await trySwitch(directory, generation, { restart }, control);
  if (failure !== undefined) {
    const { error, reached } = failure;
    const reason = messageOf(error);
    if (formerGeneration === undefined) {
      log.warn("The new configuration failed, and there is no previous one", { team: slug, reason });
      throw error;
    }
    log.warn("The new configuration failed; rolling back to the previous one", { team: slug, reason });
    await rollBack(directory, formerGeneration, generation, { restart, reached }, control);
    // The switch itself failed: the engine has judged nothing.
    if (!reached) throw error;
    return { ...returned, reason, reached };
  }
  for (const name of neverResolved(next.names)) {
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
