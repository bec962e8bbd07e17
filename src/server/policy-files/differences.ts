// Computes the changes that make an organization match its policy file (plan.ts), and what it is like after them. What the file
// does not name is removed only with `prune`. The generators yield often, so that other requests are answered. Pure.

import { certifiedGroups } from "../../protocol/users-groups.ts";
import type { Peer, Rule, CheckedRule } from "../../api/rules.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { PolicyTest } from "../policy/policy-tests.ts";
import { identityOf } from "../policy/node-classes.ts";
import type { Desired, DesiredAlias } from "../policy/resolve.ts";
import {
  changedGroupUsers,
  ownedChanges,
  userChanges,
  describeUsers,
  providerChanges,
  type Delta,
  type PolicyUsers,
  type Pruning,
  type UserChanges,
} from "./user-differences.ts";

/** The organization as it is. */
export type Current = PolicyUsers & {
  rules: readonly Rule[];
  nodes: readonly PolicyNode[];
  groups: readonly { name: string; description: string }[];
  tests: readonly PolicyTest[];
  aliases: readonly (DesiredAlias & { id: number })[];
  /** Groups that open registration tokens give. */
  tokenGroups: ReadonlySet<string>;
  /** Whether the membership came from a registration token or a provider of identities, so that no file takes it away. */
  isGivenElsewhere(node: PolicyNode, group: string): boolean;
};

/** With an id, the rule replaces a deleted one, or is created by a rollback: it gets that id. */
export type NewRule = CheckedRule & { id?: number };
/** `relay`: null: unchanged. */
export type NodeChange = { id: number; name: string; groups: Delta; subnets: Delta; relay: boolean | null };
type Named = { name: string; description: string };

/**
 * Of UserChanges: `people` are the users, and groups of providers, that a group of nodes gets or loses. `owned` are the nodes whose groups
 * change with that, because their owners are such users.
 */
export type Changes = UserChanges & {
  groups: { create: Named[]; delete: Named[]; describe: (Named & { before: string })[] };
  rules: { create: NewRule[]; delete: Rule[]; describe: (Rule & { before: string })[] };
  nodes: NodeChange[];
  /** An alias that gets another node or address is deleted and created. */
  aliases: { create: DesiredAlias[]; delete: DesiredAlias[] };
  /** Undefined: unchanged. */
  tests: PolicyTest[] | undefined;
};

/** `kept`: sentences about what stays although the file does not name it. */
export type Difference = { changes: Changes; kept: string[] };

/** For each rule of the file, the id of the rule that it was before it was edited. */
type RuleIds = readonly (number | null)[];

export function* differences(
  current: Current,
  desired: Desired,
  { prune, ruleIds = [] }: { prune: boolean; ruleIds?: RuleIds | undefined },
): Generator<unknown, Difference> {
  const pruning: Pruning = { prune, kept: [] };
  const rules = yield* ruleChanges(current, desired, ruleIds, pruning);
  const nodes: NodeChange[] = [];
  const fileGroups = yield* groupsInFile(desired);
  for (const [index, node] of current.nodes.entries()) {
    const change = nodeChange(current, node, { ...desired, fileGroups }, pruning);
    if (change !== undefined) nodes.push(change);
    if (index % 100 === 0) yield;
  }
  const people = userChanges(current, desired, pruning);
  const providerGroups = yield* providerChanges(
    current,
    desired,
    people,
    groupsNamed(current, desired, rules),
  );
  const owned = yield* ownedChanges(current, people, providerGroups);
  const groups = yield* groupChanges(current, desired, people, pruning);
  const aliases = aliasChanges(current, desired, pruning);
  const { tests } = desired;
  const areTestsSame = tests === undefined || JSON.stringify(tests) === JSON.stringify(current.tests);
  return {
    changes: {
      groups,
      rules,
      nodes,
      people,
      providerGroups,
      owned,
      aliases,
      tests: areTestsSame ? undefined : [...tests],
    },
    kept: bounded(pruning.kept),
  };
}

const maxKept = 100;

function bounded(kept: readonly string[]): string[] {
  if (kept.length <= maxKept) return [...kept];
  return [...kept.slice(0, maxKept), `… and ${kept.length - maxKept} more.`];
}

/** Does not look at groups of providers and `owned`, which follow from the other changes. */
export function isUnchanged({ groups, rules, nodes, people, aliases, tests }: Changes): boolean {
  const lists = [groups, rules, people, aliases].flatMap((each): readonly unknown[][] => Object.values(each));
  lists.push(nodes);
  return tests === undefined && lists.every((list) => list.length === 0);
}

