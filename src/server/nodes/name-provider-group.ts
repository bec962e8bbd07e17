// Lets a rule name a group of a provider of identities for the first time, and removes groups that the policy names
// no longer: a policy may name a limited number.

import { providerGroupOf } from "../policy/provider-words.ts";
import { readProviderGroups, readProviders, requireFewProviderGroups } from "../policy/group-users.ts";
import { providerFault } from "../policy/resolve.ts";
import { AppError } from "../../base/errors.ts";
import type { Transaction } from "../store/database.ts";
import { computed, queryAll, text } from "../store/table.ts";
import { providerGroups } from "../store/tables/providers.ts";
import { regroupOwned } from "./owner-groups.ts";

/** Returns the group of its users' nodes. Throws validation_failed if several providers could be meant. */
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

/** $1: the organization. `replace(text, p, '') <> text`: the text contains p. LIKE would take `_` and `%` in it for wildcards. */
const unnamed = `SELECT p.people FROM provider_groups p WHERE p.org_id = $1
  AND NOT EXISTS (SELECT 1 FROM firewall_rules r WHERE r.org_id = $1
    AND (replace(r.peer, p.people, '') <> r.peer OR replace(r.target, p.people, '') <> r.target))
  AND NOT EXISTS (SELECT 1 FROM group_people g WHERE g.org_id = $1 AND g.people = p.people)
  AND NOT EXISTS (SELECT 1 FROM policies o WHERE o.org_id = $1 AND replace(o.tests, p.people, '') <> o.tests)`;

/** The groups that no rule, test or group of nodes names any more: the nodes of their users leave them. */
export async function forgetProviderGroups(tx: Transaction, orgId: number, now: number): Promise<void> {
  const found = await queryAll(tx, computed({ people: text() }), unnamed, [orgId]);
  if (found.length === 0) return;
  for (const { people } of found) await providerGroups.delete(tx, { orgId, people });
  await regroupOwned(tx, orgId, now);
}
