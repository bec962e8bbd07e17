// Shows a plan as the API answers it: what changes, and which nodes gain or lose access to which. A class is the nodes, or the
// networks behind nodes, that all rules treat alike, before and after the changes (node-classes.ts).

import { inSlices, mapInPieces } from "../http/heavy-work.ts";
import type { Member } from "../policy/firewall.ts";
import type { Peer, Rule } from "../../api/rules.ts";
import type { GroupSource } from "../policy/group-users.ts";
import { showAccess } from "../policy/packets.ts";
import { makeReach, type Change, type Reach } from "../policy/reach.ts";
import type { NodeClass } from "../policy/node-classes.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { Reader } from "../store/database.ts";
import { isUsersGroup, networkGroup } from "../../protocol/users-groups.ts";
import { maxPlanClasses, maxPlanPairs, type Plan } from "../../api/policy.ts";
import type { Snapshot } from "./read-snapshot.ts";
import { changedNodes, changedRules, isUnchanged, noDelta, type Changes } from "./differences.ts";
import { showRule, makeSideWriter, readSideWriter, type SideWriter } from "./render.ts";
import type { Planned } from "./plan.ts";

export async function showPlan(reader: Reader, orgId: number, planned: Planned): Promise<Plan> {
  const { snapshot, changes, kept, tests, failures } = planned;
  const side = await readSideWriter(reader, orgId, snapshot, sidesIn(snapshot.rules));
  const shownRule = (
    rule: Omit<Rule, "id" | "description"> & { id?: number; description?: string | undefined },
  ) => ({
    id: rule.id ?? null,
    ...showRule(rule, side),
  });
  return {
    version: snapshot.version,
    is_empty: isUnchanged(changes),
    rules: {
      create: await inSlices(mapInPieces(changes.rules.create, shownRule)),
      delete: await inSlices(mapInPieces(changes.rules.delete, shownRule)),
      describe: await inSlices(mapInPieces(changes.rules.describe, shownRule)),
    },
    groups: {
      create: changes.groups.create.map(({ name }) => name),
      delete: changes.groups.delete.map(({ name }) => name),
      describe: changes.groups.describe.map(({ name }) => name),
      members: membersOf(changes.people, side),
    },
    nodes: shownNodes(changes, side),
    aliases: {
      create: changes.aliases.create.map(({ name }) => name),
      delete: changes.aliases.delete.map(({ name }) => name),
    },
    tests: {
      before: snapshot.tests.length,
      after: tests.length,
      failing: failures.map(({ sentence }) => sentence),
    },
    access: await inSlices(accessChanges(snapshot, changes, side)),
    kept,
  };
}

/** The users who join or leave a group, by group. */
function membersOf({ add, remove }: Changes["people"], side: SideWriter): Plan["groups"]["members"] {
  // `people` is the group of a user or of a provider, such as `user:id.7` (group-users.ts).
  const word = ({ people }: GroupSource) => side({ group: people });
  const names = new Set([...add, ...remove].map(({ name }) => name));
  return [...names].map((group) => ({
    group,
    add: add.filter(({ name }) => name === group).map(word),
    remove: remove.filter(({ name }) => name === group).map(word),
  }));
}

/** One entry per node: its own changes, and the groups that it gets or loses by its owner. */
function shownNodes({ nodes, owned }: Pick<Changes, "nodes" | "owned">, side: SideWriter): Plan["nodes"] {
  const shown = new Map<number, Plan["nodes"][number]>();
  for (const { id, name, groups, subnets, relay } of nodes)
    shown.set(id, { id, name, groups: { ...groups }, routes: subnets, relay });
  for (const { id, name, groups } of owned) {
    const ownChange = shown.get(id) ?? { id, name, groups: noDelta, routes: noDelta, relay: null };
    const bothChanges = (key: "add" | "remove") => [
      ...new Set([...ownChange.groups[key], ...groups[key].map((group) => groupWord(group, side))]),
    ];
    shown.set(id, { ...ownChange, groups: { add: bothChanges("add"), remove: bothChanges("remove") } });
  }
  return [...shown.values()];
}

function sidesIn(rules: readonly Rule[]): Peer[] {
  return rules.flatMap(({ peer, target }) => [peer, target]);
}

/**
 * Which classes and pairs of nodes gain or lose access. Only active nodes: others have no certificate. `side`: the default knows no
 * names, for tests. Each `yield` lets the server do other work (http/heavy-work.ts).
 */
