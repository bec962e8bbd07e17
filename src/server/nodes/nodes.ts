// Nodes as an administrator handles them: made in advance, listed, changed, their certificate renewed. Registration
// is in register.ts, revocation in revoke.ts.

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { NodeName, Port, PublicAddress, type Node } from "../../protocol.ts";
import { record, type Actor } from "../audit/record.ts";
import { GroupName } from "../policy/firewall.ts";
import { ensureGroups } from "../policy/groups.ts";
import { issueOverlay, makeX509Due, readIssuingOrg, type IssuingOrg } from "../certificates/issue.ts";
import { pageOf, searchPattern, type ListQuery } from "../http/lists.ts";
import { findNode, nameTaken, nodeRecordOf, onlineMs, showNode, type NodeRecord } from "../store/nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { Cidr, ConfigOverrides } from "../../engine-config.ts";
import { isPeerOfRule } from "../policy/rules.ts";
import { renewCertificates } from "./renewal.ts";
import {
  addressTaken,
  chooseAddress,
  freeAddresses,
  leaveAddresses,
  takeAddress,
} from "../store/address-pool.ts";
import { NotUnique, numberOf, type Reader, type Row, type Transaction } from "../store/database.ts";
import { holdName, takeNameBack } from "../store/names.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { checkSubnets } from "./subnets.ts";
import { blockFormerLater } from "./upkeep.ts";
import { raiseConfigVersion, raiseForNode, tellNode } from "../store/versions.ts";
import { currentCertificate } from "../config/views.ts";

const fields = {
  groups: v.optional(v.pipe(v.array(GroupName), v.maxLength(64))),
  subnets: v.optional(v.pipe(v.array(Cidr), v.maxLength(64))),
  is_lighthouse: v.optional(v.boolean()),
  is_relay: v.optional(v.boolean()),
  public_ip: v.optional(v.nullable(PublicAddress)),
  external_port: v.optional(v.nullable(Port)),
  config_overrides: v.optional(ConfigOverrides),
};
const address = v.pipe(v.string(), v.minLength(2), v.maxLength(45));

export const NodeRequest = v.strictObject({ name: NodeName, ip_address: v.optional(address), ...fields });
export type NodeRequest = v.InferOutput<typeof NodeRequest>;
export const NodePatch = v.strictObject({
  name: v.optional(NodeName),
  ip_address: v.optional(address),
  ...fields,
});
export type NodePatch = v.InferOutput<typeof NodePatch>;

type Org = { id: number; slug: string };

export async function showOne(services: NodeStore, org: Org, node: NodeRecord): Promise<Node> {
  const [shown] = await showAll(services, org, [node]);
  if (shown === undefined) throw new AppError("internal", "The node cannot be shown");
  return shown;
}

async function showAll(
  { db, system, changes, reports }: NodeStore,
  org: Org,
  nodes: readonly NodeRecord[],
): Promise<Node[]> {
  const row = await db.get("SELECT config_version FROM organizations WHERE id = $1", [org.id]);
  const orgVersion = numberOf(row ?? {}, "config_version");
  const certificates = await currentCertificates(
    db,
    nodes.map((node) => node.id),
  );
  return nodes.map((each) => {
    const node = reports?.onto(each) ?? each;
    const seen = node.lastCheckinAt !== null && node.lastCheckinAt > system.now() - onlineMs;
    const online = node.state === "active" && (seen || changes.isHeld(org.id, node.id));
    return showNode(node, {
      certificate: currentCertificate(certificates.get(node.id) ?? []),
      orgVersion,
      online,
    });
  });
}

async function currentCertificates(db: Reader, ids: readonly number[]): Promise<Map<number, Row[]>> {
  if (ids.length === 0) return new Map();
  const places = ids.map((_, at) => `$${at + 1}`).join(", ");
  const rows = await db.all(
    `SELECT node_id, kind, version, fingerprint, not_before, not_after FROM certificates
     WHERE node_id IN (${places}) AND state = 'current' AND kind = 'overlay' ORDER BY version`,
    ids,
  );
  return Map.groupBy(rows, (row) => numberOf(row, "node_id"));
}