function* ruleChanges(
  { rules }: Current,
  { rules: desired }: Desired,
  ruleIds: RuleIds,
  { prune, kept }: Pruning,
): Generator<unknown, Changes["rules"]> {
  const result: Changes["rules"] = { create: [], delete: [], describe: [] };
  if (desired === undefined) return result;
  /** For the new rules that are edited ones, the id before the edit. */
  const formerIds = new Map<NewRule, number>();
  /** Rules that the file has not named so far, by identity. */
  const unnamed = new Map<string, Rule>();
  for (const [index, rule] of rules.entries()) {
    if (index % 100 === 0) yield;
    // Of two equal rules, which only edits by hand can create, one is enough.
    if (!unnamed.has(identityOf(rule))) unnamed.set(identityOf(rule), rule);
    else if (prune) result.delete.push(rule);
  }
  for (const [index, { description, ...rule }] of desired.entries()) {
    if (index % 100 === 0) yield;
    const identity = identityOf(rule);
    const known = unnamed.get(identity);
    unnamed.delete(identity);
    if (known === undefined) {
      const created: NewRule = { ...rule, description: description ?? "" };
      result.create.push(created);
      const formerId = ruleIds[index];
      if (typeof formerId === "number") formerIds.set(created, formerId);
    } else if (description !== undefined && description !== known.description) {
      result.describe.push({ ...known, description, before: known.description });
    }
  }
  for (const rule of unnamed.values()) {
    if (prune) result.delete.push(rule);
    else kept.push(`Rule ${rule.id} is not in the file. It stays without --prune.`);
  }
  // Only the id of a deleted rule is free, and only one rule can get it.
  const freeIds = new Set(result.delete.map(({ id }) => id));
  for (const [rule, id] of formerIds) if (freeIds.delete(id)) rule.id = id;
  return result;
}

/** `byNode`: the groups in which the file has the node, by its id. `withMembers`: the groups whose members the file lists. */
type FileGroups = { byNode: ReadonlyMap<number, readonly string[]>; withMembers: ReadonlySet<string> };

function* groupsInFile({ groups }: Desired): Generator<unknown, FileGroups> {
  const byNode = new Map<number, string[]>();
  const withMembers = new Set<string>();
  for (const { name, members } of groups ?? []) {
    if (members !== undefined) withMembers.add(name);
    for (const id of members ?? []) {
      const names = byNode.get(id);
      if (names === undefined) byNode.set(id, [name]);
      else names.push(name);
      if (names === undefined || names.length % 100 === 0) yield;
    }
  }
  return { byNode, withMembers };
}

function nodeChange(
  current: Current,
  node: PolicyNode,
  desired: Desired & { fileGroups: FileGroups },
  { prune, kept }: Pruning,
): NodeChange | undefined {
  const groups: Delta = { add: [], remove: [] };
  const { byNode, withMembers } = desired.fileGroups;
  // `given`: the node's own groups, without those that it has by its owner.
  const inFile = byNode.get(node.id) ?? [];
  for (const name of inFile) if (!node.given.includes(name)) groups.add.push(name);
  for (const name of node.given) {
    if (!withMembers.has(name) || inFile.includes(name)) continue;
    if (current.isGivenElsewhere(node, name)) continue;
    if (prune) groups.remove.push(name);
    else {
      kept.push(`Node ${node.name} is in the group ${name}, not in the file. It stays without --prune.`);
    }
  }
  const subnets: Delta = { add: [], remove: [] };
  if (desired.routes !== undefined) {
    const networks = desired.routes.get(node.id) ?? [];
    subnets.add = networks.filter((each) => !node.subnets.includes(each));
    const extra = node.subnets.filter((each) => !networks.includes(each));
    if (prune) subnets.remove = extra;
    else
      for (const each of extra)
        kept.push(`The route ${each} via ${node.name} is not in the file. It stays without --prune.`);
  }
  let relay: boolean | null = null;
  if (desired.relays !== undefined && desired.relays.has(node.id) !== node.isRelay) {
    if (!node.isRelay) relay = true;
    else if (prune) relay = false;
    else kept.push(`Node ${node.name} is a relay, not in the file. It stays one without --prune.`);
  }
  const isSame = isEmpty(groups) && isEmpty(subnets) && relay === null;
  return isSame ? undefined : { id: node.id, name: node.name, groups, subnets, relay };
}

function* groupChanges(
  current: Current,
  desired: Desired,
  people: Changes["people"],
  { prune, kept }: Pruning,
): Generator<unknown, Changes["groups"]> {
  const result: Changes["groups"] = { create: [], delete: [], describe: [] };
  if (desired.groups === undefined) return result;
  const unnamed = new Map(current.groups.map((group) => [group.name, group]));
  for (const { name, description } of desired.groups) {
    const known = unnamed.get(name);
    unnamed.delete(name);
    if (known === undefined) result.create.push({ name, description: description ?? "" });
    else if (description !== undefined && description !== known.description) {
      result.describe.push({ name, description, before: known.description });
    }
  }
  const uses = yield* usesOf({ ...current, people: changedGroupUsers(current.people, people) }, desired);
  for (const group of unnamed.values()) {
    if (!prune) kept.push(`The group ${group.name} is not in the file. It stays without --prune.`);
    else if (uses.has(group.name)) {
      kept.push(`The group ${group.name} is not in the file. It stays while ${uses.get(group.name)}.`);
    } else result.delete.push(group);
  }
  return result;
}

