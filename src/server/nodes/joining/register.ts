// Registers a node in two transactions with the slow signing in between. The first reserves name, address and one use of
// the token; the second stores certificates and API token. After a crash in between, the same keys resume it.

import { AppError } from "../../../base/errors.ts";
import { parseAddress } from "../../../base/ip.ts";
import { hashToken, makeOpaqueToken } from "../../../pki/opaque.ts";
import type { RegisterAnswer, RegisterRequest, RegisterWaiting } from "../../../protocol/registration.ts";
import type { Mode } from "../../../protocol/values.ts";
import { actorOf, record } from "../../audit/record.ts";
import {
  issueOverlay,
  mayIssue,
  readIssuingOrg,
  signX509,
  storeX509,
  withSecondAddress,
  type IssuingOrg,
} from "../../certificates/issue.ts";
import { requireConfirmed } from "./enrollments.ts";
import { bringBack } from "../lifecycle/ephemeral.ts";
import { findDue } from "../lifecycle/renewal.ts";
import { limitCertificates } from "../../certificates/blocklist.ts";
import type { Budget } from "../../retention/budget.ts";
import { findNode, isHandRun, isHub, isOnline, nameTaken } from "../../store/nodes.ts";
import { nodeOfName, requireFreshForNode } from "./claims.ts";
import type { NodeStore } from "../node-store.ts";
import { nowhere, type OrganizationCall } from "../../http/route.ts";
import {
  adminGrant,
  checkRights,
  consume,
  heldGrant,
  recordRegistrant,
  requireCredential,
  tokenRefused,
  whyRefused,
  type Credential,
  type Grant,
  type UnknownToken,
} from "./registration-credential.ts";
import { readKeys, refuseEngine, refusePrivateKeys, type Keys } from "./register-request.ts";
import { findRequest, holdForApproval, type Held } from "./registration-requests.ts";
import { chooseAddress, takeAddress } from "../../allocation/address-pool.ts";
import type { Transaction } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { registrationTokens } from "../../store/tables/joining.ts";
import { retiredTokens } from "../../store/tables/sessions.ts";
import { requireRole } from "../../users/late-rights.ts";
import { ownerGroupsOf } from "../../policy/group-users.ts";
import { publishNames } from "../../names/publish.ts";
import { isPeerOfRule } from "../../policy/rules.ts";
import { checkHub, checkPublicAddress, unreachable } from "../subnets.ts";
import { refuseHeldName } from "../lifecycle/held-names.ts";
import { taken } from "../nodes.ts";
import { countTokenGuess, type Throttle } from "../../http/throttle.ts";
import { notifyNode, raiseConfigVersion, readConfigVersion } from "../../store/versions.ts";
import type { Renderings } from "../../config/renderings.ts";
import { readTogether, type Views } from "../../config/views.ts";
import { filesFor } from "../../config/node-files.ts";
import type { SentFiles } from "../contact/sent-files.ts";

type Services = NodeStore & {
  throttle: Throttle;
  views: Views;
  renderings: Renderings;
  budget: Budget;
  sentFiles: SentFiles;
};

/** `seenFrom`: the caller's address. */
type Request = RegisterRequest & { seenFrom: string };