/** Nodes that are not revoked, or those alone that are, by id; the search looks at names and addresses. */
export async function listNodes(
  services: NodeStore,
  org: Org,
  query: ListQuery,
  { revoked = false } = {},
): Promise<{ items: Node[]; total: number }> {
  const { db } = services;
  const where =
    `org_id = $1 AND state ${revoked ? "=" : "<>"} 'revoked'` +
    (query.search === "" ? "" : " AND (name LIKE $2 ESCAPE '!' OR ip LIKE $2 ESCAPE '!')");
  const params = query.search === "" ? [org.id] : [org.id, searchPattern(query)];
  const { limit, offset } = pageOf(query);
  const count = await db.get(`SELECT count(*) AS total FROM nodes WHERE ${where}`, params);
  const rows = await db.all(
    // The index alone finds the page; wide rows are read only for what is on it.
    `SELECT * FROM ${nodesWithSightings} WHERE id IN
       (SELECT id FROM nodes WHERE ${where} ORDER BY id LIMIT ${limit} OFFSET ${offset}) ORDER BY id`,
    params,
  );
  return {
    items: await showAll(services, org, rows.map(nodeRecordOf)),
    total: numberOf(count ?? {}, "total"),
  };
}

/** A node in state pending: its machine claims it when it registers. */
export async function createNode(
  services: NodeStore,
  org: Org,
  request: NodeRequest,
  actor: Actor,
): Promise<Node> {
  const { db, system } = services;
  const created = await db
    .write((tx) => insertPending(tx, org, request, actor, system.now()))
    .catch((error: unknown) => {
      throw taken(error, request);
    });
  return showOne(services, org, created);
}

/** Throws NotUnique where the name is taken, network_full, address_taken or validation_failed. */
export async function insertPending(
  tx: Transaction,
  org: Pick<Org, "id">,
  request: NodeRequest,
  actor: Actor,
  now: number,
): Promise<NodeRecord> {
  const issuing = await readIssuingOrg(tx, org.id);
  await checkSubnets(tx, issuing, request.subnets ?? []);
  const address = await chooseAddress(tx, issuing, request.ip_address);
  await ensureGroups(tx, org.id, request.groups ?? [], now);
  const made = await tx.get(
    `INSERT INTO nodes (org_id, name, ip, ip6, state, is_lighthouse, is_relay, public_ip, external_port, groups, subnets, config_overrides, created_at)
     VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, $8, $9, $10, $11, $12) RETURNING *`,
    [
      org.id,
      request.name,
      address.ip,
      address.ip6,
      request.is_lighthouse === true ? 1 : 0,
      request.is_relay === true ? 1 : 0,
      request.public_ip ?? null,
      request.external_port ?? null,
      JSON.stringify(request.groups ?? []),
      JSON.stringify(request.subnets ?? []),
      JSON.stringify(request.config_overrides ?? {}),
      now,
    ],
  );
  const node = nodeRecordOf(made ?? {});
  await takeAddress(tx, org.id, address, node.id);
  await record(tx, {
    orgId: org.id,
    at: now,
    type: "node.created",
    actor,
    subject: `node/${node.id}`,
    after: { name: node.name, ip_address: node.ip },
  });
  return node;
}

/**
 * Changes a node. What stands in its certificate is signed anew, and the former certificates are blocked in time where
 * they granted more. Only the nodes that the change concerns are woken.
 */
