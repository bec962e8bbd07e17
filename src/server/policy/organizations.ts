// Organizations: made with their two CAs, order key and first rules; changed, deleted. A deleted one leaves its rows, so
// that its nodes still hear that they are revoked.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { sealSecret } from "../../pki/secrets.ts";
import { Slug } from "../../protocol.ts";
import { insertAuthority, makeAuthorities, type Authority } from "../certificates/make-authorities.ts";
import { record, type Actor } from "../audit/record.ts";
import { firstRules } from "./firewall.ts";
import { checkRoom, overlayNetwork } from "./networks.ts";
import { ConfigOverrides } from "../../engine-config.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { raiseConfigVersion } from "../store/versions.ts";
import {
  NotUnique,
  numberOf,
  numberOrNull,
  textOf,
  textOrNull,
  truthOf,
  type Row,
  type Transaction,
} from "../store/database.ts";

const Name = v.pipe(v.string(), v.trim(), v.minLength(1), v.maxLength(100));
export const CertificateVersion = v.union([v.literal(1), v.literal("both"), v.literal(2)]);

export const OrganizationRequest = v.strictObject({
  slug: Slug,
  network: overlayNetwork(4),
  network6: v.optional(overlayNetwork(6)),
  name: v.optional(Name),
});
export type OrganizationRequest = v.InferOutput<typeof OrganizationRequest>;

export const OrganizationPatch = v.strictObject({
  name: v.optional(Name),
  /** One step at a time between 1, both and 2. */
  certificate_version: v.optional(CertificateVersion),
  /** Given once, where there was none. */
  network6: v.optional(overlayNetwork(6)),
  /** Seconds; null follows the engine. */
  alive_interval: v.optional(v.nullable(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(30)))),
  config_overrides: v.optional(ConfigOverrides),
  /** Whether a rotation of the CAs begins by itself in time. */
  ca_rotation_auto: v.optional(v.boolean()),
});
export type OrganizationPatch = v.InferOutput<typeof OrganizationPatch>;

export const Organization = v.object({
  id: v.number(),
  slug: v.string(),
  name: v.string(),
  network: v.string(),
  network6: v.nullable(v.string()),
  /** The caller's; null for staff who are no members. */
  role: v.nullable(v.picklist(["member", "admin", "owner"])),
  node_count: v.number(),
  config_version: v.number(),
  certificate_version: CertificateVersion,
  alive_interval: v.nullable(v.number()),
  config_overrides: v.record(v.string(), v.unknown()),
  ca_rotation_auto: v.boolean(),
  created_at: v.string(),
});
export type Organization = v.InferOutput<typeof Organization>;

type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;
type Org = Pick<OrganizationAccess, "id" | "slug">;

/** What the nodes' certificates hold. */
export type CertificateVersions = { certificateVersion: 1 | "both" | 2; network6: string | null };
export type VersionedOrganization = { id: number; network: string } & CertificateVersions;

/** Checks a change of versions and begins it in the same transaction (rollout/version-migration.ts). */
export type Migrate = (
  tx: Transaction,
  before: VersionedOrganization,
  after: CertificateVersions,
  now: number,
) => Promise<void>;

export function orderKeyContext(kid: string): string {
  return `order key ${kid}`;
}

const nodeCount = "(SELECT count(*) FROM nodes n WHERE n.org_id = o.id AND n.state <> 'revoked')";
export const organizationColumns = `o.id, o.slug, o.name, o.network, o.network6, o.last_version AS config_version,
  o.certificate_version, o.alive_interval, o.config_overrides, o.rotation_auto, o.created_at, ${nodeCount} AS node_count`;

export function organizationOf(row: Row, role: Organization["role"]): Organization {
  const version = textOf(row, "certificate_version");
  return {
    id: numberOf(row, "id"),
    slug: textOf(row, "slug"),
    name: textOf(row, "name"),
    network: textOf(row, "network"),
    network6: textOrNull(row, "network6"),
    role,
    node_count: numberOf(row, "node_count"),
    config_version: numberOf(row, "config_version"),
    certificate_version: version === "both" ? "both" : version === "2" ? 2 : 1,
    alive_interval: numberOrNull(row, "alive_interval"),
    config_overrides: v.parse(v.record(v.string(), v.unknown()), JSON.parse(textOf(row, "config_overrides"))),
    ca_rotation_auto: truthOf(row, "rotation_auto"),
    created_at: formatTime(numberOf(row, "created_at")),
  };
}

