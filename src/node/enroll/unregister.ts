// Removes this machine from an organization: deletes the node on the control plane if a credential allows it, then the
// token in the keyring, then the directory, by one rename. The caller stops the engine first. `Salvaged` is what could be read of the
// directory, whose files may be damaged.

import { apiPath } from "../../api/endpoint.ts";
import { nodeCallsApi } from "../../api/node-calls.ts";
import { nodesApi } from "../../api/nodes.ts";
import { organizationsApi } from "../../api/organizations.ts";
import { request } from "../../api/request.ts";
import { join } from "node:path";
import { fromSystemError, hasCode, messageOf } from "../../base/errors.ts";
import { removeAllPossible, removeTree, syncDirectory, type NotRemoved } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planRemoved } from "../../base/plan/plan-file.ts";
import { rename } from "../../platform/file-system.ts";
import { checkIn } from "../contact/checkin.ts";
import { undoEdge } from "../edge/undo-edge.ts";
import {
  accountOf,
  clientOf,
  connectOrganization,
  type ConnectionSystem,
} from "../contact/requests/connection.ts";
import { keyringToken, removeFromKeyring } from "../files/keyring.ts";
import { withLock } from "../files/lock.ts";
import { savedHealthDirectory, savedHealthFiles } from "../health/saved-health.ts";
import { openOrganization } from "../files/organizations.ts";
import { temporarySibling } from "../files/replacement.ts";
import type { Salvaged } from "../files/damaged-organization.ts";

/** The request that deletes the node on the control plane; undefined if its id or URL cannot be read. */
export function deletionOf({ slug, apiBase, nodeId }: Salvaged): (Step & { step: "request" }) | undefined {
  if (apiBase === undefined || nodeId === undefined) return undefined;
  return { step: "request", method: "DELETE", url: apiBase + apiPath(nodesApi.revoke, { slug, id: nodeId }) };
}

/** The plan of removeLocally: the directory with the administrator's files, and what check-auth stored about the node's peers. */
export function planRemoval(salvaged: Salvaged, system: Pick<ConnectionSystem, "platform">): Step[] {
  return [...healthFiles(salvaged, system), salvaged.directory].flatMap(planRemoved);
}

/** What check-auth stored of the organization: a later registration must not go on from what this node saw. */
function healthFiles(
  { directory, slug }: Salvaged,
  { platform }: Pick<ConnectionSystem, "platform">,
): string[] {
  return savedHealthFiles(savedHealthDirectory(join(directory, ".."), platform), slug);
}

/** False if the control plane no longer had the node. Throws if it cannot delete it. */
export async function deleteOnServer(
  { slug, directory }: Salvaged,
  nodeId: number,
  accessToken: string,
  system: ConnectionSystem,
  log: Log,
): Promise<boolean> {
  const client = clientOf(directory, accessToken, system, log);
  try {
    await client.request({ ...request(nodesApi.revoke, { slug, id: nodeId }), repeatable: true });
    return true;
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
    // A user who is not a member gets not_found too. This call throws in that case.
    await client.request({ ...request(organizationsApi.retrieve, { slug }), repeatable: true });
    return false;
  }
}

/** The request of `sayFarewell`; undefined if the node's id or URL cannot be read. */
export function farewellOf({ slug, apiBase, nodeId }: Salvaged): (Step & { step: "request" }) | undefined {
  if (apiBase === undefined || nodeId === undefined) return undefined;
  return {
    step: "request",
    method: "POST",
    url: apiBase + apiPath(nodeCallsApi.checkin, { slug, id: nodeId }),
  };
}

/**
 * Tells the control plane with the node's own token that the node leaves; it then revokes the node. Returns why it did
 * not, or undefined. A control plane that is away must not keep a machine from leaving.
 */
export async function sayFarewell(
  { slug, directory }: Pick<Salvaged, "slug" | "directory">,
  system: ConnectionSystem,
  log: Log,
): Promise<string | undefined> {
  try {
    const organization = openOrganization(join(directory, ".."), slug);
    const withClient = connectOrganization(organization, system, log);
    const report = { overlayVersion: undefined, overlayState: undefined };
    const { left } = await withClient((client) => checkIn(organization, client, report, { leaving: true }));
    return left === true ? undefined : "it is too old for that";
  } catch (error) {
    if (hasCode(error, "node_revoked")) return undefined;
    return messageOf(error);
  }
}

/** Returns what could not be removed. Throws if the organization is still in its place. */
export async function removeLocally(
  salvaged: Salvaged,
  command: string,
  system: ConnectionSystem,
): Promise<NotRemoved[]> {
  const { directory, slug, nodeId } = salvaged;
  const ofKeyring = nodeId === undefined ? [] : await forgetToken(accountOf(slug, nodeId), system);
  return withLock(directory, command, system, async () => {
    const root = join(directory, "..");
    const removed = temporarySibling(root, slug, "removed");
    const place = { slug, directory };
    // Here, so that a kill after it leaves nothing of the parts beside the engine.
    await undoEdge(place, system);
    const siblings = [temporarySibling(root, slug, "replaced"), temporarySibling(root, slug, "pending")];
    // Before the directory: without it, the next command would finish the registration that a killed run left there.
    const ofSiblings = siblings.flatMap(removeAllPossible);
    try {
      removeTree(removed);
      rename(directory, removed);
      syncDirectory(root);
    } catch (error) {
      throw fromSystemError(`remove ${directory}`, error);
    }
    // Again, for a part that was still running the first time.
    const ofEdge = await undoEdge(place, system);
    const ofHealth = healthFiles(salvaged, system).flatMap(removeAllPossible);
    return [...ofKeyring, ...ofEdge, ...ofSiblings, ...ofHealth, ...removeAllPossible(removed)];
  });
}

/** Removes what is stored outside of the directory about a node that another machine continues. The caller has replaced the directory. */
export async function forgetNode(salvaged: Salvaged, system: ConnectionSystem): Promise<void> {
  const { slug, nodeId } = salvaged;
  if (nodeId !== undefined) await forgetToken(accountOf(slug, nodeId), system);
  healthFiles(salvaged, system).forEach(removeAllPossible);
}

async function forgetToken(account: string, system: ConnectionSystem): Promise<NotRemoved[]> {
  if ((await keyringToken(account, system)) === undefined) return [];
  if (await removeFromKeyring(account, system)) return [];
  return [{ path: `keyring entry ${account}`, reason: "the keyring did not delete it" }];
}
