// A plan as the API answers it: what changes, and which nodes gain or lose access to which.

import { inSlices, mapInPieces } from "../http/heavy-work.ts";
import type { Member } from "../policy/firewall.ts";
import type { Peer, Rule } from "../../api/rules.ts";
import type { GroupSource } from "../policy/group-users.ts";
import { isNothing, showAccess } from "../policy/packets.ts";
import { makeReach, type Change, type Reach } from "../policy/reach.ts";
import type { NodeClass } from "../policy/node-classes.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { Reader } from "../store/database.ts";
import { isUsersGroup, networkGroup } from "../../protocol/users-groups.ts";
import type { Plan } from "../../api/policy.ts";
import type { Snapshot } from "./current.ts";
import { changedNodes, changedRules, isUnchanged, type Changes } from "./differences.ts";
import { showRule, sideNames, sideWriter, type SideWriter } from "./render.ts";
import type { Planned } from "./plan.ts";

/** The plan as the API answers it. */
export async function showPlan(reader: Reader, orgId: number, planned: Planned): Promise<Plan> {
  const { snapshot, changes, kept, tests, failures } = planned;
  const side = await sideWriter(reader, orgId, snapshot, sidesIn(snapshot.rules));
  const shown = (
    rule: Omit<Rule, "id" | "description"> & { id?: number; description?: string | undefined },
  ) => ({
    id: rule.id ?? null,
    ...showRule(rule, side),
  });
  return {
    version: snapshot.version,
    is_empty: isUnchanged(changes),
    rules: {
      create: await inSlices(mapInPieces(changes.rules.create, shown)),
      delete: await inSlices(mapInPieces(changes.rules.delete, shown)),
      describe: await inSlices(mapInPieces(changes.rules.describe, shown)),
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
  const word = ({ people }: GroupSource) => side({ group: people });
  const names = new Set([...add, ...remove].map(({ name }) => name));
  return [...names].map((group) => ({
    group,
    add: add.filter(({ name }) => name === group).map(word),
    remove: remove.filter(({ name }) => name === group).map(word),
  }));
}

/** With the groups that a node gets or loses by its owner. */
function shownNodes({ nodes, owned }: Pick<Changes, "nodes" | "owned">, side: SideWriter): Plan["nodes"] {
  const shown = new Map<number, Plan["nodes"][number]>();
  for (const { id, name, groups, subnets, relay } of nodes)
    shown.set(id, { id, name, groups: { ...groups }, routes: subnets, relay });
  for (const { id, name, groups } of owned) {
    const known = shown.get(id);
    const both = (key: "add" | "remove") => [
      ...new Set([...(known?.groups[key] ?? []), ...groups[key].map((group) => groupWord(group, side))]),
    ];
    const rest = known ?? { id, name, routes: { add: [], remove: [] }, relay: null };
    shown.set(id, { ...rest, groups: { add: both("add"), remove: both("remove") } });
  }
  return [...shown.values()];
}

function sidesIn(rules: readonly Rule[]): Peer[] {
  return rules.flatMap(({ peer, target }) => [peer, target]);
}

const maxPairs = 1000;
const maxClasses = 500;

/** Only active nodes have certificates, so only they gain or lose. */
export function* accessChanges(
  { rules, nodes }: Pick<Snapshot, "rules" | "nodes">,
  changes: Pick<Changes, "rules" | "nodes" | "owned">,
  side: SideWriter = sideNames([], new Map()),
): Generator<unknown, Plan["access"]> {
  const members = nodes.filter(({ isActive }) => isActive);
  const changed = changedNodes(members, changes);
  const networks = networksBehind(members, changed);
  const after = {
    rules: changedRules(rules, changes.rules),
    members: [...changed, ...networks.map(({ is }) => is)],
  };
  yield;
  const before = { rules, members: [...members, ...networks.map(({ was }) => was)] };
  const reach = yield* makeReach(before, after);
  const found = yield* reach.changes();
  yield;
  const sorted = found.toSorted((a, b) => b.pairs - a.pairs);
  yield;
  return {
    pairs_changed: found.reduce((sum, { pairs }) => sum + pairs, 0),
    classes: yield* showClasses(sorted.slice(0, maxClasses), side),
    classes_left_out: Math.max(0, sorted.length - maxClasses),
    pairs: yield* firstPairs(found, reach),
  };
}

/** The networks behind nodes, in either state: what reaches a node reaches them, and they send by its rules. */
function networksBehind(
  members: readonly PolicyNode[],
  changed: readonly PolicyNode[],
): { was: Member; is: Member }[] {
  return members.flatMap((was, at) => {
    const is = changed[at] ?? was;
    const behind = (node: PolicyNode, network: string): Member => ({
      id: node.id,
      name: `${network} behind ${node.name}`,
      ip: network,
      ip6: null,
      groups: [...node.groups, networkGroup(network)],
      behind: { isThere: node.subnets.includes(network) },
    });
    const all = [...new Set([...was.subnets, ...is.subnets])];
    return all.map((network) => ({ was: behind(was, network), is: behind(is, network) }));
  });
}

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

function* firstPairs(
  changes: readonly Change[],
  { partners }: Reach,
): Generator<unknown, Plan["access"]["pairs"]> {
  const byFrom = Map.groupBy(changes, ({ from }) => from);
  const senders: { member: NodeClass["members"][number]; list: readonly Change[] }[] = [];
  for (const [from, list] of byFrom) {
    for (const member of from.members) senders.push({ member, list });
    yield;
  }
  senders.sort((a, b) => a.member.id - b.member.id);
  const pairs: Plan["access"]["pairs"] = [];
  for (const { member, list } of senders) {
    yield;
    const receivers = list.flatMap((change) =>
      partners(member, change.to, change.owners).map((to) => ({ to, change })),
    );
    receivers.sort((a, b) => a.to.id - b.to.id);
    for (const { to, change } of receivers) {
      if (to.id === member.id) continue;
      if (pairs.length === maxPairs) return pairs;
      if (isNothing(change.gains) && isNothing(change.loses)) continue;
      pairs.push({
        from: { id: member.id, name: member.name },
        to: { id: to.id, name: to.name },
        gains: showAccess(change.gains),
        loses: showAccess(change.loses),
      });
    }
  }
  return pairs;
}
