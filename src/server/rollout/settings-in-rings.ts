// Engine settings of an organization that go through rings. While the rollout is open, nodes that were told to change get them in
// config.yml, beside the organization's (config/config.ts). If it passes they become the organization's, else they are dropped.

import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { brand } from "../../brand.ts";
import { record, type Actor } from "../audit/record.ts";
import { portWithOverrides } from "../config/config.ts";
import type { Transaction } from "../store/database.ts";
import { queryAll } from "../store/table.ts";
import { hubIs, nodes } from "../store/tables/nodes.ts";
import { organizations, type OrganizationRow } from "../store/tables/organizations.ts";
import type { RolloutRow } from "../store/tables/rollouts.ts";
import { endOrders } from "./node-orders.ts";
import { raiseConfigVersion } from "../store/versions.ts";

type Wanted = Pick<RolloutRow, "orgId" | "agent" | "engine" | "groups" | "settings">;

/** The field `settings` for rows and events; no field for a rollout of versions. */
export const settingsField = ({ settings }: Pick<RolloutRow, "settings">) =>
  settings === null ? {} : { settings };

/** In the transaction that creates the rollout. Does nothing without settings. Throws validation_failed or conflict. */
export async function beginSettings(tx: Transaction, wanted: Wanted): Promise<void> {
  const { orgId, agent, engine, groups, settings } = wanted;
  if (settings === null) return;
  if (agent !== null || engine !== null || groups.length > 0)
    throw new AppError("validation_failed", "Settings go alone, and to all nodes of the organization.", {
      errors: { settings: ["Leave out versions and groups."] },
    });
  const org = await organizations.find(tx, { id: orgId });
  if (org === undefined || Bun.deepEquals(org.configOverrides, settings))
    throw new AppError("conflict", "The organization has these settings already.");
  await refuseMovedHubs(tx, org, settings);
  await raiseConfigVersion(tx, orgId);
}

const hubPick = nodes.pick(
  "name",
  "listenPort",
  "externalPort",
  "isLighthouse",
  "isRelay",
  "publicIp",
  "configOverrides",
);

/** Nodes with the former and with the new settings must find a lighthouse or relay at the same port. Throws conflict. */
async function refuseMovedHubs(
  tx: Transaction,
  { id, slug, configOverrides }: Pick<OrganizationRow, "id" | "slug" | "configOverrides">,
  settings: OrganizationRow["configOverrides"],
): Promise<void> {
  const sql = `SELECT ${hubPick.select()} FROM nodes
    WHERE org_id = $1 AND state = 'active' AND (${hubIs()}) AND public_ip IS NOT NULL ORDER BY id`;
  for (const hub of await queryAll(tx, hubPick, sql, [id])) {
    const [from, to] = [portWithOverrides(hub, configOverrides), portWithOverrides(hub, settings)];
    if (from === to) continue;
    const why = `Other nodes look for ${hub.name} at its UDP port: settings in rings cannot change it from ${from} to ${to}.`;
    const line = `${brand.executable} admin node update ${slug} ${quoteWord(hub.name)} --external-port N`;
    throw new AppError("conflict", why, {
      hint: `Leave out \`listen.port\`. \`${line}\` changes the port of this node, and tells the others.`,
    });
  }
}

/** In the transaction that ends the rollout. If it passed, all nodes get the settings, also those that were left out. */
export async function endSettings(
  tx: Transaction,
  row: RolloutRow,
  state: RolloutRow["state"],
  { actor, now }: { actor: Actor; now: number },
): Promise<void> {
  const { orgId, settings } = row;
  if (settings === null) return;
  // An order that is left would reach a machine that registers again as this node, which would wait for settings that never come.
  await endOrders(tx, row);
  const org = await organizations.find(tx, { id: orgId });
  if (state === "passed" && org !== undefined) {
    await organizations.update(tx, { id: orgId }, { configOverrides: settings });
    await record(tx, {
      orgId,
      at: now,
      type: "organization.updated",
      actor,
      subject: `organization/${org.slug}`,
      before: { config_overrides: org.configOverrides },
      after: { config_overrides: settings },
    });
  }
  await raiseConfigVersion(tx, orgId);
}