export async function register(
  services: Services,
  call: OrganizationCall,
  sent: RegisterRequest,
): Promise<RegisterAnswer | RegisterWaiting> {
  const { db, system } = services;
  const request = { ...sent, seenFrom: call.address };
  refusePrivateKeys(sent);
  const token = request.registration_token;
  if (token === undefined && call.caller.kind === "none") {
    throw new AppError(
      "not_authenticated",
      "Register with an administrator's token, or with a registration_token in the body.",
    );
  }
  const hash = token === undefined ? null : hashToken(token);
  // Verifying signatures is expensive: first refuse a token that was never issued.
  const why = hash === null ? undefined : await whyRefused(db, call.org.id, hash);
  if (why === "never issued") throw refusedToken(services, call, why);
  const keys = await readKeys(request);
  // Look the token up even without an organization: the answer must not reveal whether one exists.
  if (call.org.id === nowhere) throw refusedToken(services, call, why ?? "never issued");
  if (hash === null) await requireFreshForNode(db, call, sent.name);
  const org = await readIssuingOrg(db, call.org.id);
  const actor = actorOf(call);
  const { certificate } = await services.authorities.overlay(db, org.id);
  const machine = `${org.id} ${keys.hostPublicKey}`;
  services.throttle.check("asking", machine);
  const noRoom = await services.budget.refusal(call.org, request);
  const reserved = await db
    .writeFor({ org: org.id }, async (tx) => {
      const made = await reserve(tx, org, request, keys, { hash, actor, now: system.now() });
      if (noRoom !== undefined && "node" in made && !made.resumed) throw noRoom;
      // Checked last: without a valid credential the answer reveals nothing of the organization.
      if (!("unknownToken" in made)) refuseEngine(request, org, certificate.version);
      return made;
    })
    .catch((error: unknown) => {
      throw taken(error, request);
    });
  if ("unknownToken" in reserved) throw refusedToken(services, call, reserved.unknownToken);
  if ("waiting" in reserved) {
    if (reserved.isNew) services.throttle.count("asking", machine);
    return reserved.waiting;
  }
  if (reserved.resumed) {
    // Counted only with valid keys and token: strangers cannot exhaust the node's limit.
    const key = String(reserved.node.id);
    services.throttle.check("resume", key);
    services.throttle.count("resume", key);
  }
  return complete(services, org, reserved, { hash, actor });
}

/** The same error for another organization and for one that does not exist. */
function refusedToken({ throttle }: Services, { address }: OrganizationCall, why: UnknownToken): AppError {
  if (why === "never issued") countTokenGuess(throttle, address);
  return tokenRefused(why);
}

type Reserved = { node: NodeRow; resumed: boolean; grant: Grant } | Held | { unknownToken: UnknownToken };

const newestWithKey = `SELECT ${nodes.select()} FROM nodes
  WHERE org_id = $1 AND host_public_key = $2 ORDER BY id DESC LIMIT 1`;

async function reserve(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  keys: Keys,
  { hash, actor, now }: Credential & { now: number },
): Promise<Reserved> {
  // Throws if the organization was deleted since the request began. A later deletion revokes the node.
  await readIssuingOrg(tx, org.id);
  if (hash === null) await requireRole(tx, org.id, actor);
  const same = await queryOne(tx, nodes, newestWithKey, [org.id, keys.hostPublicKey]);
  if (same !== undefined) {
    const resumed = await resume(tx, org, same, keys, { hash, actor, now, mode: request.mode ?? same.mode });
    if (resumed !== undefined) return resumed;
  }
  const kept = await findRequest(tx, org.id, keys, now);
  const held = kept === undefined || hash === null ? undefined : await heldGrant(tx, kept, hash);
  const grant = hash === null ? adminGrant(actor) : (held ?? (await consume(tx, org.id, hash, now)));
  if ("unknownToken" in grant) return grant;
  if (same !== undefined)
    throw new AppError("conflict", "This host key is registered already with another certificate request.");
  if (grant.boundDigest !== null) await requireConfirmed(tx, org, request, { keys, grant });
  checkRights(request, grant);
  checkPublicAddress(org, request.public_ip);
  const claimed = await findClaimed(tx, org, request, grant, now);
  const waiting = await holdForApproval(tx, org, request, { keys, grant, kept, actor, now });
  if (waiting !== undefined) return waiting;
  const node =
    claimed === undefined
      ? await insert(tx, org, request, keys, grant, now)
      : await claim(tx, org, claimed, request, keys, grant);
  await checkHub(tx, org.id, node);
  // A refusal here rolls back the consumed use of the token.
  await limitCertificates(tx, org, node, now);
  await recordRegistrant(tx, node.id, grant.tokenId, actor);
  return { node, resumed: false, grant };
}

