// Registers a node in two transactions with the slow signing in between. The first reserves name, address and one use of
// the token; the second stores certificates and API token. After a crash in between, the same keys resume it.

import { AppError } from "../../../base/errors.ts";
import { hashToken } from "../../../pki/opaque.ts";
import type { RegisterAnswer, RegisterRequest, RegisterWaiting } from "../../../protocol/registration.ts";
import type { Mode } from "../../../protocol/values.ts";
import { actorOf } from "../../audit/record.ts";
import { mayIssue, readIssuingOrg, type IssuingOrg } from "../../certificates/issue.ts";
import { requireConfirmedMachine } from "./enrollments.ts";
import { bringBack } from "../lifecycle/ephemeral.ts";
import { limitCertificates } from "../../certificates/blocklist.ts";
import { requireFreshForNode } from "./claims.ts";
import { nowhere, type OrganizationCall } from "../../http/route.ts";
import {
  adminGrant,
  checkRights,
  consume,
  heldGrant,
  recordRegistrant,
  refusalError,
  whyRefused,
  type Credential,
  type Grant,
  type TokenRefusal,
} from "./registration-credential.ts";
import { readKeys, refuseEngine, refusePrivateKeys, type Keys } from "./register-request.ts";
import { findRequest, holdForApproval, type Held } from "./registration-requests.ts";
import type { Transaction } from "../../store/database.ts";
import { queryOne } from "../../store/table.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { isOpenRow, registrationTokens, type RegistrationRequestRow } from "../../store/tables/joining.ts";
import { requireRole } from "../../require-role.ts";
import { checkHub, checkPublicAddress } from "../subnets.ts";
import { explainTaken, refuseOldExit } from "../nodes.ts";
import { countTokenGuess } from "../../http/throttle.ts";
import { claimNode, findClaimed, insertNode, type Request } from "./registered-node.ts";
import { completeRegistration, type Registering, type Services } from "./complete-registration.ts";

/**
 * Registers the machine of the call, or leaves its request waiting for approval. Throws not_authenticated, token_not_valid,
 * validation_failed, name_taken, name_held, address_taken, network_full, conflict, throttled or organization_full.
 */
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
  // Verifying signatures is expensive: first refuse a token that was never issued. Other reasons are found by reserveNode: here
  // `why` is "expired" for a good token, too.
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
  // A full organization still lets a machine repeat its registration, which adds nothing. Only the transaction knows whether this is
  // a repetition.
  const fullError = await services.budget.refusal(call.org, request);
  const reserved = await db
    .writeFor({ org: org.id }, async (tx) => {
      const outcome = await reserveNode(tx, org, request, keys, { hash, actor, now: system.now() });
      if (fullError !== undefined && "node" in outcome && !outcome.resumed) throw fullError;
      // Checked last: without a valid credential the answer reveals nothing of the organization.
      if (!("tokenRefusal" in outcome)) refuseEngine(request, org, certificate.version);
      return outcome;
    })
    .catch(explainTaken(request));
  if ("tokenRefusal" in reserved) throw refusedToken(services, call, reserved.tokenRefusal);
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
  return completeRegistration(services, org, reserved, { hash, actor });
}

/** The same error for another organization and for one that does not exist. */
function refusedToken({ throttle }: Services, { address }: OrganizationCall, why: TokenRefusal): AppError {
  if (why === "never issued") countTokenGuess(throttle, address);
  return refusalError(why);
}

/** A node to complete, a request that waits for approval, or the reason why the token is refused. */
type Reserved = Registering | Held | { tokenRefusal: TokenRefusal };

const newestWithKey = `SELECT ${nodes.select()} FROM nodes
  WHERE org_id = $1 AND host_public_key = $2 ORDER BY id DESC LIMIT 1`;

/**
 * The first transaction. Refusals roll it back, with the use of the token. In this order: a repetition of the same machine; the
 * credential; what it permits; approval; the row of the node.
 */
