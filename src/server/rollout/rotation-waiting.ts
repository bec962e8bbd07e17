// Decides in SQL what a phase of a CA rotation (rotation-phases.ts) waits for: nodes, or the signers of a seal. Aliases: `o` the
// organization, `n` the node, `s` its sighting, `c` its certificate, `a` a CA. $1: the organization; $2: online since then, ms.
//
// In `trust`, nodes come to trust the new CA; in `issue`, they get certificates of it; in `retire`, they stop trusting the former one.

import { onlineMs } from "../../api/values.ts";
import { demandedIn } from "../certificates/demanded-ca.ts";
import type { Reader } from "../store/database.ts";
import { queryAll, queryOne } from "../store/table.ts";
import { authorities } from "../store/tables/certificates.ts";
import { nodes, specialIs } from "../store/tables/nodes.ts";
import type { OrganizationRow } from "../store/tables/organizations.ts";
import { readSeals } from "../store/tables/policies.ts";
import { lacksFirstIpv6 } from "./first-ipv6.ts";

export type Phase = OrganizationRow["rotationPhase"];
export type RunningPhase = Exclude<Phase, "none">;

/**
 * Nodes that count as online: seen lately. After a server start, or a time without any check-in (`rotation_heard_from`), every active
 * node counts for a while, because it could not be seen. A node of an imported network always counts: it never checks in, and would
 * lose its connections. A phone never does: its user imports it again.
 */
const isOnline =
  "n.phone IS NULL AND (s.last_checkin_at > $2 OR o.rotation_heard_from > $2 OR n.registered_at IS NULL)";
/** The node has a current certificate of a CA that signs no more. */
export const hasOldCertificate = `EXISTS (SELECT 1 FROM certificates c JOIN authorities a ON a.id = c.authority_id
  WHERE c.node_id = n.id AND c.state = 'current' AND a.state <> 'active' AND a.offline = 0)`;
/** The node gets its next certificate, of the new CA as well, by the rolling update: do not issue it here. */
export const awaitsUpdate = `(o.move_open = 1 AND ${lacksFirstIpv6("n")})`;
/** The online nodes. */
const fromNodes = `FROM organizations o JOIN nodes n ON n.org_id = o.id AND n.state = 'active'
  LEFT JOIN sightings s ON s.node_id = n.id WHERE o.id = $1 AND ${isOnline}`;

/** Those of them that have certificates of old CAs: fewer and fewer, so it is cheap. May return a node twice. */
export const fromOldCertificates = `FROM authorities a JOIN certificates c ON c.authority_id = a.id AND c.state = 'current'
  JOIN nodes n ON n.id = c.node_id AND n.state = 'active' JOIN organizations o ON o.id = n.org_id
  LEFT JOIN sightings s ON s.node_id = n.id
  WHERE a.org_id = $1 AND a.state <> 'active' AND a.offline = 0 AND ${isOnline}`;

/** The node has not confirmed the last change that was for it alone, such as a new certificate. */
const isUnconfirmed = "n.confirmed_config_version < n.own_version";
/** The node has not confirmed the configuration of this phase. */
const isBehind = "n.confirmed_config_version < o.rotation_version";
/** Uses the index of hubs: a scan of all nodes every second costs too much. */
const isLighthouse = `n.is_lighthouse = 1 AND n.id IN (SELECT id FROM nodes
  WHERE org_id = $1 AND (${specialIs()}))`;
/** A lighthouse loses the former CA after the other nodes, by a configuration version of its own. */
const isUnconfirmedLighthouse = `${isLighthouse} AND ${isUnconfirmed}`;
/** The node has not completed the phase. */
const isWaitedFor: Record<RunningPhase, string> = {
  trust: isBehind,
  issue: `(${isUnconfirmed} OR ${hasOldCertificate})`,
  retire: `(${isBehind} OR (${isUnconfirmedLighthouse}))`,
};

/** The nodes that the phase waits for, sorted by id. */
export async function waitingFor(
  reader: Reader,
  orgId: number,
  phase: Phase,
  now: number,
): Promise<{ id: number; name: string }[]> {
  if (phase === "none") return [];
  const sql = `SELECT n.id, n.name ${fromNodes} AND ${isWaitedFor[phase]} ORDER BY n.id`;
  return queryAll(reader, nodes.pick("id", "name"), sql, [orgId, now - onlineMs]);
}

/**
 * Whether nodes enforce a seal that lacks the next CA. They confirm a configuration with that CA, but trust it only when signers have
 * signed a seal with it: until then, its certificates would be useless.
 */
export async function awaitsSigners(reader: Reader, orgId: number): Promise<boolean> {
  const demanded = demandedIn(await readSeals(reader, orgId));
  if (demanded === undefined) return false;
  const next = await authorities.all(reader, { orgId, kind: "overlay", state: "next" });
  return next.some(({ fingerprint }) => !demanded.authorities.includes(fingerprint));
}

/** Whether the phase waits for a node or for signers. It is asked every second, so it must be cheap for large organizations, too. */
export async function mustWait(
  reader: Reader,
  orgId: number,
  phase: RunningPhase,
  now: number,
): Promise<boolean> {
  const exists = async (from: string) =>
    (await reader.get(`SELECT n.id ${from} LIMIT 1`, [orgId, now - onlineMs])) !== undefined;
  if (phase === "issue")
    return (await exists(fromOldCertificates)) || exists(`${fromNodes} AND ${isUnconfirmed}`);
  if (await exists(`${fromNodes} AND ${isBehind}`)) return true;
  if (phase === "trust") return awaitsSigners(reader, orgId);
  return exists(`${fromNodes} AND ${isUnconfirmedLighthouse}`);
}

/** The next online lighthouse that still trusts the former CAs. */
export async function nextLighthouse(
  reader: Reader,
  orgId: number,
  now: number,
): Promise<number | undefined> {
  const sql = `SELECT n.id ${fromNodes} AND ${isLighthouse} AND n.keeps_former = 1 ORDER BY n.id LIMIT 1`;
  return (await queryOne(reader, nodes.pick("id"), sql, [orgId, now - onlineMs]))?.id;
}
