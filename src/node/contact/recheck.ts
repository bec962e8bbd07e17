// A configuration that is in force and was checked by other rules, or by none (an earlier version of this program took
// it): it is checked anew before anything else is done, so that no way back leads to an unchecked one. Needs no network.

import type { Log } from "../../log.ts";
import { readTextIfThere, removeTree, writeFileAtomic } from "../../files.ts";
import type { AttachedNetwork } from "../../platform/attached-networks.ts";
import { finishConfig } from "../files/config-file.ts";
import {
  generationFile,
  isChecked,
  readSyncState,
  takenUpMark,
  writeSyncState,
} from "../files/organizations.ts";
import { checkedState, readSent, warnOfLeftOut } from "../files/sent-config.ts";

/** Rewrites config.yml where the rules leave something out of it; it is to be taken up then. */
export function recheckPresent(
  { directory, slug }: { directory: string; slug: string },
  attached: readonly AttachedNetwork[],
  log: Log,
): void {
  const state = readSyncState(directory);
  if (state === undefined || isChecked(state)) return;
  const path = generationFile(directory, "config.yml");
  const present = readTextIfThere(path);
  const source = readTextIfThere(generationFile(directory, "server.yml")) ?? present;
  const hostCrt = readTextIfThere(generationFile(directory, "host.crt"));
  if (source === undefined || hostCrt === undefined) return;
  const sent = readSent(source, { directory, slug, hostCrt, attached });
  const checked = finishConfig(sent.config, directory, state.host_names);
  if (checked !== present) {
    removeTree(generationFile(directory, takenUpMark));
    writeFileAtomic(path, checked, 0o644);
  }
  warnOfLeftOut(slug, state.left_out ?? [], sent.leftOut, log);
  writeSyncState(directory, { ...state, ...checkedState(sent) });
}
