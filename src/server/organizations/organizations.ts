// Creates organizations with their two CAs, order key and initial rules, and deletes them. A deleted organization
// keeps its rows, so that its nodes still learn that they are revoked.

import { notFound } from "../../api/values.ts";
import * as v from "valibot";
import {
  Organization,
  organizationSettings,
  type CertificateVersion,
  type OrganizationRequest,
} from "../../api/organizations.ts";
import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { columnOf } from "../../protocol/settings.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { organizationDeleted } from "../../protocol/orders.ts";
import { insertAuthority, makeAuthorities, type NewAuthority } from "../certificates/make-authorities.ts";
import { record, type Actor } from "../audit/record.ts";
import { firstRules } from "../policy/firewall.ts";
import { checkRoom } from "./networks.ts";
import type { Org } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole, requireStaff } from "../require-role.ts";
import { NotUnique, type Reader, type Row, type Transaction } from "../store/database.ts";
import { computed, integer, queryAll, queryOne } from "../store/table.ts";
import { memberships, organizations, type OrganizationRow } from "../store/tables/organizations.ts";
import { firewallRules } from "../store/tables/policies.ts";
import { registrationTokens } from "../store/tables/joining.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey" | "clock">;

/** The columns that determine the versions and IPv6 addresses of the nodes' certificates. */
export type CertificateVersions = Pick<OrganizationRow, "certificateVersion" | "network6">;
export type VersionedOrganization = Pick<OrganizationRow, "id" | "network"> & CertificateVersions;

/** Checks a change of versions and starts it in the same transaction (rollout/version-migration.ts). */
export type Migrate = (
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
  now: number,
) => Promise<void>;

/** The context that seals the order key with this id: in another row the key does not open. */
export function orderKeyContext(kid: string): string {
  return `order key ${kid}`;
}

/** The columns of two settings have another name than the field. */
const otherNames: Readonly<Record<string, keyof OrganizationRow>> = {
  ca_rotation_auto: "rotationAuto",
  second_factor_required: "secondFactor",
};
const settingColumns = Object.keys(organizationSettings).map(
  (field) => [field, otherNames[field] ?? (columnOf(field) as keyof OrganizationRow)] as const,
);
/** The columns of a change of settings. */
export const settingsRow = (settings: Readonly<Record<string, unknown>>): Partial<OrganizationRow> =>
  Object.fromEntries(settingColumns.map(([field, column]) => [column, settings[field]]));

/** What the API shows of the row. */
const shownPick = organizations.pick(
  "id",
  "slug",
  "network",
  "lastVersion",
  "createdAt",
  ...settingColumns.map(([, column]) => column),
);
const counted = computed({ nodeCount: integer() });
export const organizationColumns = `${shownPick.select("o")},
  (SELECT count(*) FROM nodes n WHERE n.org_id = o.id AND n.state <> 'revoked') AS node_count`;

/** The organization as the API shows it. `role`: that of the caller; null without one. */
export function organizationOf(row: Row, role: Organization["role"]): Organization {
  const org = shownPick.parse(row);
  // In the order of the schema.
  return v.parse(Organization, {
    ...org,
    ...Object.fromEntries(settingColumns.map(([field, column]) => [field, org[column]])),
    role,
    node_count: counted.parse(row).nodeCount,
    config_version: org.lastVersion,
    created_at: formatTime(org.createdAt),
  });
}

/** The initial content of an imported organization: its overlay CA and its nodes. */
export type Inheritance = { overlay: NewAuthority; fill(tx: Transaction, orgId: number): Promise<void> };