/** A registration that was interrupted just before its token expired can be resumed for this long. */
const resumeGraceMs = 10 * 60_000;

/**
 * The same host key and CSR key (the CSR's signature proves possession) mean the same registration: no second use is
 * consumed. Undefined for different keys, or if the token is neither the node's own nor still usable: then it is a new
 * registration, which will be refused.
 */
async function resume(
  tx: Transaction,
  org: IssuingOrg,
  same: NodeRow,
  keys: Keys,
  { hash, actor, now, mode }: Credential & { now: number; mode: Mode | null },
): Promise<Reserved | undefined> {
  if (same.csrKeySha256 === null || same.csrKeySha256 !== keys.csrKeySha256) return undefined;
  let tokenId: number | null = null;
  if (hash !== null) {
    const known = await registrationTokens.find(tx, {
      orgId: same.orgId,
      tokenHash: hash,
      revokedAt: null,
    });
    if (known === undefined) return undefined;
    const isUsable = known.used < known.uses && known.expiresAt > now;
    if (known.id !== same.registeredWith && !isUsable) return undefined;
    if (known.expiresAt + resumeGraceMs <= now) return { unknownToken: "expired" };
    tokenId = known.id;
  }
  const node = same.endedAt === null ? same : await bringBack(tx, org, same, actor, now);
  mayIssue(node);
  await recordRegistrant(tx, node.id, tokenId, actor);
  // The machine may have been moved to the other mode.
  if (mode !== node.mode) await nodes.update(tx, { id: node.id }, { mode });
  return { node: { ...node, mode }, resumed: true, grant: adminGrant(actor) };
}

/**
 * The pending node or node of an imported network that the registration claims: by a token that is bound to it, or by its
 * name with the rights of an administrator. Undefined for a new node. Throws name_taken, name_held.
 */
async function findClaimed(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  grant: Grant,
  now: number,
): Promise<NodeRow | undefined> {
  const bound =
    grant.boundTo === null ? undefined : await nodes.find(tx, { orgId: org.id, id: grant.boundTo });
  const named = bound ?? (await nodeOfName(tx, org.id, request.name));
  if (named !== undefined) {
    const mayClaim = bound !== undefined || (grant.tokenId === null && isClaimable(named));
    if (!mayClaim) throw nameTaken(request.name, named.registeredAt === null);
    return named;
  }
  if (grant.tokenId !== null) await refuseHeldName(tx, org, request.name, now);
  return undefined;
}

async function insert(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  keys: Keys,
  grant: Grant,
  now: number,
): Promise<NodeRow> {
  const address = await chooseAddress(tx, org, request.ip_address);
  const node = await nodes.insertReturning(tx, {
    orgId: org.id,
    name: request.name,
    ip: address.ip,
    ip6: address.ip6,
    state: "pending",
    groups: grant.groups,
    createdAt: now,
    ...nodeColumns(org, request, keys, grant),
    ephemeralSilenceS: grant.ephemeralSilenceS,
    watchedFrom: grant.ephemeralSilenceS === null ? null : now,
    isNamed: grant.isNamed,
    ownerGroups: await ownerGroupsOf(tx, org.id, grant.ownerId),
  });
  await takeAddress(tx, org.id, address, node.id);
  return node;
}

function isClaimable(node: NodeRow): boolean {
  return isHandRun(node) || (node.state === "pending" && node.hostPublicKey === null);
}

