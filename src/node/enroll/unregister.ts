// Removes this machine from an organization: deletes the node on the control plane if a credential allows it, then the
// token in the keyring, then the directory, by one rename. The caller stops the engine first.

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
import { temporarySibling } from "../files/replacement.ts";
import { removeTemporarySiblings } from "./pending.ts";
import type { Remains } from "../files/remains.ts";

/** The request that deletes the node on the control plane; undefined if its id or URL cannot be read. */
export function deletionOf({ slug, apiBase, nodeId }: Remains): (Step & { step: "request" }) | undefined {
  if (apiBase === undefined || nodeId === undefined) return undefined;
  return { step: "request", method: "DELETE", url: apiBase + paths.node(slug, nodeId) };
}

/** All files in the directory, including those of the administrator. */
export function planRemoval({ directory }: Remains): Step[] {
  return filesBelow(directory)
    .sort()
    .map((path) => {
      const { mode } = statSync(path, { throwIfNoEntry: false }) ?? lstatSync(path);
      return { step: "file", path, mode: `0${(mode & 0o777).toString(8)}`, change: "removed" };
    });
}

/** Does not follow links: their targets stay. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** False if the control plane no longer had the node. Throws if it cannot delete it. */
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
    // A user who is not a member gets not_found too. This call throws in that case.
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
    const gone = temporarySibling(root, slug, "removed");
    try {
      // First what a killed registration left: without the directory, the next command would finish that registration.
      removeTemporarySiblings(root, slug);
      removeTree(temporarySibling(root, slug, "pending"));
      rename(directory, gone);
      syncDirectory(root);
      removeTree(gone);
    } catch (error) {
      throw fromSystemError(`remove ${directory}`, error);
    }
  });
}