/** What an organization begins with that others have made before: its overlay CA, and its nodes. */
export type Inheritance = { overlay: Authority; fill(tx: Transaction, orgId: number): Promise<void> };

/** Makes the organization with a first owner, if one is named. Throws conflict where the slug is taken. */
export async function createOrganization(
  store: Store,
  request: OrganizationRequest & { certificateVersion?: v.InferOutput<typeof CertificateVersion> },
  by: { ownerId: number | null; ownerEmail: string | null; actor: Actor },
  inherited?: Inheritance,
): Promise<Organization> {
  const { db, system } = store;
  const now = system.now();
  checkRoom(request.network, request.network6);
  const made = await makeAuthorities(store, request.slug, now);
  const authorities = made.map((each) => (each.kind === "overlay" ? (inherited?.overlay ?? each) : each));
  const { makeSigningKey, publicHalf } = await import("../../pki/tokens.ts");
  const orderKey = await makeSigningKey(makeOpaqueToken(system.random).slice(0, 16));
  const orderSealed = sealSecret(store.secretKey, JSON.stringify(orderKey), orderKeyContext(orderKey.kid));
  const order = { sealed: orderSealed, publicHalf: JSON.stringify(publicHalf(orderKey)) };
  const created = db.write(async (tx) => {
    const id = await insertOrganization(tx, request, order, now);
    for (const each of authorities) await insertAuthority(tx, id, each, now);
    await insertFirstRules(tx, id, now);
    await inherited?.fill(tx, id);
    if (by.ownerId !== null && by.ownerEmail !== null) {
      await tx.run(
        "INSERT INTO memberships (org_id, email, user_id, role, created_at) VALUES ($1, $2, $3, 'owner', $4)",
        [id, by.ownerEmail, by.ownerId, now],
      );
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
    // An import brings certificates along.
    if (error.constraint.startsWith("certificates")) {
      throw new AppError("conflict", "A certificate of this network belongs to another organization here.", {
        cause: error,
        hint: `A network is one organization's; \`${brand.executable} admin org list\` shows them.`,
      });
    }
    throw new AppError("conflict", `There is an organization ${request.slug} already.`, { cause: error });
  });
}

async function insertOrganization(
  tx: Transaction,
  request: OrganizationRequest & { certificateVersion?: v.InferOutput<typeof CertificateVersion> },
  order: { sealed: string; publicHalf: string },
  now: number,
): Promise<number> {
  const row = await tx.get(
    `INSERT INTO organizations
       (slug, name, network, network6, certificate_version, order_key_sealed, order_public, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id`,
    [
      request.slug,
      request.name ?? request.slug,
      request.network,
      request.network6 ?? null,
      String(request.certificateVersion ?? 1),
      order.sealed,
      order.publicHalf,
      now,
    ],
  );
  return numberOf(row ?? {}, "id");
}

async function insertFirstRules(tx: Transaction, orgId: number, now: number): Promise<void> {
  for (const rule of firstRules) {
    await tx.run(
      `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, description, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [
        orgId,
        rule.direction,
        rule.protocol,
        rule.ports,
        JSON.stringify(rule.peer),
        JSON.stringify(rule.target),
        rule.description,
        now,
      ],
    );
  }
}

export async function findOrganization(
  reader: Pick<Transaction, "get">,
  org: Pick<Org, "id">,
  role: Organization["role"],
): Promise<Organization> {
  const row = await reader.get(
    `SELECT ${organizationColumns} FROM organizations o WHERE o.id = $1 AND o.deleted_at IS NULL`,
    [org.id],
  );
  if (row === undefined) throw new AppError("not_found", "There is no such organization.");
  return organizationOf(row, role);
}

/** For the admin commands, which have no caller. */
export async function organizationBySlug(reader: Pick<Transaction, "get">, slug: string): Promise<Org> {
  const row = await reader.get("SELECT id, slug FROM organizations WHERE slug = $1 AND deleted_at IS NULL", [
    slug,
  ]);
  if (row === undefined) {
    throw new AppError("not_found", `There is no organization ${slug}`, {
      hint: `\`${brand.executable} admin org list\` shows those that there are.`,
    });
  }
  return { id: numberOf(row, "id"), slug: textOf(row, "slug") };
}

