// Changes of an organization's settings, each with what must follow from it.

import * as v from "valibot";
import { record, type Actor } from "../audit/record.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { organizations } from "../store/tables/organizations.ts";
import { paths } from "../store/tables/paths.ts";
import { notifyTold, raiseConfigVersion, raiseNamesVersion } from "../store/versions.ts";
import { checkNameSuffix } from "./name-suffix.ts";
import { findOrganization, type CertificateVersions, type Migrate } from "./organizations.ts";
import { Organization, type OrganizationPatch } from "../../api/organizations.ts";

/** The fields that a request may change: none but these are compared, written and recorded. */
const Changeable = v.pick(Organization, [
  "name",
  "certificate_version",
  "network6",
  "alive_interval",
  "config_overrides",
  "ca_rotation_auto",
  "names_to_all",
  "name_suffix",
  "path_reports",
  "second_factor_required",
  "revoke_leaver_nodes",
  "revoke_unproven_nodes",
  "node_approval",
  "device_codes",
  "self_enrollment",
  "reauthenticate_days",
]);
type Changeable = v.InferOutput<typeof Changeable>;

export async function patchOrganization(
  { db, system, publicUrl }: Pick<ServerOptions, "db" | "system" | "publicUrl">,
  org: Pick<OrganizationAccess, "id" | "slug"> & { role: Organization["role"] },
  patch: OrganizationPatch,
  actor: Actor,
  migrate: Migrate,
): Promise<Organization> {
  return db.writeFor({ org: org.id }, async (tx) => {
    const shown = await findOrganization(tx, org, org.role);
    const before = v.parse(Changeable, shown);
    const after = v.parse(Changeable, { ...before, ...patch });
    const present = { id: org.id, network: shown.network, ...versionsOf(before) };
    await migrate(tx, present, versionsOf(after), system.now());
    const isNewSuffix = after.name_suffix !== before.name_suffix;
    if (isNewSuffix && after.name_suffix !== null)
      await checkNameSuffix(tx, org.id, after.name_suffix, { publicUrl });
    await organizations.update(
      tx,
      { id: org.id },
      {
        name: after.name,
        aliveInterval: after.alive_interval,
        configOverrides: v.parse(v.record(v.string(), v.any()), after.config_overrides),
        rotationAuto: after.ca_rotation_auto,
        namesToAll: after.names_to_all,
        nameSuffix: after.name_suffix,
        pathReports: after.path_reports,
        secondFactor: after.second_factor_required,
        revokeLeaverNodes: after.revoke_leaver_nodes,
        revokeUnprovenNodes: after.revoke_unproven_nodes,
        nodeApproval: after.node_approval,
        deviceCodes: after.device_codes,
        selfEnrollment: after.self_enrollment,
        reauthenticateDays: after.reauthenticate_days,
        // A new period starts now: it cuts off no node at once.
        ...(after.reauthenticate_days === before.reauthenticate_days
          ? {}
          : { reauthenticateFrom: system.now() }),
        ...(after.revoke_unproven_nodes === before.revoke_unproven_nodes
          ? {}
          : { revokeUnprovenFrom: system.now() }),
        ...versionsOf(after),
      },
    );
    // Name and rotation are not in the nodes' configurations.
    const inConfig = ({ alive_interval, config_overrides }: Changeable) =>
      JSON.stringify([alive_interval, config_overrides]);
    if (inConfig(after) !== inConfig(before)) await raiseConfigVersion(tx, org.id);
    // The version: a replica that has not heard of it yet must not tell a node the former suffix again.
    if (isNewSuffix) await raiseNamesVersion(tx, org.id);
    else if (after.names_to_all !== before.names_to_all) await tx.notify("names", String(org.id));
    if (after.path_reports !== before.path_reports) await tx.notify("organization", String(org.id));
    if (after.reauthenticate_days !== before.reauthenticate_days) await notifyTold(tx, org.id);
    if (!after.path_reports) await paths.delete(tx, { orgId: org.id });
    const subject = `organization/${org.slug}`;
    const at = system.now();
    await record(tx, { orgId: org.id, at, type: "organization.updated", actor, subject, before, after });
    return findOrganization(tx, org, org.role);
  });
}

function versionsOf(org: Changeable): CertificateVersions {
  return { certificateVersion: org.certificate_version, network6: org.network6 };
}