/** The columns that a registration sets. A claimed node keeps values that the request omits. */
function nodeColumns(org: IssuingOrg, request: Request, keys: Keys, grant: Grant, claimed?: NodeRow) {
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

async function claim(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRow,
  request: Request,
  keys: Keys,
  grant: Grant,
): Promise<NodeRow> {
  if (!isClaimable(node)) throw new AppError("conflict", `The node ${node.name} is registered already.`);
  if (request.ip_address !== undefined && request.ip_address !== node.ip) {
    throw new AppError("validation_failed", "The node was created with another address.", {
      errors: { ip_address: [`This node has ${node.ip}.`] },
    });
  }
  const groups = [...new Set([...node.groups, ...grant.groups])];
  const columns = { groups, ...nodeColumns(org, request, keys, grant, node) };
  await nodes.update(tx, { id: node.id }, columns);
  // The other configurations already contain a node of an imported network.
  if (node.state === "active") await raiseConfigVersion(tx, node.orgId);
  return { ...node, ...columns };
}

async function complete(
  services: Services,
  org: IssuingOrg,
  { node, resumed, grant }: Extract<Reserved, { node: NodeRow }>,
  credential: Credential,
): Promise<RegisterAnswer> {
  const { db, system, views, changes } = services;
  const { actor } = credential;
  // A registration that was completed before has certificates: sign only those that are due.
  const due =
    resumed && node.registeredAt !== null
      ? await findDue(db, org, node, system.now())
      : { overlay: true, x509: true };
  const x509 = due.x509 ? await signX509(db, org, withSecondAddress(org, node), services) : undefined;
  const apiToken = makeOpaqueToken(system.random);
  await db.writeFor({ org: org.id }, async (tx) => {
    const now = system.now();
    await requireCredential(tx, org.id, credential);
    const fingerprint = due.overlay
      ? await issueOverlay(tx, org, await findNode(tx, org.id, node.id), services, { isBounded: false })
      : undefined;
    const present = await findNode(tx, org.id, node.id);
    mayIssue(present);
    if (x509 !== undefined) await storeX509(tx, present, x509, system);
    await replaceToken(tx, present, hashToken(apiToken), now);
    await activate(tx, present, now);
    await publishNames(tx, org.id, [node.id]);
    const event = { orgId: org.id, at: now, actor, subject: `node/${node.id}` };
    const used = { subject: `registration_token/${grant.tokenId}`, after: { node_id: node.id } };
    await record(tx, [
      ...(grant.tokenId === null ? [] : [{ ...event, type: "token.used" as const, ...used }]),
      { ...event, type: "node.registered", after: { name: node.name, ip_address: node.ip, resumed } },
      ...(fingerprint === undefined
        ? []
        : [{ ...event, type: "certificate.issued" as const, after: { fingerprint } }]),
    ]);
  });
  const { view, node: active } = await readTogether(db, views, org.id, node.id);
  const files = await filesFor(services, view, active, isOnline(active, system.now(), changes));
  const config = await files.answer();
  await services.sentFiles.note(active, files);
  const isUnused = grant.tokenId !== null && grant.mayBeHub && !isHub(active);
  return {
    node: config.node,
    api_token: apiToken,
    config,
    ...(isUnused ? { unused_right: "lighthouse" } : {}),
  };
}

/** A new node has no older configuration in force, so it counts as having confirmed the current version. */
async function activate(tx: Transaction, node: NodeRow, now: number): Promise<void> {
  await notifyNode(tx, node.orgId, node.id);
  if (node.state === "active" && !isHandRun(node)) return;
  // Other configurations contain lighthouses, relays, routers and the peers of rules.
  if (isHub(node) || (await isPeerOfRule(tx, { id: node.orgId }, node.id)))
    await raiseConfigVersion(tx, node.orgId);
  const confirmedConfigVersion = await readConfigVersion(tx, node.orgId);
  await nodes.update(tx, { id: node.id }, { state: "active", registeredAt: now, confirmedConfigVersion });
}

/** The node's former token stops working. It stays known, so that its use does not count as a guess. */
async function replaceToken(
  tx: Transaction,
  { id, tokenHash }: NodeRow,
  hash: string,
  now: number,
): Promise<void> {
  await nodes.update(tx, { id }, { tokenHash: hash });
  if (tokenHash === null) return;
  const keepFirst = "ON CONFLICT (token_hash) DO NOTHING";
  const retired = await retiredTokens.upsert(tx, { tokenHash, retiredAt: now }, keepFirst);
  if (retired > 0) await tx.notify("auth", `node ${id}`);
}
