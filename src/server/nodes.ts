// Nodes as an administrator handles them: made in advance, listed, changed, their certificate renewed. Registration
// is in register.ts, revocation in revoke.ts.

import * as v from "valibot";
import { AppError } from "../errors.ts";
import { NodeName, Port, PublicAddress, type Node } from "../protocol.ts";
import { raiseForNode } from "./checkins.ts";
import { record, type Actor } from "./events.ts";
import { Cidr, GroupName } from "./firewall.ts";
import { ensureGroups } from "./groups.ts";
import { issueOverlay, issueX509, storeCertificate } from "./issue.ts";
import { pageOf, searchPattern, type ListQuery } from "./lists.ts";
import { findNode, nodeRecordOf, onlineMs, showNode, type NodeRecord } from "./node-records.ts";
import type { NodeStore } from "./node-services.ts";
import { raiseConfigVersion } from "./organizations.ts";
import { ConfigOverrides } from "./overrides.ts";
import { addressTaken, chooseAddress, holdAddress, releaseAddresses } from "./store/addresses.ts";
import { NotUnique, numberOf, textOf, type Reader, type Row } from "./store/database.ts";
import { nodesWithSightings } from "./store/sightings.ts";
import { currentCertificate } from "./views.ts";

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
  { db, system, changes }: NodeStore,
  org: Org,
  nodes: readonly NodeRecord[],
): Promise<Node[]> {
  const row = await db.get("SELECT config_version FROM organizations WHERE id = $1", [org.id]);
  const configVersion = numberOf(row ?? {}, "config_version");
  const certificates = await currentCertificates(
    db,
    nodes.map((node) => node.id),
  );
  return nodes.map((node) => {
    const seen = node.lastCheckinAt !== null && node.lastCheckinAt > system.now() - onlineMs;
    const online = node.state === "active" && (seen || changes.isHeld(org.id, node.id));
    return showNode(node, {
      certificate: currentCertificate(certificates.get(node.id) ?? []),
      configVersion,
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

/** Nodes that are not revoked, by id; the search looks at names and addresses. */
export async function listNodes(
  services: NodeStore,
  org: Org,
  query: ListQuery,
): Promise<{ items: Node[]; total: number }> {
  const { db } = services;
  const where =
    "org_id = $1 AND state <> 'revoked'" +
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
    .write(async (tx) => {
      const now = system.now();
      const row = await tx.get("SELECT network FROM organizations WHERE id = $1", [org.id]);
      const ip = await chooseAddress(
        tx,
        { id: org.id, network: textOf(row ?? {}, "network") },
        request.ip_address,
      );
      await ensureGroups(tx, org.id, request.groups ?? [], now);
      const made = await tx.get(
        `INSERT INTO nodes (org_id, name, ip, state, is_lighthouse, is_relay, public_ip, external_port, groups, subnets, config_overrides, created_at)
         VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8, $9, $10, $11) RETURNING *`,
        [
          org.id,
          request.name,
          ip,
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
      await holdAddress(tx, org.id, ip, node.id);
      await record(tx, {
        orgId: org.id,
        at: now,
        type: "node.created",
        actor,
        subject: `node/${node.id}`,
        after: { name: node.name, ip_address: ip },
      });
      return node;
    })
    .catch((error: unknown) => {
      throw taken(error, request);
    });
  return showOne(services, org, created);
}

/** Changes a node. What stands in its certificate is signed anew, and the former certificate is blocked where it granted more. */
export async function patchNode(
  services: NodeStore,
  org: Org,
  id: number,
  patch: NodePatch,
  actor: Actor,
): Promise<Node> {
  const { db, system, authorities } = services;
  const before = await findNode(db, org.id, id);
  if (before.state === "revoked") throw new AppError("not_found", "There is no such node.");
  const row = await db.get("SELECT network FROM organizations WHERE id = $1", [org.id]);
  const full = { ...org, network: textOf(row ?? {}, "network") };
  const after: NodeRecord = {
    ...before,
    name: patch.name ?? before.name,
    groups: patch.groups ?? before.groups,
    subnets: patch.subnets ?? before.subnets,
    isLighthouse: patch.is_lighthouse ?? before.isLighthouse,
    isRelay: patch.is_relay ?? before.isRelay,
    publicIp: patch.public_ip === undefined ? before.publicIp : patch.public_ip,
    externalPort: patch.external_port === undefined ? before.externalPort : patch.external_port,
  };
  const moved = patch.ip_address !== undefined && patch.ip_address !== before.ip;
  const reissue = before.state === "active" && (moved || certified(before) !== certified(after));
  const done = await db
    .write(async (tx) => {
      const now = system.now();
      if (moved) {
        const ip = await chooseAddress(tx, full, patch.ip_address);
        await releaseAddresses(tx, org.id, id);
        await holdAddress(tx, org.id, ip, id);
        after.ip = ip;
      }
      await ensureGroups(tx, org.id, patch.groups ?? [], now);
      await tx.run(
        `UPDATE nodes SET name = $2, ip = $3, groups = $4, subnets = $5, is_lighthouse = $6, is_relay = $7, public_ip = $8,
           external_port = $9, config_overrides = $10 WHERE id = $1`,
        [
          id,
          after.name,
          after.ip,
          JSON.stringify(after.groups),
          JSON.stringify(after.subnets),
          after.isLighthouse ? 1 : 0,
          after.isRelay ? 1 : 0,
          after.publicIp,
          after.externalPort,
          JSON.stringify(patch.config_overrides ?? before.overrides),
        ],
      );
      if (reissue) {
        await storeCertificate(tx, after, await issueOverlay(tx, full, after, authorities, now), now);
        if (granted(before, after)) {
          await tx.run(
            "UPDATE certificates SET block_after = $2 WHERE node_id = $1 AND state = 'former' AND kind = 'overlay' AND block_after IS NULL",
            [id, now + blockAfterMs],
          );
        }
      }
      if (seenByOthers(before, after)) await raiseConfigVersion(tx, org.id);
      else await raiseForNode(tx, org.id, id);
      await record(tx, {
        orgId: org.id,
        at: now,
        type: "node.updated",
        actor,
        subject: `node/${id}`,
        before: audited(before),
        after: audited(after),
      });
      return findNode(tx, org.id, id);
    })
    .catch((error: unknown) => {
      throw taken(error, patch);
    });
  if (reissue) await renewX509(services, full, done);
  return showOne(services, org, done);
}

/** A former certificate that granted more is blocked once the node confirmed the new one, or after this time. */
const blockAfterMs = 10 * 60_000;

function certified({ name, ip, groups, subnets }: NodeRecord): string {
  return JSON.stringify([name, ip, groups, subnets]);
}

/** The former certificate would still be honoured for something that the new one does not grant. */
function granted(before: NodeRecord, after: NodeRecord): boolean {
  const less = (old: readonly string[], now: readonly string[]) => old.some((each) => !now.includes(each));
  return (
    before.name !== after.name ||
    before.ip !== after.ip ||
    less(before.groups, after.groups) ||
    less(before.subnets, after.subnets)
  );
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

/** New certificates for the same names: nothing is blocked. */
export async function renewNode(
  services: NodeStore,
  org: Org,
  id: number,
  actor: Actor,
): Promise<NodeRecord> {
  const { db, system, authorities } = services;
  const row = await db.get("SELECT network FROM organizations WHERE id = $1", [org.id]);
  const full = { ...org, network: textOf(row ?? {}, "network") };
  const node = await findNode(db, org.id, id);
  if (node.state === "pending")
    throw new AppError("conflict", `The node ${node.name} is not registered yet.`);
  const x509 = await issueX509(db, full, node, authorities, system);
  return db.write(async (tx) => {
    const now = system.now();
    const present = await findNode(tx, org.id, id);
    const overlay = await issueOverlay(tx, full, present, authorities, now);
    await storeCertificate(tx, present, overlay, now);
    if (x509 !== undefined) await storeCertificate(tx, present, x509, now);
    await raiseForNode(tx, org.id, id);
    await record(tx, {
      orgId: org.id,
      at: now,
      type: "certificate.renewed",
      actor,
      subject: `node/${id}`,
      after: { fingerprint: overlay.fingerprint },
    });
    return present;
  });
}

async function renewX509(
  services: NodeStore,
  org: Org & { network: string },
  node: NodeRecord,
): Promise<void> {
  const { db, system, authorities } = services;
  const x509 = await issueX509(db, org, node, authorities, system);
  if (x509 === undefined) return;
  await db.write(async (tx) => {
    await storeCertificate(tx, node, x509, system.now());
    await raiseForNode(tx, org.id, node.id);
  });
}

function taken(error: unknown, { name, ip_address }: NodePatch): unknown {
  if (!(error instanceof NotUnique)) return error;
  if (!error.constraint.includes("name")) return addressTaken(ip_address ?? "chosen");
  return new AppError("name_taken", `There is a node named ${name ?? ""} already.`, {
    errors: { name: ["This name is taken."] },
  });
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
  if (row === undefined)
    throw new AppError("not_found", `There is no ${state === undefined ? "" : "revoked "}node named ${name}`);
  return nodeRecordOf(row);
}
