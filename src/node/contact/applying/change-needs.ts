// What the next configuration changes on this machine: nothing, what a reload of the engine applies, or what only a restart
// does, which drops all tunnels.

import { join } from "node:path";
import * as v from "valibot";
import { jsonText } from "../../../base/text.ts";
import { readTextIfThere, textOrEmpty } from "../../../base/files.ts";
import { can } from "../../../engine/features.ts";
import { NodeConfig } from "../../../protocol/organization-files.ts";
import { ownSwitches } from "../../files/config/data-plane.ts";
import { changesFirewall, keysNeedingRestart } from "../../files/config/needs-restart.ts";
import { readWhole } from "../../files/config/read-yaml.ts";
import { generationFile, generationFiles, isApplied, readSyncState } from "../../files/generations.ts";
import { ignoringDamage } from "../../files/granted/machine-facts.ts";
import { prefixedAddressesIn, subnetsIn } from "../../files/granted/networks.ts";
import type { Next } from "../next-config.ts";

export type RunningEngine = {
  /** The config.yml that it runs with. Undefined: unknown, so only a restart is sure to apply the next one. */
  configYml: string | undefined;
  /** Undefined: the engine counts as the oldest version that is supported. */
  version: string | undefined;
};

/**
 * The config.yml that the engine runs with: the one in force if the engine got it, else the one that `recheckInForce` has
 * just replaced. Undefined: unknown, for example because a kill came between switch and reload.
 */
export function runningConfigYml(directory: string, replacedYml?: string): string | undefined {
  if (!isApplied(directory)) return replacedYml;
  // Empty if it is damaged: the engine needs a restart with whatever replaces it.
  return readWhole(join(directory, "config.yml")) ?? "";
}

/**
 * Whether the engine needs a restart for the next configuration. `later`: changed keys that are not worth a restart, and wait
 * for the engine's next start.
 */
export function changeNeeds(
  directory: string,
  { configYml, version }: RunningEngine,
  next: Pick<Next, "configYml" | "files" | "dataPlane">,
): { restart: boolean; later: string[] } {
  if (configYml === undefined) return { restart: true, later: [] };
  const keys = keysNeedingRestart(configYml, next.configYml, version, ownSwitches(next.dataPlane));
  const hostCrt = textOrEmpty(directory, "host.crt");
  const nextCrt = next.files["host.crt"];
  // Undefined if the file is damaged: as with config.yml, the engine needs a restart with whatever replaces it.
  const present = ignoringDamage(() => [prefixedAddressesIn(hostCrt), subnetsIn(hostCrt)] as const);
  const [addresses, subnets] = present ?? [];
  // From 1.7 to 1.10 a reload applies the node's own subnets only if it also rebuilds the firewall.
  const reloadsSubnets =
    can(version, "reload_subnets") ||
    (can(version, "replace_certificate") && changesFirewall(configYml, next.configYml));
  const restart =
    keys.now.length > 0 ||
    // Every engine applies changes of its own networks only at its start.
    !Bun.deepEquals(addresses, prefixedAddressesIn(nextCrt)) ||
    (!reloadsSubnets && !Bun.deepEquals(subnets, subnetsIn(nextCrt)));
  return { restart, later: keys.later };
}

/**
 * Whether all files already have this content, apart from the version in node-config.json. server.yml is compared too,
 * because overrides.yml can hide its changes in config.yml, and the ETag stands for server.yml.
 */
export function hasSameFiles(next: Next, directory: string): boolean {
  // Without sync.json the files must be applied again, which writes it.
  if (readSyncState(directory) === undefined) return false;
  if (readTextIfThere(generationFile(directory, "server.yml")) !== next.serverYml) return false;
  const wanted: Partial<Record<string, string>> = { ...next.files, "config.yml": next.configYml };
  return generationFiles.every((name) => {
    const found = readTextIfThere(join(directory, name));
    if (name !== "node-config.json" || found === undefined) return found === wanted[name];
    return Bun.deepEquals(withoutVersion(found), withoutVersion(wanted[name] ?? ""));
  });
}

function withoutVersion(nodeConfig: string): object {
  const parsed = v.safeParse(jsonText(NodeConfig), nodeConfig);
  return parsed.success ? { ...parsed.output, config_version: 0 } : {};
}

export function changesCertificates(directory: string, { files }: Pick<Next, "files">): boolean {
  return (["ca.crt", "host.crt"] as const).some(
    (name) => readTextIfThere(join(directory, name)) !== files[name],
  );
}
