// Carries deleted and changed firewall rules, and newer seals, into the restored database (`tx`) from the replaced one (`old`).

import * as v from "valibot";
import type { SignedSeal } from "../../protocol/seals/seal.ts";
import { newestOf } from "../config/next-seal.ts";
import { insertGroups } from "../policy/groups.ts";
import { Peer } from "../../api/rules.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { isUsersGroup, providerOfGroup, userOfGroup } from "../../protocol/users-groups.ts";
import { firewallRules, policies, readSeals } from "../store/tables/policies.ts";
import { identityProviders } from "../store/tables/providers.ts";
import { users } from "../store/tables/users.ts";
import type { Carried } from "./carried.ts";

/**
 * Rules only permit, so one whose id the replaced database lacks is deleted. A rule that changed gets its newest form: which of two
 * forms permits less is not decidable. An edit in the console stores a rule anew under its id.
 */
export async function carryRules(old: Reader, tx: Transaction, orgId: number, now: number, carried: Carried) {
  const unseen = new Map((await firewallRules.all(old, { orgId })).map((row) => [row.id, row]));
  for (const { id } of await firewallRules.all(tx, { orgId })) {
    const replaced = unseen.get(id);
    unseen.delete(id);
    const groups = replaced === undefined ? [] : groupsIn(replaced);
    if (replaced === undefined || (await namesLostUser(tx, groups))) {
      await firewallRules.delete(tx, { orgId, id });
      carried.deleted_rules++;
      continue;
    }
    // The changed rule may name groups that the backup does not have; groups of users have no row.
    await insertGroups(
      tx,
      orgId,
      groups.filter((group) => !isUsersGroup(group)),
      now,
    );
    await firewallRules.update(tx, { orgId, id }, replaced);
  }
  // Rules that the backup lacks are not carried: the administrator decides which to create again.
  carried.lost_rules += unseen.size;
}

const groupsIn = ({ peer, target }: { peer: unknown; target: unknown }): string[] =>
  [peer, target]
    .map((value) => v.parse(Peer, value))
    .flatMap((side) => ("group" in side ? [side.group] : []));

/** A user or provider that the backup lacks has no row any more, so the rule would permit nothing. */
async function namesLostUser(tx: Transaction, groups: readonly string[]): Promise<boolean> {
  for (const id of groups.map(userOfGroup))
    if (id !== undefined && (await users.find(tx, { id })) === undefined) return true;
  for (const id of groups.map(providerOfGroup))
    if (id !== undefined && (await identityProviders.find(tx, { id })) === undefined) return true;
  return false;
}

/**
 * An application that waited for its confirmation at the backup stays: taking it back could bring back rules that were
 * deleted since. Plans of either database are outdated.
 */
export async function outdatePlans(old: Reader, tx: Transaction, orgId: number): Promise<void> {
  const [restored, replaced] = [await policies.find(tx, { orgId }), await policies.find(old, { orgId })];
  if (restored === undefined) return;
  const version = Math.max(restored.version, replaced?.version ?? 0) + 1;
  await policies.update(tx, { orgId }, { version, unconfirmedUntil: null, undo: null });
}

/**
 * Nodes keep the newest seal that they know, and refuse older ones. So what signers published after the backup stays.
 * Returns whether there is such a seal.
 */
export async function carrySeals(old: Reader, tx: Transaction, orgId: number): Promise<boolean> {
  const [restored, published] = [await readSeals(tx, orgId), await readSeals(old, orgId)];
  const numberOf = (seals: readonly SignedSeal[]) => newestOf(seals)?.seal.number ?? 0;
  if (numberOf(published) <= numberOf(restored)) return false;
  await policies.update(tx, { orgId }, { seals: [...published] });
  return true;
}
