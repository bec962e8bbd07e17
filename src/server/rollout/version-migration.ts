// Migrates an organization between the versions of its overlay certificates (1, both, 2), one step at a time, and to an IPv6 network.
// Refuses a step that a node could not follow. Nodes fetch new certificates at their next check-in, because engines load them
// without a restart. The first IPv6 address needs one: first-ipv6.ts issues it to one node after the other.

import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import { limitCertificatesOfAll } from "../certificates/blocklist.ts";
import { demandedIn } from "../certificates/demanded-ca.ts";
import { isNarrower, narrowNetwork6 } from "../organizations/networks.ts";
import { can } from "../../engine/features.ts";
import { versionsOf } from "../certificates/issue.ts";
import type { CertificateVersions, VersionedOrganization } from "../organizations/organizations.ts";
import { isSeen, nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { queryAll } from "../store/table.ts";
import { certificates } from "../store/tables/certificates.ts";
import { nodes } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { readSeals } from "../store/tables/policies.ts";
import { raiseConfigVersion } from "../store/versions.ts";

const versionOrder = [1, "both", 2] as const;

/** Throws validation_failed, conflict or too_many_certificates if the organization cannot migrate to `desired` now. */
async function checkMigration(
  reader: Reader,
  org: VersionedOrganization,
  desired: CertificateVersions,
  now: number,
): Promise<void> {
  checkNetwork6(org, desired);
  if (desired.network6 !== org.network6) await refuseUnderSeal(reader, org.id);
  await refuseDuringRotation(reader, org.id);
  const steps =
    versionOrder.indexOf(desired.certificateVersion) - versionOrder.indexOf(org.certificateVersion);
  if (steps === 0) return;
  if (Math.abs(steps) > 1) {
    throw new AppError("conflict", "Going straight between the certificate versions 1 and 2 drops packets.", {
      hint: 'Set certificate_version to "both" first.',
    });
  }
  if (desired.certificateVersion === 1 && org.network6 !== null) {
    throw new AppError("conflict", "The nodes have IPv6 addresses, which version 1 cannot hold.");
  }
  await limitCertificatesOfAll(reader, org.id, now);
  const members = await readMembers(reader, org.id);
  if (steps > 0) refuseOldEngines(members, desired.certificateVersion);
  // Nodes that are away do not hold a step up: they get certificates of the versions in force at their next check-in.
  const late = members.filter((each) => isSeen(each.node, now) && !hasConfirmed(each, org));
  if (late.length > 0) {
    throw new AppError("conflict", `The previous step is not in force yet on ${namesOf(late)}.`, {
      hint: "Try again when these nodes have confirmed it.",
    });
  }
}

/**
 * With an IPv6 network, the next CA could not be limited to the IPv4 addresses of the organization, and signers sign only seals in which
 * each CA of the control plane is limited. No command removes an IPv6 network, so that would be for ever.
 */
async function refuseUnderSeal(reader: Reader, orgId: number): Promise<void> {
  if (demandedIn(await readSeals(reader, orgId)) === undefined) return;
  throw new AppError("conflict", "Nodes of an organization with an IPv6 network cannot enforce its seal.", {
    hint: `To add one nevertheless, end the enforcement for ever: \`${brand.executable} admin seal sign --observe\`. To keep it, create another organization.`,
  });
}

/** A CA rotation issues certificates to many nodes at once, and would not keep to the order of a rolling update. */
async function refuseDuringRotation(reader: Reader, orgId: number): Promise<void> {
  const current = await organizations.find(reader, { id: orgId });
  if (current?.rotationPhase !== "none")
    throw new AppError("conflict", "A CA rotation is under way: wait until it has finished.");
}

function isSame(a: CertificateVersions, b: CertificateVersions): boolean {
  return a.certificateVersion === b.certificateVersion && a.network6 === b.network6;
}

function checkNetwork6(org: VersionedOrganization, { network6 }: CertificateVersions): void {
  if (network6 === org.network6) return;
  const refuse = (sentence: string) =>
    new AppError("validation_failed", "The request does not hold what it should.", {
      errors: { network6: [sentence] },
    });
  if (org.network6 !== null || network6 === null)
    throw refuse(`The nodes have addresses in ${org.network6}: the network cannot be changed.`);
  if (isNarrower(network6, org.network)) throw refuse(narrowNetwork6);
}

/** `versions`: of the node's current certificates. */
type Member = { node: NodeRecord; versions: Set<number> };

const issuedPick = certificates.pick("nodeId", "version");

async function readMembers(reader: Reader, orgId: number): Promise<Member[]> {
  const issued = await queryAll(
    reader,
    issuedPick,
    `SELECT ${issuedPick.select()} FROM certificates
     WHERE org_id = $1 AND kind = 'overlay' AND state = 'current'`,
    [orgId],
  );
  const byNode = Map.groupBy(issued, ({ nodeId }) => nodeId);
  const active = await queryAll(
    reader,
    nodeRecord,
    `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE org_id = $1 AND state = 'active' AND phone IS NULL ORDER BY id`,
    [orgId],
  );
  return active.map((node) => ({
    node,
    versions: new Set(byNode.get(node.id)?.map(({ version }) => version)),
  }));
}

/** Engines before 1.10 ignore certificates of version 2, so the migration could never finish with them. */
function refuseOldEngines(
  members: readonly Member[],
  desired: CertificateVersions["certificateVersion"],
): void {
  // "both" serves old engines too, so a node whose engine is not known yet matters only for 2.
  const isOld = ({ node: { overlayVersion } }: Member) =>
    overlayVersion === null ? desired === 2 : !can(overlayVersion, "certificate_v2");
  const old = members.filter(isOld);
  if (old.length === 0) return;
  throw new AppError(
    "conflict",
    `Certificates of version 2 need the engine 1.10 or later: ${namesOf(old)}.`,
    {
      hint: `Update these nodes with \`${brand.executable} overlay update\`, or delete them, and try again.`,
    },
  );
}

function namesOf(members: readonly Member[]): string {
  const names = members
    .slice(0, 5)
    .map(({ node }) => `${node.name} (${node.overlayVersion ?? "unknown engine"})`);
  return members.length > 5 ? `${names.join(", ")} and ${members.length - 5} more` : names.join(", ");
}

/**
 * Whether the node has confirmed the certificates of the organization's current versions. `ownVersion`: the configuration version
 * of the last change for this node alone, such as a new certificate.
 */
function hasConfirmed({ node, versions }: Member, org: VersionedOrganization): boolean {
  const isIssued = versionsOf(org).every((version) => versions.has(version));
  const hasAddress = org.network6 === null || org.certificateVersion === 1 || node.ip6 !== null;
  return isIssued && hasAddress && node.confirmedConfigVersion >= node.ownVersion;
}

/**
 * Checks a change of an organization's certificate versions and starts the migration, in the transaction that stores the
 * change. Throws validation_failed, conflict or too_many_certificates.
 */
export async function migrateVersions(
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
  now: number,
): Promise<void> {
  if (isSame(before, after)) return;
  await checkMigration(tx, before, after, now);
  await startMigration(tx, before, after);
}

async function startMigration(
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
): Promise<void> {
  const hadIpv6 = before.network6 !== null && before.certificateVersion !== 1;
  const hasIpv6 = after.network6 !== null && after.certificateVersion !== 1;
  // `moveOpen`: first-ipv6.ts begins, and signs for one node after the other.
  if (hasIpv6 && !hadIpv6) await organizations.update(tx, { id: before.id }, { moveOpen: true });
  else if (before.certificateVersion !== after.certificateVersion) {
    // Signed at each node's next check-in, in no particular order.
    await nodes.update(tx, { orgId: before.id, state: "active" }, { renewAt: 0 });
  }
  await raiseConfigVersion(tx, before.id);
}
