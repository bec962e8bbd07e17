// Takes this machine out of an organization: the node on the control plane where a credential allows it, then the token
// in the keyring, then the directory, which vanishes by one rename. Whoever runs the engine has stopped it before.

import { lstatSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { AppError, fromSystemError } from "../../errors.ts";
import { removeTree, syncDirectory } from "../../files.ts";
import type { Log } from "../../log.ts";
import type { Step } from "../../plan.ts";
import { rename } from "../../platform/file-system.ts";
import { paths } from "../../protocol.ts";
import { accountOf, clientOf, type ConnectionEdge } from "../contact/connection.ts";
import { removeFromKeyring } from "../files/keyring.ts";
import { withLock } from "../files/lock.ts";
import { leftOf, sweepLeft } from "./pending.ts";
import type { Remains } from "../files/remains.ts";

/** The request that takes the node off the control plane; undefined where damage hides which one that is. */
export function deletionOf({ slug, apiBase, nodeId }: Remains): (Step & { step: "request" }) | undefined {
  if (apiBase === undefined || nodeId === undefined) return undefined;
  return { step: "request", method: "DELETE", url: apiBase + paths.node(slug, nodeId) };
}

/** Everything that lies there, whoever put it there. */
export function planRemoval({ directory }: Remains): Step[] {
  return filesBelow(directory)
    .sort()
    .map((path) => {
      const { mode } = statSync(path, { throwIfNoEntry: false }) ?? lstatSync(path);
      return { step: "file", path, mode: `0${(mode & 0o777).toString(8)}`, change: "removed" };
    });
}

/** What a link leads to stays, and is not listed. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** False where the control plane did not know the node any more. Throws what keeps it from deleting it. */
export async function deleteOnServer(
  { slug, directory }: Remains,
  nodeId: number,
  accessToken: string,
  system: ConnectionEdge,
  log: Log,
): Promise<boolean> {
  const client = clientOf(directory, accessToken, system, log);
  try {
    await client.deleteNode(slug, nodeId);
    return true;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "not_found") throw error;
    // Not found is also what somebody hears who does not belong to the organization.
    await client.organization(slug);
    return false;
  }
}

export async function removeLocally(
  { directory, slug, nodeId }: Remains,
  command: string,
  system: ConnectionEdge,
): Promise<void> {
  if (nodeId !== undefined) await removeFromKeyring(accountOf(slug, nodeId), system);
  await withLock(directory, command, system, async () => {
    const root = join(directory, "..");
    const gone = leftOf(root, slug, "removed");
    try {
      removeTree(gone);
      rename(directory, gone);
      syncDirectory(root);
      sweepLeft(root, slug);
      removeTree(leftOf(root, slug, "pending"));
    } catch (error) {
      throw fromSystemError(`remove ${directory}`, error);
    }
  });
}