/** For each group in use, why it stays: a part of a sentence. */
function* usesOf(current: Current, desired: Desired): Generator<unknown, Map<string, string>> {
  const uses = new Map<string, string>();
  for (const name of current.tokenGroups) uses.set(name, "an open registration token gives it");
  // Without `rules` or `tests` in the file the current ones stay, and need their groups.
  const keptRules = desired.rules === undefined ? current.rules : [];
  for (const rule of keptRules)
    for (const name of namedIn([rule])) uses.set(name, `rule ${rule.id} names it`);
  const keptTests = desired.tests === undefined ? current.tests : [];
  for (const [at, { from, to }] of keptTests.entries())
    for (const name of groupsIn([from, to])) uses.set(name, `test ${at + 1} names it`);
  for (const { name, people } of current.people) uses.set(name, `${describeUsers(current, people)} is in it`);
  for (const [at, node] of current.nodes.entries()) {
    for (const name of node.given) uses.set(name, `node ${node.name} is in it`);
    if (at % 100 === 0) yield;
  }
  return uses;
}

function aliasChanges(current: Current, { aliases }: Desired, { prune, kept }: Pruning): Changes["aliases"] {
  const result: Changes["aliases"] = { create: [], delete: [] };
  if (aliases === undefined) return result;
  const unnamed = new Map(
    current.aliases.map(({ name, nodeId, address }) => [name, { name, nodeId, address }]),
  );
  for (const alias of aliases) {
    const known = unnamed.get(alias.name);
    unnamed.delete(alias.name);
    if (known?.nodeId === alias.nodeId && known.address === alias.address) continue;
    if (known !== undefined) result.delete.push(known);
    result.create.push(alias);
  }
  for (const alias of unnamed.values()) {
    if (prune) result.delete.push(alias);
    else kept.push(`The alias ${alias.name} is not in the file. It stays without --prune.`);
  }
  return result;
}

/** The groups that rules and tests name after the changes. `rules`: the changes of rules. */
function groupsNamed(current: Current, { tests }: Desired, rules: Changes["rules"]): string[] {
  const inTests = (tests ?? current.tests).flatMap(({ from, to }) => groupsIn([from, to]));
  return [...namedIn(changedRules(current.rules, rules)), ...inTests];
}

function namedIn(rules: readonly Rule[]): string[] {
  return rules.flatMap(({ peer, target }) => groupsIn([peer, target]));
}

function groupsIn(sides: readonly Peer[]): string[] {
  return sides.flatMap((side) => ("group" in side ? [side.group] : []));
}

/** The nodes as they are after the changes. */
export function changedNodes(
  nodes: readonly PolicyNode[],
  changes: Pick<Changes, "nodes" | "owned">,
): PolicyNode[] {
  if (changes.nodes.length + changes.owned.length === 0) return [...nodes];
  const byId = new Map(changes.nodes.map((change) => [change.id, change]));
  const ownerGroupsById = new Map(changes.owned.map((change) => [change.id, change.groups]));
  return nodes.map((node) => {
    const change = byId.get(node.id);
    const ownerDelta = ownerGroupsById.get(node.id);
    if (change === undefined && ownerDelta === undefined) return node;
    const { groups, subnets, relay } = change ?? { groups: noDelta, subnets: noDelta, relay: null };
    const given = withDelta(node.given, groups);
    const ownerGroups = withDelta(node.ownerGroups, ownerDelta ?? noDelta);
    return {
      ...node,
      given,
      ownerGroups,
      groups: certifiedGroups({ groups: given, ownerGroups, ownerId: node.ownerId }),
      subnets: withDelta(node.subnets, subnets),
      isRelay: relay ?? node.isRelay,
    };
  });
}

export const noDelta: Delta = { add: [], remove: [] };

export const isEmpty = ({ add, remove }: Delta): boolean => add.length + remove.length === 0;

/** The list after the change. */
export function withDelta(list: readonly string[], { add, remove }: Delta): string[] {
  return [...new Set([...list.filter((each) => !remove.includes(each)), ...add])];
}

/** The rules after the changes. New rules have negative ids, which no stored rule has; edited ones keep theirs. */
export function changedRules(rules: readonly Rule[], changes: Changes["rules"]): Rule[] {
  const deleted = new Set(changes.delete.map(({ id }) => id));
  const created = changes.create.map((rule, index) => ({
    ...rule,
    description: rule.description ?? "",
    id: rule.id ?? -1 - index,
  }));
  return [...rules.filter(({ id }) => !deleted.has(id)), ...created];
}
