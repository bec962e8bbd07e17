// Changes of an organization's settings, each with what must follow from it.

import * as v from "valibot";
import { invalidField } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { writeAsAdmin } from "../require-role.ts";
import type { Transaction } from "../store/database.ts";
import { nodeGroups } from "../store/tables/nodes.ts";
import { organizations } from "../store/tables/organizations.ts";
import { paths } from "../store/tables/paths.ts";
import { notifyNodesWithDeadline, raiseConfigVersion, raiseNamesVersion } from "../store/versions.ts";
import { checkNameSuffix } from "./name-suffix.ts";
import { findOrganization, settingsRow, type CertificateVersions, type Migrate } from "./organizations.ts";
import { organizationSettings, type Organization, type OrganizationPatch } from "../../api/organizations.ts";
import { groupsOfRules } from "../../api/webhooks/alarm-rules.ts";
import { sent } from "../../protocol/settings.ts";

/** The fields that a request may change: none but these are compared, written and recorded. */
const Changeable = v.object(sent(organizationSettings));
type Changeable = v.InferOutput<typeof Changeable>;
type IsChanged = (field: keyof Changeable) => boolean;
/** Given by the caller, because it is of a higher floor (users/factors/step-up.ts). */
type RequireOwnFactor = (tx: Transaction, actor: Actor) => Promise<void>;
/** Given by the caller, because it is of a higher floor (rollout/refuse-beside.ts). */
type RefuseBesideRollout = (tx: Transaction, org: { id: number; slug: string }) => Promise<void>;

/**
 * Changes settings, with what follows from each, in one transaction. Returns the organization afterwards. Throws
 * validation_failed, conflict, or what the given rules throw.
 */
export async function patchOrganization(
  { db, system, publicUrl }: Pick<ServerOptions, "db" | "system" | "publicUrl">,
  org: Pick<OrganizationAccess, "id" | "slug"> & { role: Organization["role"] },
  patch: OrganizationPatch,
  actor: Actor,
  {
    migrate,
    requireOwnFactor,
    refuseBesideRollout,
  }: {
    migrate: Migrate;
    requireOwnFactor: RequireOwnFactor;
    refuseBesideRollout: RefuseBesideRollout;
  },
): Promise<Organization> {
  return writeAsAdmin(db, org.id, actor, async (tx) => {
    const shown = await findOrganization(tx, org, org.role);
    const before = v.parse(Changeable, shown);
    const after = v.parse(Changeable, { ...before, ...patch });
    const isChanged: IsChanged = (field) => JSON.stringify(after[field]) !== JSON.stringify(before[field]);
    const versionsBefore = { id: org.id, network: shown.network, ...versionsOf(before) };
    // Checks a change of certificate versions, and starts it (rollout/version-migration.ts).
    await migrate(tx, versionsBefore, versionsOf(after), system.now());
    // Other overrides may restart engines that a rollout watches, and would reach all nodes without a ring.
    if (isChanged("config_overrides")) await refuseBesideRollout(tx, org);
    if (isChanged("second_factor_required") && after.second_factor_required)
      await requireOwnFactor(tx, actor);
    if (isChanged("name_suffix") && after.name_suffix !== null)
      await checkNameSuffix(tx, org.id, after.name_suffix, { publicUrl });
    const groupsBefore = new Set(groupsOfRules(before.alarm_rules));
    for (const group of groupsOfRules(after.alarm_rules))
      if (!groupsBefore.has(group)) await requireGroup(tx, org.id, group);
    await organizations.update(
      tx,
      { id: org.id },
      {
        ...settingsRow(after),
        // A new time counts from now: it cuts off no node at once.
        ...(isChanged("reauthenticate_days") ? { reauthenticateFrom: system.now() } : {}),
        ...(isChanged("notify_away_minutes") ? { notifyAwayFrom: system.now() } : {}),
        ...(isChanged("revoke_unproven_nodes") ? { revokeUnprovenFrom: system.now() } : {}),
      },
    );
    await publishSettings(tx, org.id, isChanged);
    if (!after.path_reports) await paths.delete(tx, { orgId: org.id });
    if (after.notify_away_minutes === null && isChanged("notify_away_minutes")) await forgetAway(tx, org.id);
    const subject = `organization/${org.slug}`;
    const at = system.now();
    await record(tx, { orgId: org.id, at, type: "organization.updated", actor, subject, before, after });
    return findOrganization(tx, org, org.role);
  });
}

/** Sends changed settings to nodes and replicas. Other settings are not in the nodes' configurations. */
async function publishSettings(tx: Transaction, orgId: number, isChanged: IsChanged): Promise<void> {
  const inFiles = ["alive_interval", "config_overrides", "flows", "port_mapping"] as const;
  if (inFiles.some(isChanged)) await raiseConfigVersion(tx, orgId);
  // The version: a replica that has not heard of the change yet must not send a node the former suffix again.
  if (isChanged("name_suffix")) await raiseNamesVersion(tx, orgId);
  else if (isChanged("names_to_all")) await tx.notify("names", String(orgId));
  if (isChanged("path_reports") || isChanged("flows")) await tx.notify("organization", String(orgId));
  if (isChanged("reauthenticate_days")) await notifyNodesWithDeadline(tx, orgId);
}

/** A rule of alarms for a group that does not exist would watch nothing, without a word. */
async function requireGroup(tx: Transaction, orgId: number, name: string): Promise<void> {
  if ((await nodeGroups.find(tx, { orgId, name })) !== undefined) return;
  throw invalidField("alarm_rules", `There is no group ${name}: create it first, or name another one.`);
}

/** Drops the note of absences: no event says later that these nodes are back. */
const forgetAway = (tx: Transaction, orgId: number) =>
  tx.run("UPDATE nodes SET away_since = NULL WHERE org_id = $1 AND away_since IS NOT NULL", [orgId]);

function versionsOf(org: Changeable): CertificateVersions {
  return { certificateVersion: org.certificate_version, network6: org.network6 };
}
