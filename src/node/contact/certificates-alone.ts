// Applies the certificates of a configuration that this machine cannot apply as a whole, together with the config.yml in force.
// Otherwise a node that lastingly refuses one setting would miss its renewal until its certificate expires.

import { join } from "node:path";
import * as v from "valibot";
import { jsonText } from "../../base/text.ts";
import { given } from "../../base/given.ts";
import { formatTime } from "../../base/quantities.ts";
import { messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { ConfigFiles } from "../../protocol/download.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import { isMap, stringifyYaml } from "../../base/yaml.ts";
import {
  dropGeneration,
  generationFile,
  isApplied,
  filesInForce,
  pruneGenerations,
  readSyncState,
  stageGeneration,
} from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import { prefixedAddressesIn, subnetsIn } from "../files/granted/networks.ts";
import type { Organization } from "../files/organizations.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { endOfCertificates } from "../files/certificate-end.ts";
import { switchOrRollBack, testText } from "./generation-switch.ts";
import type { SyncDeps } from "./next-config.ts";

/**
 * `text`: the end of the sentence that reports the refusal; empty if there was nothing to apply. `reached`: the running
 * engine was given the certificates and failed.
 */
export type Outcome = { text: string; reached: boolean };

const nothing: Outcome = { text: "", reached: false };

/**
 * Applies them if they are a renewal of those in force. The version and the ETag stay those of the configuration in force.
 * Never throws.
 */
export async function applyCertificates(
  { directory, slug }: Pick<Organization, "directory" | "slug">,
  sent: ConfigFiles,
  deps: SyncDeps,
): Promise<Outcome> {
  const { engine, control, log, system } = deps;
  let reached = false;
  try {
    const inForce = filesInForce(directory);
    // A file that the seal refuses is replaced by the one in force.
    const files = await underSeal(await sealInForce(directory, slug), sent, () => inForce);
    const state = readSyncState(directory);
    // config.yml before the settings of this machine were put into it. The new generation keeps it.
    const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
    if (state === undefined || serverYml === undefined || !isRenewal(inForce, files)) return nothing;
    // After a kill between switch and reload it is unknown what the engine runs with.
    const restart = !isApplied(directory);
    pruneGenerations(directory);
    const generation = stageGeneration(
      directory,
      {
        ...inForce,
        "ca.crt": files["ca.crt"],
        "host.crt": files["host.crt"],
        ...given({ "node.crt": files["node.crt"] }),
        "node-config.json": withVersion(files["node-config.json"], state.config_version),
      },
      stateWith(state, files, system.now()),
      serverYml,
    );
    try {
      const staged = join(directory, "generations", generation);
      if (engine.path !== undefined)
        await testText(engine.path, staged, withCertificatesIn(staged, inForce["config.yml"]), system);
    } catch (error) {
      dropGeneration(directory, generation);
      throw error;
    }
    const onReached = () => void (reached = true);
    await switchOrRollBack(directory, generation, { restart, onReached }, control);
    log.warn("The new configuration is refused; its certificates are used with the previous one", {
      team: slug,
    });
    return { text: "; its certificates are in use", reached: false };
  } catch (error) {
    const reason = messageOf(error);
    log.error("The certificates of a refused configuration are not in use", { team: slug, reason });
    return { text: `; its certificates are NOT in use: ${reason}`, reached };
  }
}

/** Whether certificates or CAs are new for the same networks: others need another configuration, and some engines a restart. */
function isRenewal(inForce: ConfigFiles, next: ConfigFiles): boolean {
  const isSame = (["ca.crt", "host.crt", "node.crt"] as const).every((name) => inForce[name] === next[name]);
  const keepsNetworks = [prefixedAddressesIn, subnetsIn].every((networksIn) =>
    Bun.deepEquals(networksIn(inForce["host.crt"]), networksIn(next["host.crt"])),
  );
  return !isSame && keepsNetworks;
}

function stateWith(state: SyncState, files: ConfigFiles, nowMs: number): SyncState {
  return {
    ...state,
    certificate_not_after: endOfCertificates(files["host.crt"]),
    certificates_changed_at: formatTime(nowMs),
  };
}

/** node-config.json as it was sent, with the new name and order key, but with the version in force. */
function withVersion(nodeConfig: string, version: number): string {
  const config = v.parse(jsonText(NodeConfig), nodeConfig);
  return `${JSON.stringify({ ...config, config_version: version }, null, 2)}\n`;
}

/** For the engine's test: config.yml names the files that are in force. */
function withCertificatesIn(staged: string, configYml: string): string {
  const config = readOwnYaml(configYml, "config.yml");
  const pki = isMap(config["pki"]) ? config["pki"] : {};
  const paths = { ca: join(staged, "ca.crt"), cert: join(staged, "host.crt") };
  return stringifyYaml({ ...config, pki: { ...pki, ...paths } });
}