export async function patchNode(
  services: NodeStore,
  org: Org,
  id: number,
  patch: NodePatch,
  actor: Actor,
): Promise<Node> {
  const { db, system } = services;
  const done = await db
    .write(async (tx) => {
      const issuing = await readIssuingOrg(tx, org.id);
      const before = await findNode(tx, org.id, id);
      if (before.state === "revoked") throw new AppError("not_found", "There is no such node.");
      if (patch.subnets !== undefined) await checkSubnets(tx, issuing, patch.subnets, id);
      const after = await moved(tx, issuing, patched(before, patch), patch.ip_address);
      await ensureGroups(tx, org.id, patch.groups ?? [], system.now());
      await tx.run(
        `UPDATE nodes SET name = $2, ip = $3, ip6 = $4, groups = $5, subnets = $6, is_lighthouse = $7, is_relay = $8,
           public_ip = $9, external_port = $10, config_overrides = $11 WHERE id = $1`,
        [
          id,
          after.name,
          after.ip,
          after.ip6,
          JSON.stringify(after.groups),
          JSON.stringify(after.subnets),
          after.isLighthouse ? 1 : 0,
          after.isRelay ? 1 : 0,
          after.publicIp,
          after.externalPort,
          JSON.stringify(after.overrides),
        ],
      );
      if (before.name !== after.name) await takeNameBack(tx, after);
      let issued: string | undefined;
      if (before.state === "active") issued = await bringOut(tx, services, issuing, before, after);
      else if (before.name !== after.name) await forgetPendingName(tx, before);
      const event = { orgId: org.id, at: system.now(), actor, subject: `node/${id}` };
      const updated = { type: "node.updated", before: audited(before), after: audited(after) } as const;
      const signed = { type: "certificate.issued", after: { fingerprint: issued } } as const;
      await record(tx, [
        { ...event, ...updated },
        ...(issued === undefined ? [] : [{ ...event, ...signed }]),
      ]);
      return findNode(tx, org.id, id);
    })
    .catch((error: unknown) => {
      throw taken(error, patch);
    });
  return showOne(services, org, done);
}

function patched(before: NodeRecord, patch: NodePatch): NodeRecord {
  return {
    ...before,
    name: patch.name ?? before.name,
    groups: patch.groups === undefined ? before.groups : [...new Set(patch.groups)],
    subnets: patch.subnets ?? before.subnets,
    isLighthouse: patch.is_lighthouse ?? before.isLighthouse,
    isRelay: patch.is_relay ?? before.isRelay,
    publicIp: patch.public_ip === undefined ? before.publicIp : patch.public_ip,
    externalPort: patch.external_port === undefined ? before.externalPort : patch.external_port,
    overrides: patch.config_overrides === undefined ? before.overrides : asMap(patch.config_overrides),
  };
}

function asMap(overrides: ConfigOverrides): NodeRecord["overrides"] {
  return v.parse(v.record(v.string(), v.any()), overrides);
}

/** With another address, where one is wanted. The former one is held as long as a certificate names it. */
async function moved(
  tx: Transaction,
  org: IssuingOrg,
  node: NodeRecord,
  wanted: string | undefined,
): Promise<NodeRecord> {
  if (wanted === undefined) return node;
  const address = await chooseAddress(tx, org, wanted, node.id);
  if (address.ip === node.ip) return node;
  const row = await tx.get(
    "SELECT coalesce(max(not_after), 0) AS until FROM certificates WHERE node_id = $1 AND kind = 'overlay'",
    [node.id],
  );
  const until = numberOf(row ?? {}, "until");
  if (until === 0) await freeAddresses(tx, org.id, node.id);
  else await leaveAddresses(tx, org.id, node.id, { version: null, until });
  await takeAddress(tx, org.id, address, node.id);
  return { ...node, ip: address.ip, ip6: address.ip6 };
}

/** New certificates and a new version, for whom the change concerns; the new certificate's fingerprint. */
async function bringOut(
  tx: Transaction,
  services: NodeStore,
  org: IssuingOrg,
  before: NodeRecord,
  after: NodeRecord,
): Promise<string | undefined> {
  // node.crt holds name and address; it is signed when the node, which is woken, comes for its configuration.
  if (before.name !== after.name || before.ip !== after.ip) await makeX509Due(tx, after.id);
  // Taking rights away is a revocation, which is never refused.
  const isBounded = before.name !== after.name || before.ip !== after.ip || gains(before, after);
  const issued =
    certified(before) === certified(after)
      ? undefined
      : await issueOverlay(tx, org, after, services, { isBounded });
  const version = seenByOthers(before, after)
    ? await raiseConfigVersion(tx, org.id)
    : await raiseForNode(tx, org.id, after.id);
  await tellNode(tx, org.id, after.id);
  const blocked = granted(before, after)
    ? await blockFormerLater(tx, after.id, version, services.system.now())
    : 0;
  // Only the version that blocks the former certificates forgets the name.
  if (before.name !== after.name) await holdName(tx, before, blocked > 0 ? null : version);
  return issued;
}

