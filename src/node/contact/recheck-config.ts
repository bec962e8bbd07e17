// Checks the configuration in force again if another version of this program checked it, or if it is damaged.
// This comes before any other change, so that a roll back never leads to an unchecked configuration. Needs no network.

import { given } from "../../base/given.ts";
import { because, hasCode, messageOf } from "../../base/errors.ts";
import { readTextIfThere, removeTree, writeFileAtomic } from "../../base/files.ts";
import type { YamlMap } from "../../base/yaml.ts";
import { generationPointer } from "../../platform/generation-pointer.ts";
import {
  finishConfig,
  hasLocalApi,
  overridesInForce,
  overridesRefusal,
  readOverrides,
} from "../files/config/config-file.ts";
import {
  generationFile,
  isApplied,
  filesInForce,
  readSyncState,
  appliedMark,
  writeSyncState,
} from "../files/generations.ts";
import { isChecked, type SyncState } from "../files/config/sync-state.ts";
import { sealInForce, underSeal } from "../files/granted/seal-in-force.ts";
import type { EnforcedState } from "../files/granted/sealed-node.ts";
import { readWhole } from "../files/config/read-yaml.ts";
import { readMachine } from "../files/granted/machine-facts.ts";
import { keepFormerRoutes } from "../files/permissions.ts";
import { withoutNames } from "../files/granted/unresolved-names.ts";
import { checkedState, readSent, warnOfLeftOut } from "../files/config/sent-config.ts";
import { testText } from "./generation-switch.ts";
import type { SyncDeps } from "./next-config.ts";

/** The version of the rules (`rulesVersion`) since which parts of the internet are routed only with root's permission. */
const publicRoutesRules = 8;

/**
 * Rewrites config.yml if the rules change it, and then removes the mark of `isApplied`: the caller must reload the engine. A
 * text that the engine refuses is not written: the caller tries the same as a new configuration and reports the refusal.
 * Returns the text that it replaced if the engine runs with that text. Undefined: nothing was replaced, or the engine may run
 * with another text, or needs more than a new text because ca.crt was changed too.
 */
export async function recheckInForce(
  { directory, slug }: { directory: string; slug: string },
  { engine, log, system }: Pick<SyncDeps, "engine" | "log" | "system">,
): Promise<string | undefined> {
  const state = readSyncState(directory);
  const path = generationFile(directory, "config.yml");
  // Undefined if it is damaged.
  const ymlInForce = readWhole(path);
  if (state === undefined || (isChecked(state) && ymlInForce !== undefined)) return undefined;
  // Without server.yml, the text in force is all that is left of what the control plane sent.
  const source = readTextIfThere(generationFile(directory, "server.yml")) ?? ymlInForce;
  const hostCrt = readTextIfThere(generationFile(directory, "host.crt"));
  if (source === undefined || hostCrt === undefined) return undefined;
  if ((state.rules ?? 0) < publicRoutesRules) permitFormerRoutes({ directory, slug }, ymlInForce ?? "", log);
  const machine = await readMachine(directory, system);
  const decided = await unlessRefused(async () => {
    const seal = await sealInForce(directory, slug);
    const areCasKept = await recheckTrust(directory, seal);
    const sent = readSent(source, { directory, slug, hostCrt, machine, seal });
    // `unresolved`: names that had no address when it came, so that settings were left out. They stay left out.
    const { config, leftOut } = withoutNames(sent.config, state.unresolved);
    return {
      areCasKept,
      ...sent,
      config,
      leftOut: [...sent.leftOut, ...leftOut],
      ...given({ unresolved: state.unresolved }),
    };
  });
  if (decided === undefined) return undefined;
  const { areCasKept, ...sent } = decided;
  const checkedYml = finishAgain(sent.config, directory, { ymlInForce: ymlInForce ?? "", state });
  if (checkedYml === undefined) return undefined;
  let replacedYml: string | undefined;
  if (checkedYml !== ymlInForce || !areCasKept) {
    const refusal = await testAgain(directory, checkedYml, engine, system);
    if (refusal !== undefined) {
      log.warn("The configuration in force stays as it is: the engine refuses it by the present rules", {
        team: slug,
        reason: refusal,
      });
      return undefined;
    }
    if (areCasKept && isApplied(directory)) replacedYml = ymlInForce;
    // The mark goes before the new text comes: after a kill in between, the next run gives the engine the files in force.
    removeTree(generationFile(directory, appliedMark));
    writeFileAtomic(path, checkedYml, 0o644);
  }
  warnOfLeftOut(slug, state.left_out ?? [], sent.leftOut, log);
  writeSyncState(directory, { ...state, ...checkedState(sent) });
  return replacedYml;
}

/** Undefined: a seal cannot be put into force. `sync.ts` meets the same error, and reports it after applying revocations. */
async function unlessRefused<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (hasCode(error, "bad_configuration", "untrusted_answer")) return undefined;
    throw error;
  }
}

/**
 * Removes CAs from ca.crt that the seal does not permit: an earlier version of this program, which knows no seals, may have
 * taken them. False: ca.crt was changed.
 */
async function recheckTrust(directory: string, seal: EnforcedState | undefined): Promise<boolean> {
  const files = filesInForce(directory);
  const { "ca.crt": bundle } = await underSeal(seal, files);
  if (bundle === files["ca.crt"]) return true;
  writeFileAtomic(generationFile(directory, "ca.crt"), bundle, 0o644);
  return false;
}

/** The upgrade must not end routes that were in force before they needed a permission. */
function permitFormerRoutes(
  { directory, slug }: { directory: string; slug: string },
  ymlInForce: string,
  log: SyncDeps["log"],
): void {
  try {
    keepFormerRoutes(directory, ymlInForce);
  } catch (error) {
    log.warn("Routes of the internet that were in force now need a permission", because(slug, error));
  }
}

/**
 * If overrides.yml is refused, perhaps by this version alone, its settings in force stay, and this machine can still change the
 * configuration, as for another router. Undefined if a file is damaged. `sync.ts` meets the same error, and notes it.
 */
function finishAgain(
  config: YamlMap,
  directory: string,
  { ymlInForce, state }: { ymlInForce: string; state: SyncState },
): string | undefined {
  const { host_names: names, data_plane: dataPlane } = state;
  try {
    // As in the text in force: only a new configuration gives the engine a control socket, or ends it.
    const localApi = hasLocalApi(ymlInForce, directory);
    const isRefused = overridesRefusal(directory) !== undefined;
    if (isRefused && ymlInForce === "") return undefined;
    const overrides = isRefused ? overridesInForce(directory, ymlInForce) : readOverrides(directory);
    return finishConfig(config, directory, { names, localApi, dataPlane, overrides });
  } catch (error) {
    if (hasCode(error, "bad_configuration")) return undefined;
    throw error;
  }
}

/** Why the engine refuses this text; undefined if it accepts it, or if there is no engine. */
async function testAgain(
  directory: string,
  configYml: string,
  engine: SyncDeps["engine"],
  system: SyncDeps["system"],
): Promise<string | undefined> {
  if (engine.path === undefined) return undefined;
  try {
    await testText(engine.path, generationPointer.activeDirectory(directory), configYml, system);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}
