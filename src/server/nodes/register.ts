// Registration of a node in two commits with the slow signing between them: the first takes the name, the address and
// one use of the token, the second stores certificates and token. A crash in between is resumed by the same keys.

import { AppError } from "../../errors.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import type { RegisterAnswer, RegisterRequest } from "../../protocol.ts";
import { actorOf, record } from "../audit/record.ts";
import {
  issueOverlay,
  mayIssue,
  readIssuingOrg,
  signX509,
  storeX509,
  withSecondAddress,
  type IssuingOrg,
} from "../certificates/issue.ts";
import { findDue } from "./renewal.ts";
import { limitCertificates } from "../certificates/blocklist.ts";
import { findNode, isHandRun, nameTaken, nodeRecordOf, type NodeRecord } from "../store/nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { nowhere, type OrganizationCall } from "../http/route.ts";
import {
  adminGrant,
  checkRights,
  consume,
  recordRegistrant,
  requireCredential,
  whyNot,
  type Credential,
  type Grant,
  type UnknownToken,
} from "./registration-credential.ts";
import { readKeys, refuseEngine, refusePrivateKeys, type Keys } from "./register-request.ts";
import { addressTaken, chooseAddress, takeAddress } from "../store/address-pool.ts";
import { NotUnique, numberOf, type Transaction } from "../store/database.ts";
import { requireRole } from "../people/late-rights.ts";
import { isPeerOfRule } from "../policy/rules.ts";
import { refuseHeldName } from "./held-names.ts";
import { throttleKey, type Throttle } from "../http/throttle.ts";
import { raiseConfigVersion, tellNode } from "../store/versions.ts";
import type { Renderings } from "../config/renderings.ts";
import { filesFor, readTogether, type Views } from "../config/views.ts";

type Services = NodeStore & { throttle: Throttle; resumes: Throttle; views: Views; renderings: Renderings };

export async function register(
  services: Services,
  call: OrganizationCall,
  request: RegisterRequest,
): Promise<RegisterAnswer> {
  const { db, system } = services;
  refusePrivateKeys(request);
  const token = request.registration_token;
  if (token === undefined && call.caller.kind === "none") {
    throw new AppError(
      "not_authenticated",
      "Register with an administrator's token, or with a registration_token in the body.",
    );
  }
  const hash = token === undefined ? null : hashToken(token);
  if (hash !== null) services.throttle.check(throttleKey("address", call.address));
  // Checking signatures is work: done for nobody who is refused anyway.
  const keys = await readKeys(request);
  // Where there is no organization, its tokens are looked for all the same.
  if (call.org.id === nowhere) throw refusedToken(services, call, await whyNot(db, nowhere, hash ?? ""));
  const org = await readIssuingOrg(db, call.org.id);
  const actor = actorOf(call);
  const { certificate } = await services.authorities.overlay(db, org.id);
  const reserved = await db
    .write(async (tx) => {
      const made = await reserve(tx, org, request, keys, { hash, actor, now: system.now() });
      // Only then: to others the organization tells nothing of itself.
      if ("node" in made) refuseEngine(request, org, certificate.version);
      return made;
    })
    .catch((error: unknown) => {
      throw explain(error, request);
    });
  if ("unknownToken" in reserved) throw refusedToken(services, call, reserved.unknownToken);
  if (reserved.resumed) {
    // Counted with valid keys and token only, so that others cannot use up the node's budget.
    const key = `node ${reserved.node.id}`;
    services.resumes.check(key);
    services.resumes.count(key);
  }
  return complete(services, org, reserved, { hash, actor });
}

/** One and the same where the organization is another and where there is none. */
function refusedToken({ throttle }: Services, { address }: OrganizationCall, why: UnknownToken): AppError {
  if (why === "never issued") throttle.count(throttleKey("address", address));
  const what = why === "used up" || why === "expired" ? why : "not valid";
  return new AppError("token_not_valid", `The registration token is ${what}.`);
}

type Reserved = { node: NodeRecord; resumed: boolean; grant: Grant } | { unknownToken: UnknownToken };

async function reserve(
  tx: Transaction,
  org: IssuingOrg,
  request: RegisterRequest,
  keys: Keys,
  { hash, actor, now }: Credential & { now: number },
): Promise<Reserved> {
  // Deleted since the request came in, it takes nobody any more; deleted from here on, its nodes are revoked with it.
  await readIssuingOrg(tx, org.id);
  if (hash === null) await requireRole(tx, org.id, actor);
  const same = await tx.get(
    "SELECT * FROM nodes WHERE org_id = $1 AND host_public_key = $2 ORDER BY id DESC LIMIT 1",
    [org.id, keys.hostPublicKey],
  );
  if (same !== undefined) {
    const resumed = await resume(tx, nodeRecordOf(same), keys, { hash, actor, now });
    if (resumed !== undefined) return resumed;
  }
  const grant = hash === null ? adminGrant : await consume(tx, org.id, hash, now);
  if ("unknownToken" in grant) return grant;
  if (same !== undefined)
    throw new AppError("conflict", "This host key is registered already, with another certificate request.");
  checkRights(request, grant);
  const node = await claimOrInsert(tx, org, request, keys, grant, now);
  // Refused here, the registration consumes no use of its token.
  await limitCertificates(tx, org, node, now);
  await recordRegistrant(tx, node.id, grant.tokenId, actor);
  return { node, resumed: false, grant };
}

