// Finds the process of an engine by its arguments. Not in engine.ts, which `status` need not load.

import { identifyProcess, type ProcessIdentity } from "../../platform/process-identity.ts";
import { findProcess } from "../../platform/processes.ts";

/**
 * The process of an engine with this configuration, whatever started it: a daemon may be killed between the start and
 * its record. Only processes of the same user, in the same network namespace, with no other arguments.
 */
export function findEngineProcess(configPath: string): ProcessIdentity | undefined {
  const pid = findProcess(["-config", configPath]);
  return pid === undefined ? undefined : identifyProcess(pid);
}