async function reserveNode(
  tx: Transaction,
  org: IssuingOrg,
  request: Request,
  keys: Keys,
  { hash, actor, now }: Credential & { now: number },
): Promise<Reserved> {
  // Throws if the organization was deleted since the request began. A later deletion revokes the node.
  await readIssuingOrg(tx, org.id);
  if (hash === null) await requireRole(tx, org.id, actor);
  const nodeOfKey = await queryOne(tx, nodes, newestWithKey, [org.id, keys.hostPublicKey]);
  if (nodeOfKey !== undefined) {
    const mode = request.mode ?? nodeOfKey.mode;
    const resumed = await resumeRegistration(tx, org, nodeOfKey, keys, { hash, actor, now, mode });
    if (resumed !== undefined) return resumed;
  }
  const kept = await findRequest(tx, org.id, keys, now);
  const grant = hash === null ? adminGrant(actor) : await grantOfToken(tx, org, hash, kept, now);
  if ("tokenRefusal" in grant) return grant;
  if (nodeOfKey !== undefined)
    throw new AppError("conflict", "This host key is registered already with another certificate request.");
  // A token that a user gave to one machine in the browser is good for that machine alone.
  if (grant.boundDigest !== null) await requireConfirmedMachine(tx, org, request, { keys, grant });
  checkRights(request, grant);
  checkPublicAddress(org, request.public_ip);
  const claimed = await findClaimed(tx, org, request, grant, now);
  const waiting = await holdForApproval(tx, org, request, { keys, grant, kept, actor, now });
  if (waiting !== undefined) return waiting;
  const node =
    claimed === undefined
      ? await insertNode(tx, org, { request, keys, grant }, now)
      : await claimNode(tx, org, claimed, { request, keys, grant });
  await checkHub(tx, org.id, node);
  refuseOldExit(node, node.exitGroups);
  // A refusal here rolls back the consumed use of the token.
  await limitCertificates(tx, org, node, now);
  await recordRegistrant(tx, node.id, grant.tokenId, actor);
  return { node, resumed: false, grant };
}

/** `kept`: an earlier request of the machine for approval, which may hold a use of this token already. */
async function grantOfToken(
  tx: Transaction,
  org: IssuingOrg,
  hash: string,
  kept: RegistrationRequestRow | undefined,
  now: number,
): Promise<Grant | { tokenRefusal: TokenRefusal }> {
  const held = kept === undefined ? undefined : await heldGrant(tx, kept, hash);
  return held ?? consume(tx, org.id, hash, now);
}

/** A registration that was interrupted just before its token expired can be resumed for this long. */
const resumeGraceMs = 10 * 60_000;

/**
 * The same host key and CSR key (the CSR's signature proves possession) mean the same registration: no second use is
 * consumed. Undefined for different keys, or if the token is neither the node's own nor still usable: then it is a new
 * registration, which will be refused.
 */
async function resumeRegistration(
  tx: Transaction,
  org: IssuingOrg,
  nodeOfKey: NodeRow,
  keys: Keys,
  { hash, actor, now, mode }: Credential & { now: number; mode: Mode | null },
): Promise<Reserved | undefined> {
  if (nodeOfKey.csrKeySha256 === null || nodeOfKey.csrKeySha256 !== keys.csrKeySha256) return undefined;
  let tokenId: number | null = null;
  if (hash !== null) {
    const known = await registrationTokens.find(tx, {
      orgId: nodeOfKey.orgId,
      tokenHash: hash,
      revokedAt: null,
    });
    if (known === undefined) return undefined;
    if (known.id !== nodeOfKey.registeredWith && !isOpenRow(known, now)) return undefined;
    if (known.expiresAt + resumeGraceMs <= now) return { tokenRefusal: "expired" };
    tokenId = known.id;
  }
  // An ephemeral node that ended comes back with its registration.
  const node = nodeOfKey.endedAt === null ? nodeOfKey : await bringBack(tx, org, nodeOfKey, actor, now);
  // Throws for a revoked node.
  mayIssue(node);
  await recordRegistrant(tx, node.id, tokenId, actor);
  // The machine may have been moved to the other mode.
  if (mode !== node.mode) await nodes.update(tx, { id: node.id }, { mode });
  // The token's grant was applied when the row was made. This one says only that no use of a token is to be recorded.
  return { node: { ...node, mode }, resumed: true, grant: adminGrant(actor) };
}
