// Checks the configuration in force again if an earlier version of this program checked it by other rules or not at all.
// This comes before any other change, so that a roll back never leads to an unchecked configuration. Needs no network.

import { AppError, messageOf } from "../../base/errors.ts";
import { readTextIfThere, removeTree, writeFileAtomic } from "../../base/files.ts";
import { generationPointer } from "../../platform/generation-pointer.ts";
import { finishConfig, hasLocalApi } from "../files/config/config-file.ts";
import {
  generationFile,
  isChecked,
  readSyncState,
  appliedMark,
  writeSyncState,
} from "../files/generations.ts";
import { readMachine } from "../files/granted/machine.ts";
import { keepFormerRoutes } from "../files/permissions.ts";
import { checkedState, readSent, warnOfLeftOut } from "../files/config/sent-config.ts";
import { testText } from "./engine-switch.ts";
import type { SyncEdge } from "./next-config.ts";

/** From this version of the rules on, parts of the internet are routed only with root's permission. */
const publicRoutesRules = 8;

/**
 * Rewrites config.yml if the rules change it. The caller must then reload the engine. A text that the engine refuses is not
 * written: the caller tries the same as a new configuration and reports the refusal.
 */
export async function recheckPresent(
  { directory, slug }: { directory: string; slug: string },
  { engine, log, system }: Pick<SyncEdge, "engine" | "log" | "system">,
): Promise<void> {
  const state = readSyncState(directory);
  if (state === undefined || isChecked(state)) return;
  const path = generationFile(directory, "config.yml");
  const present = readTextIfThere(path);
  const source = readTextIfThere(generationFile(directory, "server.yml")) ?? present;
  const hostCrt = readTextIfThere(generationFile(directory, "host.crt"));
  if (source === undefined || hostCrt === undefined) return;
  if ((state.rules ?? 0) < publicRoutesRules) {
    try {
      keepFormerRoutes(directory, present ?? "");
    } catch (error) {
      log.warn("Routes of the internet that were in force now need a permission", {
        team: slug,
        reason: messageOf(error),
      });
    }
  }
  const machine = await readMachine(directory, system);
  const sent = readSent(source, { directory, slug, hostCrt, machine });
  let checked: string;
  try {
    const localApi = hasLocalApi(present ?? "", directory);
    const { host_names: names, data_plane: dataPlane } = state;
    checked = finishConfig(sent.config, directory, { names, localApi, dataPlane });
  } catch (error) {
    // overrides.yml is damaged. The caller reports it, after it has applied the revocations.
    if (error instanceof AppError && error.code === "bad_configuration") return;
    throw error;
  }
  if (checked !== present) {
    try {
      const place = generationPointer.activeDirectory(directory);
      if (engine.path !== undefined) await testText(engine.path, place, checked, system);
    } catch (error) {
      const reason = messageOf(error);
      log.warn("The configuration in force stays as it is: the engine refuses it by the present rules", {
        team: slug,
        reason,
      });
      return;
    }
    removeTree(generationFile(directory, appliedMark));
    writeFileAtomic(path, checked, 0o644);
  }
  warnOfLeftOut(slug, state.left_out ?? [], sent.leftOut, log);
  writeSyncState(directory, { ...state, ...checkedState(sent) });
}
