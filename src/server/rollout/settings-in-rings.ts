// Engine settings of an organization that go through rings. While the rollout is open, config.yml of the nodes that were told
// has them beside the former ones (config/config.ts); at its end they are the organization's, or are sent no longer.

import { AppError } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Transaction } from "../store/database.ts";
import { organizations } from "../store/tables/organizations.ts";
import type { RolloutRow } from "../store/tables/rollouts.ts";
import { raiseConfigVersion } from "../store/versions.ts";

type Wanted = Pick<RolloutRow, "orgId" | "agent" | "engine" | "groups" | "settings">;

/** For a row and for events: nothing, if it is of versions. */
export const whichSettings = ({ settings }: Pick<RolloutRow, "settings">) =>
  settings === null ? {} : { settings };

/** In the transaction that begins it: from then on, nodes may have them. Throws validation_failed or conflict. */
export async function beginSettings(tx: Transaction, wanted: Wanted): Promise<void> {
  const { orgId, agent, engine, groups, settings } = wanted;
  if (settings === null) return;
  if (agent !== null || engine !== null || groups.length > 0)
    throw new AppError("validation_failed", "Settings go alone, and to all nodes of the organization.", {
      errors: { settings: ["Leave out versions and groups."] },
    });
  const org = await organizations.find(tx, { id: orgId });
  if (Bun.deepEquals(org?.configOverrides, settings))
    throw new AppError("conflict", "The organization has these settings already.");
  await raiseConfigVersion(tx, orgId);
}

/** Those that were tried become the organization's, also for nodes that were left out; else every node goes back. */
export async function endSettings(
  tx: Transaction,
  { orgId, settings }: Pick<RolloutRow, "orgId" | "settings">,
  state: RolloutRow["state"],
  { actor, now }: { actor: Actor; now: number },
): Promise<void> {
  if (settings === null) return;
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
