// Phones. A signed-in user makes a key in the browser and sends its public half; the answer is the site file for the Nebula
// app, which the browser completes. A phone has no agent: it never checks in, confirms nothing, has no token, and learns of
// changes and revocations only when its user imports it again. That is the same node with another key; the certificate of
// the former key is blocked.

import type { NewPhone, PhoneImport, PhoneSite } from "../../api/phones.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { RegisterWaiting } from "../../protocol/registration.ts";
import { record, type Actor } from "../audit/record.ts";
import { issueOverlay, readIssuingOrg, type IssuingOrg } from "../certificates/issue.ts";
import { renderSite } from "../config/phone-site.ts";
import { readTogether, type Views } from "../config/views.ts";
import type { OrganizationCall } from "../http/route.ts";
import { limits, throttled, type Throttle } from "../http/throttle.ts";
import type { UserCaller } from "../users/sessions/browser-sessions.ts";
import { requireRole } from "../users/late-rights.ts";
import { ownerGroupsOf } from "../policy/group-users.ts";
import { ensureGroups } from "../policy/groups.ts";
import { publishNames } from "../names/publish.ts";
import { chooseAddress, takeAddress } from "../allocation/address-pool.ts";
import type { Transaction } from "../store/database.ts";
import { confirmsNothing, findNode } from "../store/nodes.ts";
import { queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { notifyNode, readConfigVersion } from "../store/versions.ts";
import { requireFreeName } from "./joining/enrollments.ts";
import { requireMayEnroll } from "./joining/self-enrollment.ts";
import { requireOwner } from "./node-owner.ts";
import type { NodeStore } from "./node-store.ts";
import { taken } from "./nodes.ts";
import { beginPeriod } from "./lifecycle/owner-period.ts";
import { readKeys, refusePrivateKeys, type Keys } from "./joining/register-request.ts";
import { recordRegistrant, type Grant } from "./joining/registration-credential.ts";
import { findRequest, holdForApproval, type Held } from "./joining/registration-requests.ts";
import { showOne } from "./shown.ts";
import { blockFormerLater, settle } from "./lifecycle/upkeep.ts";

type Services = NodeStore & { views: Views; throttle: Throttle };
export type Wishes = NewPhone | (PhoneImport & { id: number });
type Asked = { wishes: Wishes; keys: Keys; userId: number; actor: Actor; now: number; seenFrom: string };

/**
 * Makes a phone of the user, or lets the user import one again. Throws permission_denied, validation_failed, name_taken,
 * name_held, not_found, conflict, registration_refused, too_many_waiting, too_many_certificates, throttled.
 */
export async function makePhone(
  services: Services,
  call: OrganizationCall,
  { userId }: UserCaller,
  wishes: Wishes,
  actor: Actor,
): Promise<PhoneSite | RegisterWaiting> {
  const { db, system, throttle } = services;
  const { host_public_key } = wishes;
  refusePrivateKeys({ host_public_key });
  const keys = await readKeys({ host_public_key });
  const asking = `${call.org.id} person ${userId}`;
  throttle.check("phones", asking);
  const asked = { wishes, keys, userId, actor, now: system.now(), seenFrom: call.address };
  const made = await db
    .writeFor({ org: call.org.id }, (tx) => admit(tx, services, call.org.id, asked))
    .catch((error: unknown) => {
      throw "name" in wishes ? taken(error, { name: wishes.name }) : error;
    });
  if ("waiting" in made) {
    if (made.isNew) throttle.count("phones", asking);
    return made.waiting;
  }
  // The certificate of a former key is blocked.
  await settle(services, call.org.id);
  return siteOf(services, call.org.id, made.id);
}

async function admit(
  tx: Transaction,
  services: Services,
  orgId: number,
  asked: Asked,
): Promise<{ id: number } | Held> {
  const { wishes, keys, userId, actor, now, seenFrom } = asked;
  const org = await readIssuingOrg(tx, orgId);
  await requireMayEnroll(tx, org, userId);
  const groups = groupsOf(wishes);
  if (groups.length > 0) await requireRole(tx, orgId, actor);
  const former = "id" in wishes ? await ownPhone(tx, orgId, wishes.id, userId) : undefined;
  const same = await nodes.find(tx, { orgId, hostPublicKey: keys.hostPublicKey });
  if (same !== undefined) return repeated(same, asked, former);
  await requireFewSites(tx, orgId, asked);
  const name = "name" in wishes ? wishes.name : (former?.name ?? "");
  if (former === undefined) await requireFreeName(tx, org, name, now);
  const request = { name, host_public_key: wishes.host_public_key, platform: wishes.system, seenFrom };
  const grant = grantOf(userId, former?.id ?? null, former?.groups ?? groups);
  const kept = await findRequest(tx, orgId, keys, now);
  const held = await holdForApproval(tx, org, request, { keys, grant, kept, actor, now });
  if (held !== undefined) return held;
  const id = former === undefined ? await insert(tx, org, asked, name) : await rekey(tx, former, asked);
  const fingerprint = await issueOverlay(tx, org, await findNode(tx, orgId, id), services);
  const event = { orgId, at: now, actor, subject: `node/${id}` };
  if (former === undefined) {
    const { ip } = await findNode(tx, orgId, id);
    const after = { name, ip_address: ip, phone: wishes.system, groups };
    const registered = { ...event, type: "node.registered", after } as const;
    await record(tx, [registered, { ...event, type: "certificate.issued", after: { fingerprint } }]);
  } else {
    // A phone counts as having confirmed everything, so this is due at once.
    await blockFormerLater(tx, id, await readConfigVersion(tx, orgId), now);
    const after = { fingerprint, phone: wishes.system };
    await record(tx, { ...event, type: "certificate.renewed", after });
  }
  return { id };
}

const issued = certificates.pick("version", "createdAt");
const [{ times: maxSites, withinMs }] = limits.phones.limits;
/** The newest certificates: there are at most two versions. */
const newestIssued = `SELECT ${issued.select("c")} FROM certificates c JOIN nodes n ON n.id = c.node_id
  WHERE n.org_id = $1 AND n.owner_id = $2 AND n.phone IS NOT NULL AND c.kind = 'overlay' AND c.created_at > $3
  ORDER BY c.id DESC LIMIT ${2 * maxSites}`;

/** Each site file has a certificate, which peers may have to block. Throws throttled. */
async function requireFewSites(tx: Transaction, orgId: number, { userId, now }: Asked): Promise<void> {
  const found = await queryAll(tx, issued, newestIssued, [orgId, userId, now - withinMs]);
  const oldest = [...Map.groupBy(found, ({ version }) => version).values()].map((each) => each[maxSites - 1]);
  const free = Math.max(...oldest.map((each) => (each === undefined ? 0 : each.createdAt + withinMs)));
  if (free > now) throw throttled(limits.phones.reason, free - now);
}

const groupsOf = (wishes: Wishes): string[] => ("name" in wishes ? [...new Set(wishes.groups)] : []);

/** An ordinary node of the user. */
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

/** A repetition of a request whose answer was lost. Throws conflict for a key of any other node. */
function repeated(same: NodeRow, { wishes, userId }: Asked, former: NodeRow | undefined): { id: number } {
  const isOwn = same.phone !== null && same.ownerId === userId && same.state === "active";
  const isAsked =
    former === undefined ? "name" in wishes && wishes.name === same.name : former.id === same.id;
  if (isOwn && isAsked) return { id: same.id };
  throw new AppError("conflict", "Another node has this key: make a new one.");
}

async function ownPhone(tx: Transaction, orgId: number, id: number, userId: number): Promise<NodeRow> {
  const node = await findNode(tx, orgId, id);
  await requireOwner(tx, node, userId);
  if (node.phone !== null && node.state === "active") return node;
  throw new AppError("not_found", "There is no such phone.");
}

async function insert(tx: Transaction, org: IssuingOrg, asked: Asked, name: string): Promise<number> {
  const { wishes, keys, userId, actor, now } = asked;
  const groups = groupsOf(wishes);
  const address = await chooseAddress(tx, org, undefined);
  await ensureGroups(tx, org.id, groups, now);
  const { id } = await nodes.insertReturning(tx, {
    orgId: org.id,
    name,
    ip: address.ip,
    ip6: address.ip6,
    state: "active",
    hostPublicKey: keys.hostPublicKey,
    platform: wishes.system,
    confirmedConfigVersion: confirmsNothing,
    createdAt: now,
    registeredAt: now,
    pinsDefaults: false,
    ownerId: userId,
    ownerKnown: true,
    groups,
    ownerGroups: await ownerGroupsOf(tx, org.id, userId),
    phone: wishes.system,
    importedAt: now,
  });
  await takeAddress(tx, org.id, address, id);
  await recordRegistrant(tx, id, null, actor);
  await publishNames(tx, org.id, [id]);
  await notifyNode(tx, org.id, id);
  return id;
}

async function rekey(tx: Transaction, { id, orgId }: NodeRow, asked: Asked): Promise<number> {
  const { system: phone } = asked.wishes;
  const { hostPublicKey } = asked.keys;
  await nodes.update(tx, { id }, { hostPublicKey, phone, platform: phone, importedAt: asked.now });
  await beginPeriod(tx, id, asked.now, "proven");
  await notifyNode(tx, orgId, id);
  return id;
}

const pemOf = certificates.pick("pem");
const currentOf = `SELECT ${pemOf.select()} FROM certificates
  WHERE node_id = $1 AND kind = 'overlay' AND state = 'current' ORDER BY version`;
const resolverPick = nodes.pick("ip");
const nameServers = `SELECT ${resolverPick.select()} FROM nodes
  WHERE org_id = $1 AND state = 'active' AND is_name_server = 1 ORDER BY id LIMIT 3`;

async function siteOf(services: Services, orgId: number, id: number): Promise<PhoneSite> {
  const { db, views } = services;
  const { view, node } = await readTogether(db, views, orgId, id);
  const [org, pems, resolvers] = await Promise.all([
    organizations.find(db, { id: orgId }),
    queryAll(db, pemOf, currentOf, [id]),
    queryAll(db, resolverPick, nameServers, [orgId]),
  ]);
  const suffix = org?.nameSuffix ?? null;
  const site = await renderSite(view.config, node, {
    system: node.phone,
    caPem: view.trust.caPem,
    certificatePem: pems.map(({ pem }) => pem).join(""),
    resolvers: resolvers.map(({ ip }) => ip),
    domains: [`${view.slug}.${brand.internalDomain}`, ...(suffix === null ? [] : [suffix])],
  });
  return { node: await showOne(services, { id: orgId }, node), site };
}
