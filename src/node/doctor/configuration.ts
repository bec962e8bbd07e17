// Examines the configuration of one organization: whether what the control plane sent is in force, and the engine accepts it.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { readTextIfThere } from "../../base/files.ts";
import { readText } from "../../base/open-file.ts";
import type { System } from "../../base/system.ts";
import { describeLeftOut, wholeConfiguration } from "../../engine/left-out.ts";
import { describeSeal } from "../../engine/seal-seen.ts";
import { isHostKey } from "../../pki/keys.ts";
import { testConfig } from "../engine/engine.ts";
import { findEngine, type EngineSettings } from "../engine/find-engine.ts";
import { withoutKeptPeers } from "../files/config/peer-map.ts";
import { readOwnYaml } from "../files/config/read-yaml.ts";
import { finishConfig, hasLocalApi } from "../files/config/config-file.ts";
import { readSent } from "../files/config/sent-config.ts";
import { generationFile, readSyncState } from "../files/generations.ts";
import type { SyncState } from "../files/config/sync-state.ts";
import { neverResolved } from "../files/granted/host-names.ts";
import { withoutNames } from "../files/granted/unresolved-names.ts";
import { readSealSeen } from "../files/organization-facts.ts";
import type { Organization } from "../files/organizations.ts";
import { ok, skipped, warn, type Finding } from "./check.ts";
import { leftOutFinding, placeOf } from "./machine-use.ts";

const sync = `${brand.executable} sync-config`;
const askSigner =
  "Ask a signer of the organization whether that change is theirs: the next seal should have it, or the change should go";

/**
 * Examines config.yml. The order matters, because each finding explains the later ones: refused as a whole, then not applied yet,
 * then settings left out, then the seal, then names, then the engine's own test.
 */
export async function examineConfiguration(
  { directory, slug }: Organization,
  { settings, system }: { settings: EngineSettings; system: System },
): Promise<Finding> {
  const path = join(directory, "config.yml");
  const source = readTextIfThere(generationFile(directory, "server.yml"));
  const state = readSyncState(directory);
  if (source !== undefined) {
    const found = await examineSent({ directory, slug }, source, state, system);
    if (found !== undefined) return found;
  }
  const hubNames = neverResolved(state?.host_names);
  if (hubNames.length > 0) {
    const remedy = `Correct this machine's name server or the public address of that node, then run: ${sync}`;
    return warn(`cannot resolve ${hubNames.join(", ")}: config.yml does not contain the address`, remedy);
  }
  const engine = findEngine(settings, system);
  if (engine === undefined) return skipped("no engine is installed to test it");
  // A damaged key fails the engine's test of any configuration, and has its own check.
  if (!isHostKey(readText(join(directory, "host.key")))) return skipped("not tested: host.key is damaged");
  await testConfig(engine.path, path, system);
  return ok(`the engine accepts ${path}`);
}

/** Compares what the control plane sent (`serverYml`) with config.yml. Undefined: all of it is in force. */
async function examineSent(
  { directory, slug }: Pick<Organization, "directory" | "slug">,
  serverYml: string,
  state: SyncState | undefined,
  system: System,
): Promise<Finding | undefined> {
  const place = await placeOf({ directory, slug }, system);
  const sent = readSent(serverYml, place);
  const named = withoutNames(sent.config, state?.unresolved);
  const leftOut = [...sent.leftOut, ...named.leftOut];
  const refusal = state?.left_out?.find(({ key }) => key === wholeConfiguration);
  if (refusal !== undefined) {
    const overrides = join(directory, "overrides.yml");
    const isOfOverrides = state?.refused_overrides === true;
    return warn(describeLeftOut([refusal]), isOfOverrides ? `Correct ${overrides}, then run: ${sync}` : sync);
  }
  const inForce = readText(join(directory, "config.yml"));
  const finish = {
    names: state?.host_names,
    localApi: hasLocalApi(inForce, directory),
    dataPlane: state?.data_plane,
  };
  const [now, before] = [finishConfig(named.config, directory, finish), inForce].map((text) =>
    withoutKeptPeers(readOwnYaml(text, "config.yml")),
  );
  if (!Bun.deepEquals(now, before))
    return warn("overrides.yml or the permissions were changed but are not applied yet", sync);
  if (leftOut.length > 0) return leftOutFinding({ directory, slug }, leftOut, place);
  const seal = readSealSeen(directory, state);
  if (seal !== undefined && seal.objections.length > 0) return warn(describeSeal(seal), askSigner);
  return undefined;
}

/** The remedy if the examination throws: the engine, or this program, refuses the configuration. */
export function remedyOfRefusal({ directory }: Organization): string {
  const overrides = join(directory, "overrides.yml");
  return existsSync(overrides) ? `Correct ${overrides}, then run: ${sync}` : sync;
}
