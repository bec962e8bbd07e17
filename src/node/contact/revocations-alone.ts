// Applies the revocations of a configuration that this machine cannot apply as a whole: the configuration in force gets
// the blocklist of the new one, and nothing else of it. One setting that an engine refuses, of the control plane or of
// overrides.yml, must not keep a revoked node connected.

import { allowedConfig } from "../../engine/allowed-settings.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import { isMap, stringifyYaml, type YamlMap, type YamlValue } from "../../base/yaml.ts";
import type { EngineControl } from "../engine/engine.ts";
import {
  generationFile,
  isApplied,
  markApplied,
  presentFiles,
  pruneGenerations,
  readSyncState,
  stageGeneration,
  type SyncState,
} from "../files/generations.ts";
import { withLock } from "../files/lock.ts";
import type { Organization } from "../files/organizations.ts";
import { readOwnYaml, readYaml } from "../files/config/read-yaml.ts";
import type { WithClient } from "./requests/connection.ts";
import { reloadOrRestart, switchOrRollBack } from "./engine-switch.ts";

type RevocationDeps = { control: EngineControl; log: Log };

type FetchDeps = RevocationDeps & {
  withClient: WithClient;
  command: string;
  system: Pick<System, "now" | "sleep">;
};

/**
 * For an organization whose node-config.json is damaged: it takes nothing from the newest configuration but the
 * revocations. Returns the end of the sentence that reports the damage; never throws.
 */
export async function fetchRevocations(organization: Organization, deps: FetchDeps): Promise<string> {
  const { directory, slug, config } = organization;
  try {
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

function notInForce(slug: string, error: unknown, log: Log): string {
  const reason = messageOf(error);
  log.error("The revocations of a refused configuration are not in force", { team: slug, reason });
  return `; its revocations are NOT in force: ${reason}`;
}

/**
 * Applies the revocations of a configuration as it was sent. The files beside it are not needed: a certificate that this node
 * refuses, or a name of another organization, is no reason to go on talking to a revoked node. The control plane may block
 * too much anyway.
 */
export async function applySentRevocations(
  organization: Pick<Organization, "directory" | "slug">,
  configYml: string,
  deps: RevocationDeps,
): Promise<string> {
  let sent: YamlMap;
  try {
    const parsed = readYaml(configYml, "The configuration that the control plane sent");
    sent = allowedConfig({ pki: parsed["pki"] ?? {} }, () => undefined);
  } catch (error) {
    notInForce(organization.slug, error, deps.log);
    return "; its revocations are NOT in force, as they cannot be read";
  }
  return applyRevocations(organization, sent, deps);
}

/**
 * Applies the revocations of a filtered configuration. Returns the end of the sentence that reports its refusal. The state stays that of the version in force, so that the
 * control plane does not count the new version as applied, and the ETag asks for it again. Never throws: the reason of
 * the refusal must be reported.
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
    const present = readOwnYaml(text, "config.yml");
    const known = new Set(blocklistOf(present));
    const more = blocked.filter((each) => !known.has(each));
    if (more.length > 0) {
      await switchBlocklist(directory, present, more, control);
      log.warn("The new configuration is refused; its revocations are applied to the previous one", {
        team: slug,
        revocations: more.length,
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
  present: YamlMap,
  more: readonly string[],
  control: EngineControl,
): Promise<void> {
  const restart = !isApplied(directory);
  const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
  const source = serverYml === undefined ? present : readOwnYaml(serverYml, "server.yml");
  pruneGenerations(directory);
  const name = stageGeneration(
    directory,
    { ...presentFiles(directory), "config.yml": stringifyYaml(withBlocked(present, more)) },
    stateInForce(directory),
    stringifyYaml(withBlocked(source, more)),
  );
  // No test: entries of a blocklist are 64 digits each, and a test may refuse even what the engine runs with now, for
  // example while a name cannot be resolved. All engines apply a blocklist by a reload.
  await switchOrRollBack(directory, name, { restart }, control);
}

function stateInForce(directory: string): SyncState {
  const state = readSyncState(directory);
  // Damaged: an empty ETag asks for everything again, and the oldest version confirms nothing.
  return state ?? { etag: "", config_version: 0, applied_at: "" };
}

/**
 * Adds entries and removes none: a version that also removes a CA no longer lists the certificates of this CA, but the
 * configuration in force still trusts it.
 */
function withBlocked(config: YamlMap, more: readonly string[]): YamlMap {
  const pki = isMap(config["pki"]) ? config["pki"] : {};
  const blocklist: YamlValue[] = [...new Set([...blocklistOf(config), ...more])];
  return { ...config, pki: { ...pki, blocklist } };
}

function blocklistOf({ pki }: YamlMap): string[] {
  const list = isMap(pki) ? pki["blocklist"] : undefined;
  return Array.isArray(list) ? list.filter((each) => typeof each === "string") : [];
}
