// Lets a rule name a group of a provider of identities that the policy did not name before.

import {
  providerGroupOf,
  readProviderGroups,
  readProviders,
  requireFewProviderGroups,
} from "../policy/group-people.ts";
import { providerFault } from "../policy/resolve.ts";
import { AppError } from "../../errors.ts";
import type { Transaction } from "../store/database.ts";
import { providerGroups } from "../store/tables/provider-groups.ts";
import { regroupOwned } from "./owner-groups.ts";

/** Returns the group of its users' nodes. Throws validation_failed if it is not clear at which provider it is. */
export async function nameProviderGroup(
  tx: Transaction,
  orgId: number,
  name: string,
  now: number,
): Promise<string> {
  const providers = await readProviders(tx, orgId);
  const group = providerGroupOf(providers, name);
  if (group === undefined) throw new AppError("validation_failed", providerFault(providers));
  const known = await readProviderGroups(tx, orgId);
  if (known.some(({ people }) => people === group.people)) return group.people;
  requireFewProviderGroups(known.length + 1);
  await providerGroups.insert(tx, { ...group, orgId, createdAt: now });
  await regroupOwned(tx, orgId, now);
  return group.people;
}