/** A registration that was interrupted just before its token expired can still be resumed. */
const resumeGraceMs = 10 * 60_000;

/**
 * The same host key and the same CSR key (whose signature proves possession) are the same registration; no second use
 * is consumed. Undefined where the keys do not agree, or another node's token is used up: then it is a new
 * registration, which will be refused.
 */
async function resume(
  tx: Transaction,
  node: NodeRecord,
  keys: Keys,
  { hash, actor, now }: Credential & { now: number },
): Promise<Reserved | undefined> {
  if (node.csrKeySha256 === null || node.csrKeySha256 !== keys.csrKeySha256) return undefined;
  let tokenId: number | null = null;
  if (hash !== null) {
    const known = await tx.get(
      `SELECT id, expires_at FROM registration_tokens WHERE org_id = $1 AND token_hash = $2 AND revoked_at IS NULL
         AND (id = $3 OR (used < uses AND expires_at > $4))`,
      [node.orgId, hash, node.registeredWith ?? 0, now],
    );
    if (known === undefined) return undefined;
    if (numberOf(known, "expires_at") + resumeGraceMs <= now) return { unknownToken: "expired" };
    tokenId = numberOf(known, "id");
  }
  mayIssue(node);
  await recordRegistrant(tx, node.id, tokenId, actor);
  return { node, resumed: true, grant: adminGrant };
}

/**
 * A pending node, or one of an imported network, is claimed by a token bound to it, or by name with an administrator's
 * rights.
 */
async function claimOrInsert(
  tx: Transaction,
  org: IssuingOrg,
  request: RegisterRequest,
  keys: Keys,
  grant: Grant,
  now: number,
): Promise<NodeRecord> {
  const pending =
    grant.boundTo !== null
      ? await tx.get("SELECT * FROM nodes WHERE org_id = $1 AND id = $2", [org.id, grant.boundTo])
      : grant.tokenId === null
        ? await tx.get(
            `SELECT * FROM nodes WHERE org_id = $1 AND name = $2 AND (state = 'pending' AND host_public_key IS NULL
               OR state = 'active' AND registered_at IS NULL)`,
            [org.id, request.name],
          )
        : undefined;
  if (pending !== undefined) return claim(tx, nodeRecordOf(pending), request, keys, grant);
  const taken = await tx.get(
    "SELECT id, registered_at FROM nodes WHERE org_id = $1 AND name = $2 AND state <> 'revoked'",
    [org.id, request.name],
  );
  if (taken !== undefined) throw nameTaken(request.name, taken["registered_at"] === null);
  if (grant.tokenId !== null) await refuseHeldName(tx, org, request.name, now);
  const address = await chooseAddress(tx, org, request.ip_address);
  const row = await tx.get(
    `INSERT INTO nodes (org_id, name, ip, ip6, state, mode, is_lighthouse, is_relay, public_ip, external_port, listen_port,
       host_public_key, csr, csr_key_sha256, groups, registered_with, platform, agent_version, overlay_version, created_at)
     VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) RETURNING *`,
    [org.id, request.name, address.ip, address.ip6, ...columnsOf(request, keys, grant), now],
  );
  const node = nodeRecordOf(row ?? {});
  await takeAddress(tx, org.id, address, node.id);
  return node;
}

function columnsOf(request: RegisterRequest, keys: Keys, grant: Grant) {
  return [
    request.mode ?? "desktop",
    request.is_lighthouse === true ? 1 : 0,
    request.is_relay === true ? 1 : 0,
    request.public_ip ?? null,
    request.external_port ?? null,
    request.listen_port ?? null,
    keys.hostPublicKey,
    request.node_csr ?? null,
    keys.csrKeySha256,
    JSON.stringify(grant.groups),
    grant.tokenId,
    request.platform ?? null,
    request.version ?? null,
    request.overlay_version ?? null,
  ];
}