export async function patchOrganization(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org & { role: Organization["role"] },
  patch: OrganizationPatch,
  actor: Actor,
  migrate: Migrate,
): Promise<Organization> {
  return db.write(async (tx) => {
    const shown = await findOrganization(tx, org, org.role);
    const before = changeable(shown);
    const after = changed(before, patch);
    const at = { id: org.id, network: shown.network, ...versionsOf(before) };
    await migrate(tx, at, versionsOf(after), system.now());
    await tx.run(
      `UPDATE organizations SET name = $2, alive_interval = $3, config_overrides = $4, rotation_auto = $5,
         certificate_version = $6, network6 = $7 WHERE id = $1`,
      [
        org.id,
        after.name,
        after.alive_interval,
        JSON.stringify(after.config_overrides),
        after.ca_rotation_auto ? 1 : 0,
        String(after.certificate_version),
        after.network6,
      ],
    );
    // The name and the rotation are ours alone; the rest stands in the nodes' configuration.
    const inConfig = ({ alive_interval, config_overrides }: typeof before) =>
      JSON.stringify([alive_interval, config_overrides]);
    if (inConfig(after) !== inConfig(before)) await raiseConfigVersion(tx, org.id);
    const subject = `organization/${org.slug}`;
    await record(tx, {
      orgId: org.id,
      at: system.now(),
      type: "organization.updated",
      actor,
      subject,
      before,
      after,
    });
    return findOrganization(tx, org, org.role);
  });
}

/** What a request may change. */
function changeable(org: Organization) {
  const { name, certificate_version, network6, alive_interval, config_overrides, ca_rotation_auto } = org;
  return { name, certificate_version, network6, alive_interval, config_overrides, ca_rotation_auto };
}

function changed(before: ReturnType<typeof changeable>, patch: OrganizationPatch): typeof before {
  return {
    name: patch.name ?? before.name,
    certificate_version: patch.certificate_version ?? before.certificate_version,
    network6: patch.network6 ?? before.network6,
    alive_interval: patch.alive_interval === undefined ? before.alive_interval : patch.alive_interval,
    config_overrides: patch.config_overrides ?? before.config_overrides,
    ca_rotation_auto: patch.ca_rotation_auto ?? before.ca_rotation_auto,
  };
}

function versionsOf(org: ReturnType<typeof changeable>): CertificateVersions {
  return { certificateVersion: org.certificate_version, network6: org.network6 };
}

/**
 * The organization goes, its slug is free, its tokens no longer open anything. Its nodes are revoked before, each with
 * its order; one that came in between goes with it.
 */
export async function deleteOrganization(
  { db, system }: Pick<ServerOptions, "db" | "system">,
  org: Org,
  actor: Actor,
): Promise<void> {
  const now = system.now();
  await db.write(async (tx) => {
    const deleted = await tx.run(
      "UPDATE organizations SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL",
      [org.id, now],
    );
    if (deleted === 0) throw new AppError("not_found", "There is no such organization.");
    await tx.run(
      `UPDATE nodes SET state = 'revoked', revoked_at = $2, revoke_reason = 'the organization was deleted'
       WHERE org_id = $1 AND state <> 'revoked'`,
      [org.id, now],
    );
    await tx.run("UPDATE registration_tokens SET revoked_at = $2 WHERE org_id = $1 AND revoked_at IS NULL", [
      org.id,
      now,
    ]);
    await tx.run("DELETE FROM memberships WHERE org_id = $1", [org.id]);
    const subject = `organization/${org.slug}`;
    await record(tx, { orgId: org.id, at: now, type: "organization.deleted", actor, subject });
    await tx.notify("auth", `organization ${org.id}`);
    await tx.notify("organization", String(org.id));
  });
}

/** All of them, for the admin commands. */
export async function listOrganizations(reader: Pick<Transaction, "all">): Promise<Organization[]> {
  const rows = await reader.all(
    `SELECT ${organizationColumns} FROM organizations o WHERE o.deleted_at IS NULL ORDER BY o.id`,
  );
  return rows.map((row) => organizationOf(row, null));
}