/** Earlier releases rendered the name of a pending node that a rule names: other nodes may have it still. */
async function forgetPendingName(tx: Transaction, node: NodeRecord): Promise<void> {
  if (await isPeerOfRule(tx, { id: node.orgId }, node.id))
    await holdName(tx, node, await raiseConfigVersion(tx, node.orgId));
}

function certified({ name, ip, groups, subnets }: NodeRecord): string {
  return JSON.stringify([name, ip, groups, subnets]);
}

/** The former certificate would still be honoured for something that the new one does not grant. */
function granted(before: NodeRecord, after: NodeRecord): boolean {
  return before.name !== after.name || before.ip !== after.ip || gains(after, before);
}

/** `to` grants a group or a network that `from` does not. */
function gains(from: NodeRecord, to: NodeRecord): boolean {
  const more = (old: readonly string[], now: readonly string[]) => now.some((each) => !old.includes(each));
  return more(from.groups, to.groups) || more(from.subnets, to.subnets);
}

function seenByOthers(before: NodeRecord, after: NodeRecord): boolean {
  const hub = ({ isLighthouse, isRelay, subnets }: NodeRecord) =>
    isLighthouse || isRelay || subnets.length > 0;
  const shown = ({ ip, name, isLighthouse, isRelay, publicIp, externalPort, subnets }: NodeRecord) =>
    JSON.stringify([ip, name, isLighthouse, isRelay, publicIp, externalPort, subnets]);
  return (hub(before) || hub(after) || before.name !== after.name) && shown(before) !== shown(after);
}

function audited({
  name,
  ip,
  groups,
  subnets,
  isLighthouse,
  isRelay,
  publicIp,
  externalPort,
}: NodeRecord): Record<string, unknown> {
  return {
    name,
    ip_address: ip,
    groups,
    subnets,
    is_lighthouse: isLighthouse,
    is_relay: isRelay,
    public_ip: publicIp,
    external_port: externalPort,
  };
}

/** New certificates at once. Throws conflict for a node that is not registered, node_revoked for one that is revoked. */
export async function renewNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const node = await findNode(services.db, org.id, id);
  if (node.state === "pending")
    throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  return renewCertificates(services, org.id, id, actor);
}

/** What a unique index has refused. */
function taken(error: unknown, { name, ip_address }: NodePatch): unknown {
  if (!(error instanceof NotUnique)) return error;
  if (!error.constraint.includes("name")) return addressTaken(ip_address ?? "chosen");
  return nameTaken(name ?? "");
}

/** By name, which revoked nodes may share with others: of those the one that was revoked last. Throws not_found. */
export async function findNodeByName(
  reader: Pick<Reader, "get">,
  orgId: number,
  name: string,
  state?: "revoked",
): Promise<NodeRecord> {
  const row = await reader.get(
    `SELECT * FROM nodes WHERE org_id = $1 AND name = $2 AND state ${state === undefined ? "<>" : "="} 'revoked'
     ORDER BY revoked_at DESC, id DESC LIMIT 1`,
    [orgId, name],
  );
  if (row === undefined) {
    const [kind, flag] = state === undefined ? ["", ""] : ["revoked ", " --revoked"];
    throw new AppError("not_found", `There is no ${kind}node named ${name}`, {
      hint: `\`${brand.executable} admin node list ORG${flag}\` shows those that there are.`,
    });
  }
  return nodeRecordOf(row);
}
