// Routes for organizations.

import * as v from "valibot";
import { organizationDeleted } from "../../protocol/orders.ts";
import { paths } from "../../protocol/paths.ts";
import { actorOf } from "../audit/record.ts";
import { fitPage, listReply, pageOf, searchPattern } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import { Email, findOwner } from "../people/people.ts";
import {
  CertificateVersion,
  ClosedOrganization,
  createOrganization,
  deleteOrganization,
  findOrganization,
  Organization,
  organizationColumns,
  organizationOf,
  OrganizationPatch,
  OrganizationRequest,
} from "../policy/organizations.ts";
import { patchOrganization } from "../policy/patch-organization.ts";
import { revokeAllNodes } from "../nodes/revoke-many.ts";
import { adds } from "../retention/budget.ts";
import { created, noContent } from "../http/reply.ts";
import {
  body,
  nothing,
  organizationRoute,
  query,
  route,
  type Call,
  type Fresh,
  type OrganizationCall,
  type Reply,
  type Route,
} from "../http/route.ts";
import type { Services } from "../services.ts";
import { counted } from "./rows.ts";
import { migrateVersions } from "../rollout/version-migration.ts";
import { doStaffNeedFactor, hasProven } from "../people/step-up.ts";
import { computed, queryOne, truth, wordOrNull } from "../store/table.ts";

export const NewOrganization = v.strictObject({
  ...OrganizationRequest.entries,
  owner: v.optional(Email),
  /** Confirms the user who becomes owner, if an invitation created this user. */
  owner_id: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
  certificate_version: v.optional(CertificateVersion),
});

/** A setting decides over machines or people; a name does not. */
const patchAsks: Fresh<v.InferOutput<typeof OrganizationPatch>> = {
  name: false,
  certificate_version: true,
  network6: true,
  alive_interval: true,
  config_overrides: true,
  ca_rotation_auto: true,
  names_to_all: true,
  name_suffix: true,
  path_reports: true,
  second_factor_required: true,
  revoke_leaver_nodes: true,
  revoke_unproven_nodes: true,
  device_codes: true,
  self_enrollment: true,
  reauthenticate_days: true,
  node_approval: true,
};

export function organizationRoutes(services: Services): Route[] {
  return [...allRoutes(services), ...ownRoutes(services)];
}

function allRoutes(services: Services): Route[] {
  return [
    route({
      method: "GET",
      path: paths.organizations,
      access: "user",
      name: "org_list",
      summary: "The caller's organizations; for staff, all organizations",
      takes: query(ListQuery),
      answers: {
        200: {
          description:
            "Organizations. Of those that require a second factor which the caller has not proven, only `id` and `slug`",
          schema: v.array(v.union([Organization, ClosedOrganization])),
        },
      },
      handle: (call, input) => list(services, call, input),
    }),
    route({
      method: "POST",
      path: paths.organizations,
      access: "staff",
      name: "org_create",
      fresh: false,
      summary:
        "Create an organization with its two CAs. The caller becomes its owner, or the user with the e-mail address `owner`",
      takes: body(NewOrganization),
      answers: { 201: { description: "The organization", schema: Organization } },
      errors: ["conflict", "not_found", "owner_unconfirmed"],
      async handle(call, { owner, owner_id, certificate_version, ...request }) {
        const by = { ...(await ownerOf(services, call, owner, owner_id)), actor: actorOf(call) };
        const version = certificate_version === undefined ? {} : { certificateVersion: certificate_version };
        return created(await createOrganization(services, { ...request, ...version }, by));
      },
    }),
  ];
}

