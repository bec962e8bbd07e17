// Applies the revocations of a configuration that this machine cannot apply as a whole: the configuration in force gets
// the blocklist of the new one, and nothing else of it. One setting that an engine refuses, of the control plane or of
// overrides.yml, must not keep a revoked node connected.

import { allowedConfig } from "../../engine/filter-config.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { isMap, stringifyYaml, type YamlMap, type YamlValue } from "../../base/yaml.ts";
import type { EngineControl } from "../engine/control-engine.ts";
import {
  generationFile,
  isApplied,
  markApplied,
  filesInForce,
  pruneGenerations,
  readSyncState,
  stageGeneration,
} from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { withLock } from "../files/lock.ts";
import type { Organization } from "../files/organizations.ts";
import { readOwnYaml, readYaml } from "../files/config/read-yaml.ts";
import type { WithClient } from "./requests/connection.ts";
import { reloadOrRestart, switchOrRollBack } from "./generation-switch.ts";

type RevocationDeps = { control: EngineControl; log: Log };

type FetchDeps = RevocationDeps & {
  withClient: WithClient;
  command: string;
  system: Pick<System, "now" | "sleep">;
};

/**
 * For an organization whose node-config.json is damaged: downloads the newest configuration and takes only its revocations.
 * Returns the end of the sentence that reports the damage; never throws.
 */
export async function fetchRevocations(organization: Organization, deps: FetchDeps): Promise<string> {
  const { directory, slug, config } = organization;
  try {
    // Without an ETag, so that the answer has the files whatever this node had before.
    const download = await deps.withClient((client) =>
      client.downloadConfig(slug, config.node_id, undefined),
    );
    if (!download.changed) return "";
    return await withLock(directory, deps.command, deps.system, () =>
      applySentRevocations(organization, download.answer.files["config.yml"], deps),
    );
  } catch (error) {
    return notInForce(slug, error, deps.log);
  }
}

/** Logs it, and returns the end of the sentence. */
function notInForce(slug: string, error: unknown, log: Log): string {
  const reason = messageOf(error);
  log.error("The revocations of a refused configuration are not in force", { team: slug, reason });
  return `; its revocations are NOT in force: ${reason}`;
}

/**
 * Applies the revocations of a configuration as it was sent, even if the files beside it could not be verified: a bad certificate
 * is no reason to keep talking to a revoked node. A false control plane gains nothing, since it can block nodes anyway.
 * Returns the end of the sentence that reports the refusal; never throws.
 */
export async function applySentRevocations(
  organization: Pick<Organization, "directory" | "slug">,
  configYml: string,
  deps: RevocationDeps,
): Promise<string> {
  let sent: YamlMap;
  try {
    const parsed = readYaml(configYml, "The configuration that the control plane sent");
    // What is not allowed is left out without a word: only the blocklist is used.
    sent = allowedConfig({ pki: parsed["pki"] ?? {} }, () => undefined);
  } catch (error) {
    notInForce(organization.slug, error, deps.log);
    return "; its revocations are NOT in force, as they cannot be read";
  }
  return applyRevocations(organization, sent, deps);
}

/**
 * Applies the revocations of a filtered configuration. Version and ETag stay those in force: the control plane must not count the
 * new version as applied, and the next request asks for it again. Returns the end of the sentence that reports the refusal;
 * never throws, because the reason of the refusal must be reported.
 */
export async function applyRevocations(
  { directory, slug }: { directory: string; slug: string },
  sent: YamlMap,
  { control, log }: RevocationDeps,
): Promise<string> {
  const blocked = blocklistOf(sent);
  try {
    const path = generationFile(directory, "config.yml");
    const text = readTextIfThere(path);
    // Without it the engine would get a configuration of revocations alone, and lose its tunnels.
    if (text === undefined) throw new AppError("bad_configuration", `There is no ${path}`);
    const configInForce = readOwnYaml(text, "config.yml");
    const blockedBefore = new Set(blocklistOf(configInForce));
    const added = blocked.filter((fingerprint) => !blockedBefore.has(fingerprint));
    if (added.length > 0) {
      await switchBlocklist(directory, configInForce, added, control);
      log.warn("The new configuration is refused; its revocations are applied to the previous one", {
        team: slug,
        revocations: added.length,
      });
    } else if (!isApplied(directory)) {
      // A kill came between switch and reload. The changes since the engine's last reload are unknown.
      await reloadOrRestart(control, { restart: true });
      markApplied(directory);
    }
    return blocked.length === 0 ? "" : "; its revocations are in force";
  } catch (error) {
    return notInForce(slug, error, log);
  }
}

async function switchBlocklist(
  directory: string,
  configInForce: YamlMap,
  added: readonly string[],
  control: EngineControl,
): Promise<void> {
  // After a kill between switch and reload it is unknown what the engine runs with.
  const restart = !isApplied(directory);
  // server.yml is config.yml before the settings of this machine were put into it: when they change, config.yml is made of it again.
  const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
  const source = serverYml === undefined ? configInForce : readOwnYaml(serverYml, "server.yml");
  pruneGenerations(directory);
  const generation = stageGeneration(
    directory,
    { ...filesInForce(directory), "config.yml": stringifyYaml(withBlocked(configInForce, added)) },
    stateInForce(directory),
    stringifyYaml(withBlocked(source, added)),
  );
  // No test: entries of a blocklist are 64 digits each, and a test may refuse even what the engine runs with now, for
  // example while a name cannot be resolved. All engines apply a blocklist by a reload.
  await switchOrRollBack(directory, generation, { restart }, control);
}

function stateInForce(directory: string): SyncState {
  const state = readSyncState(directory);
  // Damaged: an empty ETag asks for everything again, and the oldest version confirms nothing.
  return state ?? { etag: "", config_version: 0, applied_at: "" };
}

/**
 * Adds entries and removes none. A refused configuration that removes a CA no longer lists the revoked certificates of this CA,
 * but the configuration in force still trusts it.
 */
function withBlocked(config: YamlMap, added: readonly string[]): YamlMap {
  const pki = isMap(config["pki"]) ? config["pki"] : {};
  const blocklist: YamlValue[] = [...new Set([...blocklistOf(config), ...added])];
  return { ...config, pki: { ...pki, blocklist } };
}

/** Fingerprints of certificates. */
function blocklistOf({ pki }: YamlMap): string[] {
  const list = isMap(pki) ? pki["blocklist"] : undefined;
  return Array.isArray(list) ? list.filter((entry) => typeof entry === "string") : [];
}
