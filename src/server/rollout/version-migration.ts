// Moves of an organization between the versions of its overlay certificates: 1, both, 2, one step at a time, each
// refused while a node could not follow. What an engine takes up by a reload, nodes fetch at their next contact; an IPv6
// address needs a restart, so it comes to one node after the other (move-turns.ts).

import { AppError } from "../../errors.ts";
import { limitCertificatesOfAll } from "../certificates/blocklist.ts";
import { isNarrower, narrowNetwork6 } from "../policy/networks.ts";
import { can } from "../../engine-features.ts";
import { versionsOf } from "../certificates/issue.ts";
import type { CertificateVersions, VersionedOrganization } from "../policy/organizations.ts";
import { nodeRecordOf, onlineMs, type NodeRecord } from "../store/nodes.ts";
import { numberOf, type Reader, type Row, type Transaction } from "../store/database.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { raiseConfigVersion } from "../store/versions.ts";

const order = [1, "both", 2] as const;

/** Whether the organization can go from where it is to `wanted` now. Throws validation_failed, conflict or too_many_certificates. */
async function checkMove(
  reader: Reader,
  org: VersionedOrganization,
  wanted: CertificateVersions,
  now: number,
): Promise<void> {
  checkNetwork6(org, wanted);
  await refuseDuringRotation(reader, org, wanted);
  const steps = order.indexOf(wanted.certificateVersion) - order.indexOf(org.certificateVersion);
  if (steps === 0) return;
  if (Math.abs(steps) > 1) {
    throw new AppError("conflict", 'Between the versions 1 and 2 lies "both": a packet would be lost else.', {
      hint: 'Set certificate_version to "both" first.',
    });
  }
  if (wanted.certificateVersion === 1 && org.network6 !== null) {
    throw new AppError("conflict", "The nodes have IPv6 addresses, which version 1 cannot hold.");
  }
  await limitCertificatesOfAll(reader, org.id, now);
  const nodes = await movingNodes(reader, org.id);
  if (steps > 0) refuseOldEngines(nodes, wanted.certificateVersion);
  const late = nodes.filter(
    (each) =>
      each.node.lastCheckinAt !== null && each.node.lastCheckinAt > now - onlineMs && !follows(each, org),
  );
  if (late.length > 0) {
    throw new AppError("conflict", `The step before is not in force yet on ${namesOf(late)}.`, {
      hint: "Try again when they have confirmed it.",
    });
  }
}

/** A rotation signs for many nodes at once: those that have to wait for their turn would not. */
async function refuseDuringRotation(
  reader: Reader,
  org: VersionedOrganization,
  wanted: CertificateVersions,
): Promise<void> {
  const isSame = org.certificateVersion === wanted.certificateVersion && org.network6 === wanted.network6;
  if (isSame) return;
  const row = await reader.get("SELECT id FROM organizations WHERE id = $1 AND rotation_phase <> 'none'", [
    org.id,
  ]);
  if (row !== undefined) throw new AppError("conflict", "A CA rotation is under way: wait for its end.");
}

function checkNetwork6(org: VersionedOrganization, { network6 }: CertificateVersions): void {
  if (network6 === org.network6) return;
  const refuse = (sentence: string) =>
    new AppError("validation_failed", "The request does not hold what it should.", {
      errors: { network6: [sentence] },
    });
  if (org.network6 !== null || network6 === null)
    throw refuse(`The nodes have addresses in ${org.network6}: it stays.`);
  if (isNarrower(network6, org.network)) throw refuse(narrowNetwork6);
}

type MovingNode = { node: NodeRecord; versions: Set<1 | 2> };

async function movingNodes(reader: Reader, orgId: number): Promise<MovingNode[]> {
  const rows = await reader.all(
    `SELECT nodes.*, sightings.*, ${has(1)} AS has1, ${has(2)} AS has2 FROM ${nodesWithSightings}
     WHERE org_id = $1 AND state = 'active' ORDER BY id`,
    [orgId],
  );
  return rows.map((row) => ({ node: nodeRecordOf(row), versions: versionsIn(row) }));
}

function has(version: 1 | 2): string {
  return `(SELECT count(*) FROM certificates c WHERE c.node_id = nodes.id AND c.kind = 'overlay'
    AND c.state = 'current' AND c.version = ${version})`;
}

function versionsIn(row: Row): Set<1 | 2> {
  return new Set(([1, 2] as const).filter((version) => numberOf(row, `has${version}`) > 0));
}

/** Older engines ignore a second certificate, but the migration could never finish with them. */
function refuseOldEngines(
  nodes: readonly MovingNode[],
  wanted: CertificateVersions["certificateVersion"],
): void {
  const isOld = ({ node: { overlayVersion } }: MovingNode) =>
    overlayVersion === null ? wanted === 2 : !can(overlayVersion, "certificate_v2");
  const old = nodes.filter(isOld);
  if (old.length === 0) return;
  throw new AppError(
    "conflict",
    `Certificates of version 2 need the engine 1.10 or later: ${namesOf(old)}.`,
    {
      hint: "Update these nodes with `agent overlay update`, or delete them, and try again.",
    },
  );
}

function namesOf(nodes: readonly MovingNode[]): string {
  const names = nodes
    .slice(0, 5)
    .map(({ node }) => `${node.name} (${node.overlayVersion ?? "unknown engine"})`);
  return nodes.length > 5 ? `${names.join(", ")} and ${nodes.length - 5} more` : names.join(", ");
}

/** It has said that what its organization is at is in force. */
function follows({ node, versions }: MovingNode, org: VersionedOrganization): boolean {
  const isIssued = versionsOf(org).every((version) => versions.has(version));
  const hasAddress = org.network6 === null || org.certificateVersion === 1 || node.ip6 !== null;
  return isIssued && hasAddress && node.confirmedConfigVersion >= node.ownVersion;
}

/**
 * Checks the change of an organization's certificate versions and begins it, in the transaction that stores it. Throws
 * validation_failed or conflict.
 */
export async function migrateVersions(
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
  now: number,
): Promise<void> {
  await checkMove(tx, before, after, now);
  await beginMove(tx, before, after);
}

async function beginMove(
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
): Promise<void> {
  if (before.certificateVersion === after.certificateVersion && before.network6 === after.network6) return;
  const had6 = before.network6 !== null && before.certificateVersion !== 1;
  const has6 = after.network6 !== null && after.certificateVersion !== 1;
  if (has6 && !had6) await tx.run("UPDATE organizations SET move_open = 1 WHERE id = $1", [before.id]);
  else if (before.certificateVersion !== after.certificateVersion) {
    // Signed when each node comes for its files; none is asked to come before the others.
    await tx.run("UPDATE nodes SET renew_at = 0 WHERE org_id = $1 AND state = 'active'", [before.id]);
  }
  await raiseConfigVersion(tx, before.id);
}
