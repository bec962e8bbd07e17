// Writes config.yml of the present generation again, after a change of this machine's own settings. Needs no network.

import { readTextIfThere, writeFileAtomic } from "../../files.ts";
import { finishConfig, hasLocalApi, overriddenIn } from "./config-file.ts";
import { generationFile, isChecked, readSyncState } from "./generations.ts";
import { withoutNames } from "./host-names.ts";
import { writeLocalChanges, type LocalChanges } from "./local-changes.ts";
import type { Machine } from "./machine.ts";
import { readSent } from "./sent-config.ts";

/**
 * Stores the changes and rewrites config.yml. The caller holds the lock, and then reloads the engine. Returns false if the
 * configuration is not one that takes such changes: of another engine, or not checked yet.
 */
export function rewriteConfig(
  { directory, slug }: { directory: string; slug: string },
  machine: Machine,
  changes: LocalChanges,
): boolean {
  const state = readSyncState(directory);
  const path = generationFile(directory, "config.yml");
  const present = readTextIfThere(path);
  const source = readTextIfThere(generationFile(directory, "server.yml"));
  const hostCrt = readTextIfThere(generationFile(directory, "host.crt"));
  if (state === undefined || present === undefined || source === undefined || hostCrt === undefined)
    return false;
  if (!isChecked(state) || !hasLocalApi(present, directory)) return false;
  writeLocalChanges(directory, changes);
  const sent = readSent(source, { directory, slug, hostCrt, machine });
  // With such a name the engine refuses the whole configuration.
  const { config } = withoutNames(sent.config, state.unresolved);
  // A change of overrides.yml that no command applied, and no engine tested, must not come into force with these.
  const overrides = overriddenIn(present);
  const next = finishConfig(config, directory, { names: state.host_names, localApi: true, overrides });
  if (next !== present) writeFileAtomic(path, next, 0o644);
  return true;
}