export function* accessChanges(
  { rules, nodes }: Pick<Snapshot, "rules" | "nodes">,
  changes: Pick<Changes, "rules" | "nodes" | "owned">,
  side: SideWriter = makeSideWriter([], new Map(), new Map()),
): Generator<unknown, Plan["access"]> {
  const members = nodes.filter(({ isActive }) => isActive);
  const changed = changedNodes(members, changes);
  const networks = networksBehind(members, changed);
  const after = {
    rules: changedRules(rules, changes.rules),
    members: [...changed, ...networks.map((network) => network.after)],
  };
  yield;
  const before = { rules, members: [...members, ...networks.map((network) => network.before)] };
  const reach = yield* makeReach(before, after);
  const found = yield* reach.changes();
  yield;
  const sorted = found.toSorted((a, b) => b.pairs - a.pairs);
  yield;
  return {
    pairs_changed: found.reduce((sum, { pairs }) => sum + pairs, 0),
    classes: yield* showClasses(sorted.slice(0, maxPlanClasses), side),
    classes_left_out: Math.max(0, sorted.length - maxPlanClasses),
    pairs: yield* firstPairs(found, reach),
  };
}

/**
 * The networks behind nodes, before or after the changes, as members of the policy: what reaches a node reaches them, and they send
 * by its rules. `changed`: the same nodes in the same order.
 */
function networksBehind(
  members: readonly PolicyNode[],
  changed: readonly PolicyNode[],
): { before: Member; after: Member }[] {
  return members.flatMap((nodeBefore, index) => {
    const nodeAfter = changed[index] ?? nodeBefore;
    const behind = (node: PolicyNode, network: string): Member => ({
      id: node.id,
      name: `${network} behind ${node.name}`,
      ip: network,
      ip6: null,
      groups: [...node.groups, networkGroup(network)],
      behind: { isThere: node.subnets.includes(network) },
    });
    const all = [...new Set([...nodeBefore.subnets, ...nodeAfter.subnets])];
    return all.map((network) => ({
      before: behind(nodeBefore, network),
      after: behind(nodeAfter, network),
    }));
  });
}

/** `owners`: whether a change is about all pairs of nodes of the two classes, or only those with the same owner, or with different ones. */
function* showClasses(
  changes: readonly Change[],
  side: SideWriter,
): Generator<unknown, Plan["access"]["classes"]> {
  const shown: Plan["access"]["classes"] = [];
  for (const { from, to, owners, gains, loses, pairs } of changes) {
    const access = { gains: showAccess(gains), loses: showAccess(loses) };
    shown.push({ from: showClass(from, side), to: showClass(to, side), owners, ...access, pairs });
    yield;
  }
  return shown;
}

function showClass(
  { groups, members }: NodeClass,
  side: SideWriter,
): Plan["access"]["classes"][number]["from"] {
  const named = groups.map((group) => groupWord(group, side));
  const nodes = members.slice(0, 3).map(({ name }) => name);
  const are = members[0]?.behind === undefined ? {} : { are: "networks" as const };
  return { groups: named, nodes, count: members.length, ...are };
}

/** The name of a group of nodes; `user:ada@example.org` or `idp:Engineering` for the nodes of users. */
const groupWord = (group: string, side: SideWriter) => (isUsersGroup(group) ? side({ group }) : group);

/** The pairs of nodes of these changes, by the ids of sender and receiver, at most `maxPlanPairs`. */
function* firstPairs(
  changes: readonly Change[],
  { partners }: Reach,
): Generator<unknown, Plan["access"]["pairs"]> {
  const byFrom = Map.groupBy(changes, ({ from }) => from);
  const senders: { from: Member; itsChanges: readonly Change[] }[] = [];
  for (const [nodeClass, itsChanges] of byFrom) {
    for (const from of nodeClass.members) senders.push({ from, itsChanges });
    yield;
  }
  senders.sort((a, b) => a.from.id - b.from.id);
  const pairs: Plan["access"]["pairs"] = [];
  for (const { from, itsChanges } of senders) {
    yield;
    const receivers = itsChanges.flatMap((change) =>
      partners(from, change.to, change.owners).map((to) => ({ to, change })),
    );
    receivers.sort((a, b) => a.to.id - b.to.id);
    for (const { to, change } of receivers) {
      // A network behind a node has the id of the node.
      if (to.id === from.id) continue;
      if (pairs.length === maxPlanPairs) return pairs;
      pairs.push({
        from: { id: from.id, name: from.name },
        to: { id: to.id, name: to.name },
        gains: showAccess(change.gains),
        loses: showAccess(change.loses),
      });
    }
  }
  return pairs;
}