function ownRoutes(services: Services): Route[] {
  const { db } = services;
  return [
    organizationRoute({
      method: "GET",
      path: "",
      access: "member",
      name: "org_retrieve",
      summary: "One organization",
      takes: nothing,
      answers: { 200: { description: "The organization", schema: Organization } },
      handle: async (call) => ({ body: await findOrganization(db, call.org, roleOf(call)) }),
    }),
    organizationRoute({
      method: "PATCH",
      path: "",
      access: "admin",
      name: "org_partial_update",
      fresh: patchAsks,
      summary: "Change an organization",
      grows: async ({ name, config_overrides }, { org }) =>
        adds(await findOrganization(db, org, null), { name, config_overrides }),
      takes: body(OrganizationPatch),
      answers: { 200: { description: "The organization", schema: Organization } },
      errors: ["conflict", "too_many_certificates"],
      handle: async (call, input) => ({
        body: await patchOrganization(
          services,
          { ...call.org, role: roleOf(call) },
          input,
          actorOf(call),
          migrateVersions,
        ),
      }),
    }),
    organizationRoute({
      method: "DELETE",
      path: "",
      access: "owner",
      fresh: true,
      name: "org_destroy",
      summary: "Delete an organization and revoke all its nodes",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      async handle(call) {
        const { org } = call;
        await revokeAllNodes(services, org, actorOf(call), organizationDeleted);
        await deleteOrganization(services, call.org, actorOf(call));
        return noContent;
      },
    }),
  ];
}

/** Null for staff who are not members, and for the operator. */
function roleOf({ caller, org }: OrganizationCall): Organization["role"] {
  return org.visiting || caller.kind === "operator" ? null : org.role;
}

/** The owner of a new organization: the named user, else the caller. The operator may create one without. */
async function ownerOf(
  { db }: Services,
  { caller }: Call,
  email: string | undefined,
  id: number | undefined,
) {
  if (email !== undefined) {
    const owner = await findOwner(db, { email, id });
    return { ownerId: owner.id, ownerEmail: owner.email };
  }
  if (caller.kind === "person") return { ownerId: caller.userId, ownerEmail: caller.email };
  return { ownerId: null, ownerEmail: null };
}

/** `role`: null for staff who are not members. */
const membership = computed({ role: wordOrNull(["member", "admin", "owner"]), isClosed: truth(0) });

/** Which organizations are closed to the caller until a second factor is proven: as `checkFactor` in people/access.ts. */
async function closedTo(
  db: Services["db"],
  { caller }: Call,
): Promise<{ members: number; visitors: number }> {
  if (caller.kind !== "person" || (await hasProven(db, caller))) return { members: 0, visitors: 0 };
  return { members: 1, visitors: (await doStaffNeedFactor(db)) ? 1 : 0 };
}

async function list({ db, publicUrl }: Services, call: Call, input: ListQuery): Promise<Reply> {
  const { caller } = call;
  const userId = caller.kind === "person" ? caller.userId : 0;
  const serviceOrg = caller.kind === "service" ? caller.orgId : 0;
  const all = caller.kind === "operator" || (caller.kind === "person" && caller.isStaff) ? 1 : 0;
  const closed = await closedTo(db, call);
  const isClosed = "($5 = 1 AND o.second_factor = 1) OR ($6 = 1 AND m.role IS NULL)";
  const mine = `FROM organizations o LEFT JOIN memberships m ON m.org_id = o.id AND m.user_id = $1
    WHERE o.deleted_at IS NULL AND ($2 = 1 OR m.role IS NOT NULL OR o.id = $3)
    AND (o.slug LIKE $4 ESCAPE '!' OR (lower(o.name) LIKE $4 ESCAPE '!' AND NOT (${isClosed})))`;
  const params = [userId, all, serviceOrg, searchPattern(input), closed.members, closed.visitors];
  const counting = `SELECT count(*) AS total, coalesce(max(octet_length(o.config_overrides)), 0) AS widest ${mine}`;
  const { total, widest } = (await queryOne(db, counted, counting, params)) ?? { total: 0, widest: 0 };
  const query = fitPage(input, widest);
  const { limit, offset } = pageOf(query);
  const rows = await db.all(
    `SELECT ${organizationColumns}, m.role AS role, CASE WHEN ${isClosed} THEN 1 ELSE 0 END AS is_closed
     ${mine} ORDER BY o.id LIMIT $7 OFFSET $8`,
    [...params, limit, offset],
  );
  const items = rows.map((row) => {
    const { role, isClosed: isShut } = membership.parse(row);
    const shown = organizationOf(row, caller.kind === "service" ? caller.role : role);
    return isShut ? { id: shown.id, slug: shown.slug } : shown;
  });
  return listReply(call, publicUrl, { items, total, query });
}
