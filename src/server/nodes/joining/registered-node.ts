// The row of a node that registers: a new one, or one that was created before and is claimed.

import { AppError } from "../../../base/errors.ts";
import { parseAddress } from "../../../base/ip.ts";
import type { RegisterRequest } from "../../../protocol/registration.ts";
import type { IssuingOrg } from "../../certificates/issue.ts";
import { isHandRun, nameTaken } from "../../store/nodes.ts";
import { nodeOfName } from "./claims.ts";
import type { Grant } from "./registration-credential.ts";
import type { Keys } from "./register-request.ts";
import { chooseAddress, takeAddress } from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { ownerGroupsOf } from "../../policy/group-users.ts";
import { unreachable } from "../subnets.ts";
import { refuseHeldName } from "../lifecycle/refuse-held-names.ts";
import { raiseConfigVersion } from "../../store/versions.ts";

/** `seenFrom`: the caller's address. */
export type Request = RegisterRequest & { seenFrom: string };
/** What a machine asks for, the keys that it proved, and what its credential permits. */
export type Registration = { request: Request; keys: Keys; grant: Grant };

/**
 * The pending node or node of an imported network that the registration claims: by a token that is bound to it, or by its
 * name with the rights of an administrator. Undefined for a new node. Throws name_taken, name_held.
 */
export async function findClaimed(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  grant: Grant,
  now: number,
): Promise<NodeRow | undefined> {
  const bound =
    grant.boundTo === null ? undefined : await nodes.find(tx, { orgId: org.id, id: grant.boundTo });
  const node = bound ?? (await nodeOfName(tx, org.id, request.name));
  if (node !== undefined) {
    const mayClaim = bound !== undefined || (grant.tokenId === null && isClaimable(node));
    if (!mayClaim) throw nameTaken(request.name, { isUnclaimed: node.registeredAt === null });
    return node;
  }
  // Without a token it is an administrator who registers the machine, and may assign a held name.
  if (grant.tokenId !== null) await refuseHeldName(tx, org, request.name, now);
  return undefined;
}

/** Creates a pending node. Throws network_full, address_taken, validation_failed, or NotUnique if the name is taken. */
export async function insertNode(
  tx: Transaction,
  org: IssuingOrg,
  registration: Registration,
  now: number,
): Promise<NodeRow> {
  const { request, grant } = registration;
  const address = await chooseAddress(tx, org, request.ip_address);
  const node = await nodes.insertReturning(tx, {
    orgId: org.id,
    name: request.name,
    ip: address.ip,
    ip6: address.ip6,
    state: "pending",
    groups: grant.groups,
    createdAt: now,
    ...nodeColumns(org, registration),
    ephemeralSilenceS: grant.ephemeralSilenceS,
    // The silence of an ephemeral node counts from now on.
    watchedFrom: grant.ephemeralSilenceS === null ? null : now,
    isNamed: grant.isNamed,
    ownerGroups: await ownerGroupsOf(tx, org.id, grant.ownerId),
  });
  await takeAddress(tx, org.id, address, node.id, now);
  return node;
}

/** Whether a machine may still take the node: it was created in advance, or imported and run by hand until now. */
function isClaimable(node: NodeRow): boolean {
  return isHandRun(node) || (node.state === "pending" && node.hostPublicKey === null);
}

/**
 * The columns that a registration sets. A claimed node keeps its owner, and the roles, public address and ports that the request
 * omits. The other columns describe the machine and are replaced: omitted ones become null, and `mode` becomes "desktop".
 */
function nodeColumns(org: IssuingOrg, { request, keys, grant }: Registration, claimed?: NodeRow) {
  return {
    mode: request.mode ?? "desktop",
    isLighthouse: request.is_lighthouse === true || claimed?.isLighthouse === true,
    isRelay: request.is_relay ?? isRelay(org, request, claimed),
    publicIp: request.public_ip ?? claimed?.publicIp ?? seenAddress(org, request),
    externalPort: request.external_port ?? claimed?.externalPort ?? null,
    listenPort: request.listen_port ?? claimed?.listenPort ?? null,
    hostPublicKey: keys.hostPublicKey,
    csr: request.node_csr ?? null,
    csrKeySha256: keys.csrKeySha256,
    registeredWith: grant.tokenId,
    platform: request.platform ?? null,
    agentVersion: request.version ?? null,
    overlayVersion: request.overlay_version ?? null,
    // The configuration need not name former defaults of the engine (`pinsDefaults`). This and `ownerKnown` are the other way round for
    // nodes that earlier versions registered.
    pinsDefaults: false,
    ownerId: claimed === undefined ? grant.ownerId : claimed.ownerId,
    ownerKnown: true,
  };
}

/** Default of `is_relay`: a new lighthouse is a relay, because otherwise two nodes behind hard NATs never meet. */
function isRelay(org: IssuingOrg, request: Request, claimed?: NodeRow): boolean {
  const isNewLighthouse = request.is_lighthouse === true && claimed?.isLighthouse !== true;
  return claimed?.isRelay === true || (isNewLighthouse && org.lighthousesRelay);
}

/** The public address of a lighthouse that names none: the one it calls from, unless only this machine can use it. */
function seenAddress(org: IssuingOrg, { is_lighthouse, seenFrom }: Request): string | null {
  if (is_lighthouse !== true || parseAddress(seenFrom) === undefined) return null;
  return unreachable(org, seenFrom) === undefined ? seenFrom : null;
}

/** Gives an existing node the keys of the machine. Throws conflict if it has others, validation_failed for another address. */
export async function claimNode(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRow,
  registration: Registration,
): Promise<NodeRow> {
  const { request, grant } = registration;
  if (!isClaimable(node)) throw new AppError("conflict", `The node ${node.name} is registered already.`);
  if (request.ip_address !== undefined && request.ip_address !== node.ip) {
    throw new AppError("validation_failed", "The node was created with another address.", {
      errors: { ip_address: [`This node has ${node.ip}.`] },
    });
  }
  const groups = [...new Set([...node.groups, ...grant.groups])];
  const columns = { groups, ...nodeColumns(org, registration, node) };
  await nodes.update(tx, { id: node.id }, columns);
  // The other configurations already contain a node of an imported network.
  if (node.state === "active") await raiseConfigVersion(tx, node.orgId);
  return { ...node, ...columns };
}