/** Creates the organization, with an owner if `by` names one. Throws conflict if the slug is taken. */
export async function createOrganization(
  store: Store,
  request: OrganizationRequest & { certificateVersion?: CertificateVersion },
  by: { ownerId: number | null; ownerEmail: string | null; actor: Actor },
  inherited?: Inheritance,
): Promise<Organization> {
  const { db, system } = store;
  const now = system.now();
  checkRoom(request.network, request.network6);
  const newAuthorities = await makeAuthorities(store, request.slug, now);
  const authorities = newAuthorities.map((authority) =>
    authority.kind === "overlay" ? (inherited?.overlay ?? authority) : authority,
  );
  const { makeSigningKey, publicHalf } = await import("../../pki/tokens.ts");
  const orderKey = await makeSigningKey(makeOpaqueToken(system.random).slice(0, 16));
  const orderKeySealed = sealSecret(store.secretKey, JSON.stringify(orderKey), orderKeyContext(orderKey.kid));
  const created = db.write(async (tx) => {
    await requireStaff(tx, by.actor);
    const { id } = await organizations.insertReturning(tx, {
      slug: request.slug,
      name: request.name ?? request.slug,
      network: request.network,
      network6: request.network6 ?? null,
      certificateVersion: request.certificateVersion ?? 1,
      orderKeySealed,
      orderPublic: publicHalf(orderKey),
      // The default of the column is false, for organizations that are older than the column.
      lighthousesRelay: true,
      createdAt: now,
    });
    for (const authority of authorities) await insertAuthority(tx, id, authority, now);
    for (const rule of firstRules) await firewallRules.insert(tx, { orgId: id, ...rule, createdAt: now });
    await inherited?.fill(tx, id);
    if (by.ownerId !== null && by.ownerEmail !== null) {
      const owner = { email: by.ownerEmail, userId: by.ownerId, role: "owner" } as const;
      await memberships.insert(tx, { orgId: id, ...owner, createdAt: now });
    }
    await record(tx, {
      orgId: id,
      at: now,
      type: "organization.created",
      actor: by.actor,
      subject: `organization/${request.slug}`,
      after: { network: request.network, network6: request.network6 ?? null },
    });
    await tx.notify("auth", `organization ${id}`);
    return findOrganization(tx, { id }, by.ownerId === null ? null : "owner");
  });
  return created.catch((error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    // An import brings certificates.
    if (error.constraint.startsWith("certificates")) {
      throw new AppError("conflict", "A certificate of this network belongs to another organization here.", {
        cause: error,
        hint: `A network belongs to one organization. \`${brand.executable} admin org list\` lists them.`,
      });
    }
    throw new AppError("conflict", `There is an organization ${request.slug} already.`, { cause: error });
  });
}

/** Throws not_found, also for a deleted organization. `role`: as for organizationOf. */
export async function findOrganization(
  reader: Reader,
  org: Pick<Org, "id">,
  role: Organization["role"],
): Promise<Organization> {
  const sql = `SELECT ${organizationColumns} FROM organizations o WHERE o.id = $1 AND o.deleted_at IS NULL`;
  const row = await reader.get(sql, [org.id]);
  if (row === undefined) throw new AppError("not_found", notFound.organization);
  return organizationOf(row, role);
}

/** All organizations: id and slug. */
export function allOrganizations(reader: Reader): Promise<Org[]> {
  const sql = "SELECT id, slug FROM organizations WHERE deleted_at IS NULL";
  return queryAll(reader, organizations.pick("id", "slug"), sql);
}

/** For the admin commands. Throws not_found. */
export async function organizationBySlug(reader: Reader, slug: string): Promise<Org> {
  const sql = "SELECT id, slug FROM organizations WHERE slug = $1 AND deleted_at IS NULL";
  const org = await queryOne(reader, organizations.pick("id", "slug"), sql, [slug]);
  if (org !== undefined) return org;
  throw new AppError("not_found", `There is no organization ${slug}`, {
    hint: `\`${brand.executable} admin org list\` lists the organizations.`,
  });
}

/**
 * Deletes the organization: its slug becomes free and its tokens stop working. The caller has revoked its nodes with
 * their orders; nodes that registered since are revoked here.
 */
export async function deleteOrganization(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  actor: Actor,
): Promise<void> {
  const now = system.now();
  await db.write(async (tx) => {
    const deleted = await organizations.update(tx, { id: org.id, deletedAt: null }, { deletedAt: now });
    if (deleted === 0) throw new AppError("not_found", notFound.organization);
    // Ask for the role again, because the revocations before took a while. Not for the session: its machine may be revoked by now.
    await requireRole(tx, org.id, actor, "owner");
    await tx.run(
      `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = $3
       WHERE org_id = $1 AND state <> 'revoked'`,
      [org.id, now, organizationDeleted],
    );
    await registrationTokens.update(tx, { orgId: org.id, revokedAt: null }, { revokedAt: now });
    await memberships.delete(tx, { orgId: org.id });
    const subject = `organization/${org.slug}`;
    await record(tx, { orgId: org.id, at: now, type: "organization.deleted", actor, subject });
    await tx.notify("auth", `organization ${org.id}`);
    await tx.notify("organization", String(org.id));
  });
}
