// Phones. A signed-in user makes a key in the browser and sends its public half; the answer is the site file for the Nebula
// app, which the browser completes. A phone has no agent: it never checks in, confirms nothing, has no token, and learns of
// changes and revocations only when its user imports it again. After that it is the same node with another key; the
// certificate of the former key is blocked.

import type { NewPhone, PhoneImport, PhoneSite } from "../../api/phones.ts";
import { AppError } from "../../base/errors.ts";
import type { RegisterWaiting } from "../../protocol/registration.ts";
import { record, type Actor } from "../audit/record.ts";
import { issueOverlay, readIssuingOrg, type IssuingOrg } from "../certificates/issue.ts";
import type { Views } from "../config/organization-views.ts";
import type { OrganizationCall, UserCaller } from "../http/route.ts";
import { limits, throttled, type Throttle } from "../http/throttle.ts";
import { requireRole } from "../require-role.ts";
import { ownerGroupsOf } from "../policy/group-users.ts";
import { ensureGroups } from "../policy/groups.ts";
import { publishNames } from "../names/publish.ts";
import { chooseAddress, takeAddress } from "../allocation/address-pool.ts";
import type { Transaction } from "../store/database.ts";
import { countsAsConfirmed, findNode } from "../store/nodes.ts";
import { queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { notifyNode, readConfigVersion } from "../store/versions.ts";
import { requireFreeNodeName } from "./joining/enrollments.ts";
import { requireMayEnroll } from "./joining/self-enrollment.ts";
import { requireOwner } from "./node-owner.ts";
import type { NodeStore } from "./node-store.ts";
import { explainTaken } from "./nodes.ts";
import { beginPeriod } from "./lifecycle/owner-period.ts";
import { readKeys, refusePrivateKeys, type Keys } from "./joining/register-request.ts";
import { recordRegistrant, type Grant } from "./joining/registration-credential.ts";
import { findRequest, holdForApproval, type Held } from "./joining/registration-requests.ts";
import { readPhoneSite } from "./phone-site-file.ts";
import { blockFormerLater, runDueUpkeep } from "./lifecycle/upkeep.ts";

type Services = NodeStore & { views: Views; throttle: Throttle };
export type PhoneWish = ({ kind: "new" } & NewPhone) | ({ kind: "import"; id: number } & PhoneImport);
/** A request with what is known of it. `seenFrom`: the address that it came from. */
type Asked = { wish: PhoneWish; keys: Keys; userId: number; actor: Actor; now: number; seenFrom: string };
/** The phone to make. `former`: its node before this import; undefined for a new phone. */
type Phone = { name: string; groups: string[]; former: NodeRow | undefined };

/**
 * Makes a phone of the user, or lets the user import one again. Throws permission_denied, validation_failed, name_taken,
 * name_held, not_found, conflict, registration_refused, too_many_waiting, too_many_certificates, throttled.
 */
export async function makePhone(
  services: Services,
  call: OrganizationCall,
  { userId }: UserCaller,
  wish: PhoneWish,
  actor: Actor,
): Promise<PhoneSite | RegisterWaiting> {
  const { db, system, throttle } = services;
  const { host_public_key } = wish;
  refusePrivateKeys({ host_public_key });
  const keys = await readKeys({ host_public_key });
  // Counts only requests for approval. requireFewSites counts site files.
  const requester = `${call.org.id} person ${userId}`;
  throttle.check("phones", requester);
  const asked = { wish, keys, userId, actor, now: system.now(), seenFrom: call.address };
  const making = db.writeFor({ org: call.org.id }, (tx) => makeInside(tx, services, call.org.id, asked));
  const outcome = await (wish.kind === "new" ? making.catch(explainTaken({ name: wish.name })) : making);
  if ("waiting" in outcome) {
    if (outcome.isNew) throttle.count("phones", requester);
    return outcome.waiting;
  }
  // Blocks the certificate of a former key.
  await runDueUpkeep(services, call.org.id);
  return readPhoneSite(services, call.org.id, outcome.id);
}

/**
 * Makes the phone in the transaction, or holds it for approval. The order matters: a repetition (2) makes nothing, so it needs
 * neither limits (3) nor an approval (4).
 */
async function makeInside(
  tx: Transaction,
  services: Services,
  orgId: number,
  asked: Asked,
): Promise<{ id: number } | Held> {
  const { wish, keys, userId, actor, now, seenFrom } = asked;
  const org = await readIssuingOrg(tx, orgId);
  // 1. The user may do it.
  await requireMayEnroll(tx, org, userId);
  const phone = await phoneOf(tx, orgId, asked);
  const { name, groups, former } = phone;
  // 2. A repetition of a request whose answer was lost gets the same phone.
  const nodeOfKey = await nodes.find(tx, { orgId, hostPublicKey: keys.hostPublicKey });
  if (nodeOfKey !== undefined) return phoneOfRepetition(nodeOfKey, phone, userId);
  // 3. The phone can be made. An administrator is asked only then.
  await requireFewSites(tx, orgId, asked);
  if (former === undefined) await requireFreeNodeName(tx, org, name, now);
  // 4. An administrator approves it, if the organization asks for that.
  const request = { name, host_public_key: wish.host_public_key, platform: wish.system, seenFrom };
  const grant = grantOf(userId, former?.id ?? null, groups);
  const kept = await findRequest(tx, orgId, keys, now);
  const held = await holdForApproval(tx, org, request, { keys, grant, kept, actor, now });
  if (held !== undefined) return held;
  // 5. The node, its certificate and the events.
  const id =
    former === undefined ? await insertPhone(tx, org, asked, phone) : await rekeyPhone(tx, former, asked);
  const fingerprint = await issueOverlay(tx, org, await findNode(tx, orgId, id), services);
  const event = { orgId, at: now, actor, subject: `node/${id}` };
  if (former === undefined) {
    const { ip } = await findNode(tx, orgId, id);
    const after = { name, ip_address: ip, phone: wish.system, groups };
    const registered = { ...event, type: "node.registered", after } as const;
    await record(tx, [registered, { ...event, type: "certificate.issued", after: { fingerprint } }]);
  } else {
    // A phone counts as having confirmed everything, so this is due at once.
    await blockFormerLater(tx, id, await readConfigVersion(tx, orgId), now);
    const after = { fingerprint, phone: wish.system };
    await record(tx, { ...event, type: "certificate.renewed", after });
  }
  return { id };
}

/** Throws not_found for a phone that is not the user's, permission_denied for groups without the role of an administrator. */
async function phoneOf(tx: Transaction, orgId: number, { wish, userId, actor }: Asked): Promise<Phone> {
  if (wish.kind === "import") {
    const former = await ownPhone(tx, orgId, wish.id, userId);
    return { name: former.name, groups: former.groups, former };
  }
  const groups = [...new Set(wish.groups)];
  if (groups.length > 0) await requireRole(tx, orgId, actor);
  return { name: wish.name, groups, former: undefined };
}

const issued = certificates.pick("version", "createdAt");
const [{ times: maxSites, withinMs }] = limits.phones.windows;
/**
 * The newest certificates of the user's phones ($2), created after $3 (ms), latest first. There are at most two versions, each with
 * up to `maxSites`.
 */
const newestIssued = `SELECT ${issued.select("c")} FROM certificates c JOIN nodes n ON n.id = c.node_id
  WHERE n.org_id = $1 AND n.owner_id = $2 AND n.phone IS NOT NULL AND c.kind = 'overlay' AND c.created_at > $3
  ORDER BY c.id DESC LIMIT ${2 * maxSites}`;

/**
 * Throws throttled after too many site files: peers may have to block the certificates of each. A site file has one of each
 * version, so each version counts apart: while it has `maxSites` new ones, the user waits for the oldest of them.
 */
async function requireFewSites(tx: Transaction, orgId: number, { userId, now }: Asked): Promise<void> {
  const found = await queryAll(tx, issued, newestIssued, [orgId, userId, now - withinMs]);
  // The newest comes first, so this is the oldest of those that count; undefined: fewer than `maxSites` are new.
  const oldest = [...Map.groupBy(found, ({ version }) => version).values()].map((list) => list[maxSites - 1]);
  const freeAt = Math.max(...oldest.map((site) => (site === undefined ? 0 : site.createdAt + withinMs)));
  if (freeAt > now) throw throttled(limits.phones.reason, freeAt - now);
}

/** What a phone gets without a token: it is an ordinary node of the user. `boundTo`: the phone that is imported again. */
function grantOf(ownerId: number, boundTo: number | null, groups: string[]): Grant {
  return {
    tokenId: null,
    groups,
    mayBeHub: false,
    boundTo,
    ownerId,
    ephemeralSilenceS: null,
    isNamed: true,
    isApproved: false,
    boundDigest: null,
    isPhone: true,
  };
}

/** Throws conflict for a key of any other node. */
function phoneOfRepetition(node: NodeRow, { name, former }: Phone, userId: number): { id: number } {
  const isOwn = node.phone !== null && node.ownerId === userId && node.state === "active";
  const isAsked = former === undefined ? name === node.name : former.id === node.id;
  if (isOwn && isAsked) return { id: node.id };
  throw new AppError("conflict", "Another node has this key: make a new one.");
}

async function ownPhone(tx: Transaction, orgId: number, id: number, userId: number): Promise<NodeRow> {
  const node = await findNode(tx, orgId, id);
  await requireOwner(tx, node, userId);
  if (node.phone !== null && node.state === "active") return node;
  throw new AppError("not_found", "There is no such phone.");
}

async function insertPhone(
  tx: Transaction,
  org: IssuingOrg,
  { wish, keys, userId, actor, now }: Asked,
  { name, groups }: Phone,
): Promise<number> {
  const address = await chooseAddress(tx, org, undefined);
  await ensureGroups(tx, org.id, groups, now);
  const { id } = await nodes.insertReturning(tx, {
    orgId: org.id,
    name,
    ip: address.ip,
    ip6: address.ip6,
    state: "active",
    hostPublicKey: keys.hostPublicKey,
    platform: wish.system,
    confirmedConfigVersion: countsAsConfirmed,
    createdAt: now,
    registeredAt: now,
    // True only for nodes of earlier versions.
    pinsDefaults: false,
    ownerId: userId,
    ownerKnown: true,
    groups,
    ownerGroups: await ownerGroupsOf(tx, org.id, userId),
    phone: wish.system,
    importedAt: now,
  });
  await takeAddress(tx, org.id, address, id, now);
  await recordRegistrant(tx, id, null, actor);
  await publishNames(tx, org.id, [id]);
  await notifyNode(tx, org.id, id);
  return id;
}

/** Gives the phone the new key. */
async function rekeyPhone(tx: Transaction, { id, orgId }: NodeRow, asked: Asked): Promise<number> {
  const { system: phone } = asked.wish;
  const { hostPublicKey } = asked.keys;
  await nodes.update(tx, { id }, { hostPublicKey, phone, platform: phone, importedAt: asked.now });
  // The user who imports it has confirmed that the phone is still theirs.
  await beginPeriod(tx, id, asked.now, "proven");
  await notifyNode(tx, orgId, id);
  return id;
}