async function claim(
  tx: Transaction,
  node: NodeRecord,
  request: RegisterRequest,
  keys: Keys,
  grant: Grant,
): Promise<NodeRecord> {
  const isMadeInAdvance = node.state === "pending" && node.hostPublicKey === null;
  if (!isMadeInAdvance && !isHandRun(node))
    throw new AppError("conflict", `The node ${node.name} is registered already.`);
  if (request.ip_address !== undefined && request.ip_address !== node.ip) {
    throw new AppError("validation_failed", "The node was made with another address.", {
      errors: { ip_address: [`This node has ${node.ip}.`] },
    });
  }
  const groups = [...new Set([...node.groups, ...grant.groups])];
  const [
    mode,
    lighthouse,
    relay,
    publicIp,
    externalPort,
    listenPort,
    hostKey,
    csr,
    csrKey,
    ,
    token,
    platform,
    agent,
    overlay,
  ] = columnsOf(request, keys, grant);
  const row = await tx.get(
    `UPDATE nodes SET mode = $2, is_lighthouse = CASE WHEN $3 = 1 THEN 1 ELSE is_lighthouse END, is_relay = CASE WHEN $4 = 1 THEN 1 ELSE is_relay END,
       public_ip = coalesce($5, public_ip), external_port = coalesce($6, external_port), listen_port = coalesce($7, listen_port),
       host_public_key = $8, csr = $9, csr_key_sha256 = $10, groups = $11, registered_with = $12, platform = $13,
       agent_version = $14, overlay_version = $15 WHERE id = $1 RETURNING *`,
    [
      node.id,
      ...[mode, lighthouse, relay, publicIp, externalPort, listenPort, hostKey, csr, csrKey].map(
        (each) => each ?? null,
      ),
      JSON.stringify(groups),
      ...[token, platform, agent, overlay].map((each) => each ?? null),
    ],
  );
  // A hand-run node is in the others' configurations already.
  if (node.state === "active") await raiseConfigVersion(tx, node.orgId);
  return nodeRecordOf(row ?? {});
}

async function complete(
  services: Services,
  org: IssuingOrg,
  { node, resumed, grant }: Extract<Reserved, { node: NodeRecord }>,
  credential: Credential,
): Promise<RegisterAnswer> {
  const { db, system, views, changes } = services;
  const { actor } = credential;
  // A registration that was completed before has its certificates: only what is due is signed again.
  const due =
    resumed && node.registeredAt !== null
      ? await findDue(db, org, node, system.now())
      : { overlay: true, x509: true };
  const x509 = due.x509 ? await signX509(db, org, withSecondAddress(org, node), services) : undefined;
  const apiToken = makeOpaqueToken(system.random);
  await db.write(async (tx) => {
    const now = system.now();
    await requireCredential(tx, org.id, credential);
    const fingerprint = due.overlay
      ? await issueOverlay(tx, org, await findNode(tx, org.id, node.id), services, { isBounded: false })
      : undefined;
    const present = await findNode(tx, org.id, node.id);
    mayIssue(present);
    if (x509 !== undefined) await storeX509(tx, present, x509, system);
    await replaceToken(tx, node.id, hashToken(apiToken), now);
    await activate(tx, present, now);
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
  const files = await filesFor(services, view, active, changes.isHeld(org.id, node.id));
  const config = files.answer();
  return { node: config.node, api_token: apiToken, config };
}

/** A node that registers anew has its new certificates with the answer; one that is new has nothing older in force. */
async function activate(tx: Transaction, node: NodeRecord, now: number): Promise<void> {
  await tellNode(tx, node.orgId, node.id);
  if (node.state === "active" && !isHandRun(node)) return;
  // Others' configurations name lighthouses, relays, routers, and the peers of rules.
  const isHub = node.isLighthouse || node.isRelay || node.subnets.length > 0;
  if (isHub || (await isPeerOfRule(tx, { id: node.orgId }, node.id)))
    await raiseConfigVersion(tx, node.orgId);
  await tx.run(
    `UPDATE nodes SET state = 'active', registered_at = $2,
       confirmed_config_version = (SELECT config_version FROM organizations WHERE id = $3) WHERE id = $1`,
    [node.id, now, node.orgId],
  );
}

/** The older token of the node is dead from here on; it stays known, so that using it is no guess. */
async function replaceToken(tx: Transaction, nodeId: number, hash: string, now: number): Promise<void> {
  const retired = await tx.run(
    `INSERT INTO retired_tokens (token_hash, retired_at) SELECT token_hash, $2 FROM nodes WHERE id = $1 AND token_hash IS NOT NULL
     ON CONFLICT (token_hash) DO NOTHING`,
    [nodeId, now],
  );
  await tx.run("UPDATE nodes SET token_hash = $2 WHERE id = $1", [nodeId, hash]);
  if (retired > 0) await tx.notify("auth", `node ${nodeId}`);
}

/** What a unique index has refused under a race. */
function explain(error: unknown, request: RegisterRequest): unknown {
  if (!(error instanceof NotUnique)) return error;
  return error.constraint.includes("name")
    ? nameTaken(request.name)
    : addressTaken(request.ip_address ?? "chosen");
}
