// Applies the certificates of a configuration that this machine cannot apply as a whole, with the configuration in force: a
// lasting refusal of one setting must not keep a node from its renewal until its certificate ends.

import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../base/quantities.ts";
import { messageOf } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";
import type { ConfigFiles } from "../../protocol/download.ts";
import { NodeConfig } from "../../protocol/stored.ts";
import { isMap, stringifyYaml } from "../../base/yaml.ts";
import {
  dropGeneration,
  generationFile,
  isApplied,
  presentFiles,
  pruneGenerations,
  readSyncState,
  stageGeneration,
  type SyncState,
} from "../files/generations.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import { prefixedAddressesIn, subnetsIn } from "../files/granted/networks.ts";
import type { Organization } from "../files/organizations.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { endOfCertificates } from "../files/certificate-end.ts";
import { switchOrRollBack, testText } from "./engine-switch.ts";
import type { SyncDeps } from "./next-config.ts";

/** The end of the sentence that reports the refusal. `reached`: the running engine refused the certificates. */
export type Outcome = { text: string; reached: boolean };

const nothing: Outcome = { text: "", reached: false };

/** The version and the ETag stay those of the configuration in force. Never throws. */
export async function applyCertificates(
  { directory, slug }: Pick<Organization, "directory" | "slug">,
  sent: ConfigFiles,
  deps: SyncDeps,
): Promise<Outcome> {
  const { engine, control, log, system } = deps;
  let reached = false;
  try {
    const present = presentFiles(directory);
    const files = await underSeal(await sealInForce(directory, slug), sent, () => present);
    const state = readSyncState(directory);
    const serverYml = readTextIfThere(generationFile(directory, "server.yml"));
    if (state === undefined || serverYml === undefined || !isRenewal(present, files)) return nothing;
    const restart = !isApplied(directory);
    pruneGenerations(directory);
    const changed = { "ca.crt": files["ca.crt"], "host.crt": files["host.crt"] };
    const name = stageGeneration(
      directory,
      {
        ...present,
        ...changed,
        ...(files["node.crt"] === undefined ? {} : { "node.crt": files["node.crt"] }),
        "node-config.json": withVersion(files["node-config.json"], state.config_version),
      },
      stateWith(state, files, system.now()),
      serverYml,
    );
    try {
      const staged = join(directory, "generations", name);
      if (engine.path !== undefined)
        await testText(engine.path, staged, withCertificatesIn(staged, present["config.yml"]), system);
    } catch (error) {
      dropGeneration(directory, name);
      throw error;
    }
    reached = true;
    await switchOrRollBack(directory, name, { restart }, control);
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

/** Other networks or subnets need another configuration, and some engines a restart. */
function isRenewal(present: ConfigFiles, next: ConfigFiles): boolean {
  const isSame = (["ca.crt", "host.crt", "node.crt"] as const).every((name) => present[name] === next[name]);
  const keepsNetworks = [prefixedAddressesIn, subnetsIn].every((read) =>
    Bun.deepEquals(read(present["host.crt"]), read(next["host.crt"])),
  );
  return !isSame && keepsNetworks;
}

function stateWith(state: SyncState, files: ConfigFiles, now: number): SyncState {
  return {
    ...state,
    certificate_not_after: endOfCertificates(files["host.crt"]),
    certificates_changed_at: formatTime(now),
  };
}

/** The new name and order key, but the version in force. */
function withVersion(nodeConfig: string, version: number): string {
  const config = v.parse(v.pipe(v.string(), v.parseJson(), NodeConfig), nodeConfig);
  return `${JSON.stringify({ ...config, config_version: version }, null, 2)}\n`;
}

function withCertificatesIn(staged: string, configYml: string): string {
  const config = readOwnYaml(configYml, "config.yml");
  const pki = isMap(config["pki"]) ? config["pki"] : {};
  const paths = { ca: join(staged, "ca.crt"), cert: join(staged, "host.crt") };
  return stringifyYaml({ ...config, pki: { ...pki, ...paths } });
}
