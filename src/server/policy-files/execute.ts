// Writes the changes of a policy in one transaction, and returns the inverse changes, by which confirm.ts rolls back.

import { AppError } from "../../base/errors.ts";
import type { Actor, AuditEvent } from "../audit/record.ts";
import { useOfGroup } from "../policy/groups.ts";
import type { Rule } from "../../api/rules.ts";
import type { ProviderGroup } from "../policy/group-users.ts";
import { maxRules } from "../policy/rules.ts";
import { insertAlias, removeAlias } from "../names/aliases.ts";
import { regroupOwned } from "../nodes/owner-groups.ts";
import { userOfGroup } from "../../protocol/users-groups.ts";
import type { Transaction } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";
import { firewallRules } from "../store/tables/policies.ts";
import { nameAliases, nodeGroups, nodes } from "../store/tables/nodes.ts";
import { groupUsers, identityProviders, providerGroups } from "../store/tables/providers.ts";
import { memberships } from "../store/tables/organizations.ts";
import { raiseConfigVersion } from "../store/versions.ts";
import type { Changes, NodeChange } from "./differences.ts";
import { attempt, makeGroups, type Rollback } from "./rollback.ts";
import { changeNodes, type Executing } from "./execute-nodes.ts";

/**
 * Returns the inverse changes, and the events of certificates that were issued. With `rollback`, limits do not apply and what has
 * become impossible is left out. The order matters: groups are created before nodes join them and deleted after nodes leave them;
 * old aliases go first, new ones come after the nodes, because an address has to be behind its node.
 */
export async function execute(
  tx: Transaction,
  services: Executing,
  orgId: number,
  changes: Changes,
  actor: Actor,
  rollback?: Rollback,
): Promise<{ inverse: Changes; issued: AuditEvent[] }> {
  const now = services.system.now();
  if (rollback === undefined) await requireRoom(tx, orgId, changes);
  const created = changes.groups.create.map(({ name }) => name);
  await makeGroups(tx, orgId, created, now, rollback);
  for (const { name, description } of [...changes.groups.create, ...changes.groups.describe]) {
    await nodeGroups.update(tx, { orgId, name }, { description });
  }
  const createdRules = await changeRules(tx, orgId, changes.rules, now);
  const deletedAliases = await deleteAliases(tx, orgId, changes.aliases.delete, now);
  const inverseProviderGroups = await changeProviderGroups(tx, orgId, changes.providerGroups, now);
  const inversePeople = await changeGroupUsers(tx, orgId, changes.people, now);
  const hasChanged = [inversePeople, inverseProviderGroups].some(
    ({ add, remove }) => add.length + remove.length > 0,
  );
  // The groups that nodes have by their owners.
  if (hasChanged) await regroupOwned(tx, orgId, now, { isBounded: rollback === undefined });
  const { done, issued } = await changeNodes(tx, services, orgId, changes.nodes, actor, rollback);
  const createdAliases = await createAliases(tx, orgId, changes.aliases.create, now, rollback);
  const deletedGroups = await deleteGroups(tx, orgId, changes.groups.delete, now);
  return {
    inverse: {
      groups: {
        create: deletedGroups,
        delete: changes.groups.create,
        describe: inverseDescriptions(changes.groups.describe),
      },
      rules: {
        create: changes.rules.delete,
        delete: createdRules,
        describe: inverseDescriptions(changes.rules.describe),
      },
      nodes: done.map(inverseNodeChange),
      people: inversePeople,
      providerGroups: inverseProviderGroups,
      // Follows from the two above.
      owned: [],
      aliases: { create: deletedAliases, delete: createdAliases },
      // The caller stores tests, and knows the former ones.
      tests: undefined,
    },
    issued,
  };
}

function inverseDescriptions<Each extends { description: string; before: string }>(
  list: readonly Each[],
): Each[] {
  return list.map((each) => ({ ...each, description: each.before, before: each.description }));
}

/** Returns the inverse changes. */
async function changeGroupUsers(
  tx: Transaction,
  orgId: number,
  { add, remove }: Changes["people"],
  createdAt: number,
): Promise<Changes["people"]> {
  const inverse: Changes["people"] = { add: [], remove: [] };
  for (const { name, people } of remove)
    if ((await groupUsers.delete(tx, { orgId, name, people })) > 0) inverse.add.push({ name, people });
  for (const { name, people } of add) {
    // A user who left between an application and its rollback gets nothing back. `userId` is undefined for a provider's group.
    const userId = userOfGroup(people);
    if (userId !== undefined && (await memberships.find(tx, { orgId, userId })) === undefined) continue;
    await groupUsers.upsert(tx, { orgId, name, people, createdAt }, "ON CONFLICT DO NOTHING");
    inverse.remove.push({ name, people });
  }
  return inverse;
}

/** Returns the inverse changes. */
async function changeProviderGroups(
  tx: Transaction,
  orgId: number,
  { add, remove }: Changes["providerGroups"],
  createdAt: number,
): Promise<Changes["providerGroups"]> {
  for (const { people } of remove) await providerGroups.delete(tx, { orgId, people });
  const added: ProviderGroup[] = [];
  for (const each of add) {
    // The provider may have been deleted since the application that is rolled back.
    if ((await identityProviders.find(tx, { id: each.providerId })) === undefined) continue;
    await providerGroups.upsert(tx, { ...each, orgId, createdAt }, "ON CONFLICT DO NOTHING");
    added.push(each);
  }
  return { add: remove, remove: added };
}

async function requireRoom(tx: Transaction, orgId: number, { rules }: Changes): Promise<void> {
  const count = await queryNumber(tx, "SELECT count(*) AS n FROM firewall_rules WHERE org_id = $1", [orgId]);
  requireFewRules(count, rules);
}

/** Throws too_many_rules. `count`: of the current rules. */
export function requireFewRules(count: number, rules: Changes["rules"]): void {
  const after = count + rules.create.length - rules.delete.length;
  if (after <= maxRules || after <= count) return;
  throw new AppError(
    "too_many_rules",
    `The organization would have ${after} firewall rules; the maximum is ${maxRules}. Let one rule name a group or a network instead of many single nodes.`,
  );
}

/**
 * The result is called after each statement, and lets other requests run now and then. 500 statements take SQLite 10 to 40 ms, in which
 * the server answers nothing else.
 */
function makePauses(tx: Transaction): () => Promise<void> {
  let count = 0;
  return async () => {
    if (++count % 25 === 0) await tx.pause();
  };
}

/** Returns the created rules with their ids. */
async function changeRules(
  tx: Transaction,
  orgId: number,
  { create, delete: removed, describe }: Changes["rules"],
  createdAt: number,
): Promise<Rule[]> {
  const created: Rule[] = [];
  const pauseSometimes = makePauses(tx);
  // Deletions come first: an edited rule gets the id of the one that it replaces.
  for (const { id } of removed) {
    await firewallRules.delete(tx, { orgId, id });
    await pauseSometimes();
  }
  for (const { description = "", ...each } of create) {
    const { id } = await firewallRules.insertReturning(tx, { ...each, description, orgId, createdAt });
    created.push({ ...each, id, description });
    await pauseSometimes();
  }
  for (const { id, description } of describe) {
    await firewallRules.update(tx, { orgId, id }, { description });
    await pauseSometimes();
  }
  if (create.length + removed.length > 0) await raiseConfigVersion(tx, orgId);
  return created;
}

type Aliases = Changes["aliases"]["create"];

/** Returns those that were there. */
async function deleteAliases(tx: Transaction, orgId: number, list: Aliases, now: number): Promise<Aliases> {
  const deleted: Aliases = [];
  for (const each of list) {
    const found = await nameAliases.find(tx, { orgId, name: each.name, deletedAt: null });
    if (found === undefined) continue;
    await removeAlias(tx, { id: orgId }, found.id, now);
    deleted.push(each);
  }
  return deleted;
}

/** Returns the created ones. Aliases of nodes that are gone are left out. */
async function createAliases(
  tx: Transaction,
  orgId: number,
  list: Aliases,
  now: number,
  rollback: Rollback | undefined,
): Promise<Aliases> {
  const created: Aliases = [];
  for (const { name, nodeId, address } of list) {
    const node = await nodes.find(tx, { orgId, id: nodeId });
    if (node === undefined || node.state === "revoked") continue;
    const insert = () => insertAlias(tx, { id: orgId }, { name, node: nodeId, address }, now);
    const result = await attempt(tx, rollback, `The alias ${name}`, insert);
    if (result !== undefined) created.push({ name, nodeId, address });
  }
  return created;
}

function inverseNodeChange({ groups, subnets, relay, ...node }: NodeChange): NodeChange {
  const inverse = ({ add, remove }: NodeChange["groups"]) => ({ add: remove, remove: add });
  return {
    ...node,
    groups: inverse(groups),
    subnets: inverse(subnets),
    relay: relay === null ? null : !relay,
  };
}

/** Returns the deleted ones. */
async function deleteGroups(
  tx: Transaction,
  orgId: number,
  groups: Changes["groups"]["delete"],
  now: number,
): Promise<Changes["groups"]["delete"]> {
  const deleted: Changes["groups"]["delete"] = [];
  for (const group of groups) {
    // useOfGroup takes 15 ms with ten thousand nodes.
    await tx.pause();
    // Keep a group that a node has joined since the plan.
    if ((await useOfGroup(tx, orgId, group.name, now)) !== undefined) continue;
    await nodeGroups.delete(tx, { orgId, name: group.name });
    deleted.push(group);
  }
  return deleted;
}
