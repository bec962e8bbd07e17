// The changes that make the organization match its policy file. Pure.

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
  type UserChanges,
} from "./user-differences.ts";

/** The organization as it is. */
export type Current = PolicyUsers & {
  rules: readonly Rule[];
  nodes: readonly PolicyNode[];
  groups: readonly { name: string; description: string }[];
  tests: readonly PolicyTest[];
  aliases: readonly (DesiredAlias & { id: number })[];
  /** Groups that unused registration tokens give. */
  tokenGroups: ReadonlySet<string>;
  /** Whether the membership came from a registration token or a provider of identities, so that no file takes it away. */
  isGivenElsewhere(node: PolicyNode, group: string): boolean;
};

/** A rule that takes the place of a deleted one, and one that a rollback creates, has its id. */
export type NewRule = CheckedRule & { id?: number };
export type NodeChange = { id: number; name: string; groups: Delta; subnets: Delta; relay: boolean | null };
type Named = { name: string; description: string };

export type Changes = UserChanges & {
  groups: { create: Named[]; delete: Named[]; describe: (Named & { before: string })[] };
  rules: { create: NewRule[]; delete: Rule[]; describe: (Rule & { before: string })[] };
  nodes: NodeChange[];
  /** An alias of another node or address is deleted and created. */
  aliases: { create: DesiredAlias[]; delete: DesiredAlias[] };
  /** Undefined: unchanged. */
  tests: PolicyTest[] | undefined;
};

/** `kept`: sentences about what the file does not name and what stays nevertheless. */
export type Difference = { changes: Changes; kept: string[] };

export function* differences(
  current: Current,
  desired: Desired,
  prune: boolean,
  ruleIds: RuleIds = [],
): Generator<unknown, Difference> {
  const kept: string[] = [];
  const rules = yield* ruleChanges(current, desired, { prune, ruleIds }, kept);
  const nodes: NodeChange[] = [];
  const fileGroups = yield* groupsInFile(desired);
  for (const [at, node] of current.nodes.entries()) {
    const change = nodeChange(current, node, { ...desired, fileGroups }, prune, kept);
    if (change !== undefined) nodes.push(change);
    if (at % 100 === 0) yield;
  }
  const people = userChanges(current, desired, prune, kept);
  const providerGroups = yield* providerChanges(
    current,
    desired,
    people,
    groupsNamed(current, desired, rules),
  );
  const owned = yield* ownedChanges(current, people, providerGroups);
  const groups = yield* groupChanges(current, desired, people, prune, kept);
  const aliases = aliasChanges(current, desired, prune, kept);
  const { tests } = desired;
  const isSame = tests === undefined || JSON.stringify(tests) === JSON.stringify(current.tests);
  return {
    changes: {
      groups,
      rules,
      nodes,
      people,
      providerGroups,
      owned,
      aliases,
      tests: isSame ? undefined : [...tests],
    },
    kept: bounded(kept),
  };
}

const maxKept = 100;

function bounded(kept: readonly string[]): string[] {
  if (kept.length <= maxKept) return [...kept];
  return [...kept.slice(0, maxKept), `… and ${kept.length - maxKept} more.`];
}

export function isUnchanged({ groups, rules, nodes, people, aliases, tests }: Changes): boolean {
  const lists = [groups, rules, people, aliases].flatMap((each): readonly unknown[][] => Object.values(each));
  lists.push(nodes);
  return tests === undefined && lists.every((list) => list.length === 0);
}

/** For each rule of the file, the id of the rule that it was before it was edited. */
type RuleIds = readonly (number | null)[];

function* ruleChanges(
  { rules }: Current,
  { rules: wanted }: Desired,
  { prune, ruleIds }: { prune: boolean; ruleIds: RuleIds },
  kept: string[],
): Generator<unknown, Changes["rules"]> {
  const result: Changes["rules"] = { create: [], delete: [], describe: [] };
  if (wanted === undefined) return result;
  const edited = new Map<NewRule, number>();
  const present = new Map<string, Rule>();
  for (const [at, rule] of rules.entries()) {
    if (at % 100 === 0) yield;
    // The same rule made twice by hand: one of them is enough.
    if (!present.has(identityOf(rule))) present.set(identityOf(rule), rule);
    else if (prune) result.delete.push(rule);
  }
  for (const [at, { description, ...rule }] of wanted.entries()) {
    if (at % 100 === 0) yield;
    const identity = identityOf(rule);
    const known = present.get(identity);
    present.delete(identity);
    if (known === undefined) {
      const created: NewRule = { ...rule, description: description ?? "" };
      result.create.push(created);
      edited.set(created, ruleIds[at] ?? 0);
    } else if (description !== undefined && description !== known.description) {
      result.describe.push({ ...known, description, before: known.description });
    }
  }
  for (const rule of present.values()) {
    if (prune) result.delete.push(rule);
    else kept.push(`Rule ${rule.id} is not in the file. It stays without --prune.`);
  }
  const free = new Set(result.delete.map(({ id }) => id));
  for (const [rule, id] of edited) if (free.delete(id)) rule.id = id;
  return result;
}

/** By node; `withMembers`: the groups about whose members the file says something. */
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
  prune: boolean,
  kept: string[],
): NodeChange | undefined {
  const groups: Delta = { add: [], remove: [] };
  const { byNode, withMembers } = desired.fileGroups;
  const wanted = byNode.get(node.id) ?? [];
  for (const name of wanted) if (!node.given.includes(name)) groups.add.push(name);
  for (const name of node.given) {
    if (!withMembers.has(name) || wanted.includes(name)) continue;
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
  const size = groups.add.length + groups.remove.length + subnets.add.length + subnets.remove.length;
  return size === 0 && relay === null ? undefined : { id: node.id, name: node.name, groups, subnets, relay };
}

function* groupChanges(
  current: Current,
  desired: Desired,
  people: Changes["people"],
  prune: boolean,
  kept: string[],
): Generator<unknown, Changes["groups"]> {
  const result: Changes["groups"] = { create: [], delete: [], describe: [] };
  if (desired.groups === undefined) return result;
  const present = new Map(current.groups.map((group) => [group.name, group]));
  for (const { name, description } of desired.groups) {
    const known = present.get(name);
    present.delete(name);
    if (known === undefined) result.create.push({ name, description: description ?? "" });
    else if (description !== undefined && description !== known.description) {
      result.describe.push({ name, description, before: known.description });
    }
  }
  const uses = yield* usesOf({ ...current, people: changedGroupUsers(current.people, people) }, desired);
  for (const group of present.values()) {
    if (!prune) kept.push(`The group ${group.name} is not in the file. It stays without --prune.`);
    else if (uses.has(group.name)) {
      kept.push(`The group ${group.name} is not in the file. It stays while ${uses.get(group.name)}.`);
    } else result.delete.push(group);
  }
  return result;
}

/** Why a group stays, for each group in use. */
function* usesOf(current: Current, desired: Desired): Generator<unknown, Map<string, string>> {
  const uses = new Map<string, string>();
  for (const name of current.tokenGroups) uses.set(name, "an open registration token gives it");
  // Without `rules` in the file, the present rules stay, and need their groups.
  const rules = desired.rules === undefined ? current.rules : [];
  for (const rule of rules) for (const name of namedIn([rule])) uses.set(name, `rule ${rule.id} names it`);
  for (const { name, people } of current.people) uses.set(name, `${describeUsers(current, people)} is in it`);
  for (const [at, node] of current.nodes.entries()) {
    for (const name of node.given) uses.set(name, `node ${node.name} is in it`);
    if (at % 100 === 0) yield;
  }
  return uses;
}

function aliasChanges(
  current: Current,
  { aliases }: Desired,
  prune: boolean,
  kept: string[],
): Changes["aliases"] {
  const result: Changes["aliases"] = { create: [], delete: [] };
  if (aliases === undefined) return result;
  const present = new Map(
    current.aliases.map(({ name, nodeId, address }) => [name, { name, nodeId, address }]),
  );
  for (const alias of aliases) {
    const known = present.get(alias.name);
    present.delete(alias.name);
    if (known?.nodeId === alias.nodeId && known.address === alias.address) continue;
    if (known !== undefined) result.delete.push(known);
    result.create.push(alias);
  }
  for (const alias of present.values()) {
    if (prune) result.delete.push(alias);
    else kept.push(`The alias ${alias.name} is not in the file. It stays without --prune.`);
  }
  return result;
}

/** In rules and tests. */
function groupsNamed(current: Current, { tests }: Desired, rules: Changes["rules"]): string[] {
  const tested = (tests ?? current.tests).flatMap(({ from, to }) => groupsIn([from, to]));
  return [...namedIn(changedRules(current.rules, rules)), ...tested];
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
  const ownedById = new Map(changes.owned.map((change) => [change.id, change.groups]));
  return nodes.map((node) => {
    const [change, owned] = [byId.get(node.id), ownedById.get(node.id)];
    if (change === undefined && owned === undefined) return node;
    const { groups, subnets, relay } = change ?? { groups: none, subnets: none, relay: null };
    const given = applied(node.given, groups);
    const ownerGroups = applied(node.ownerGroups, owned ?? none);
    return {
      ...node,
      given,
      ownerGroups,
      groups: certifiedGroups({ groups: given, ownerGroups, ownerId: node.ownerId }),
      subnets: applied(node.subnets, subnets),
      isRelay: relay ?? node.isRelay,
    };
  });
}

const none: Delta = { add: [], remove: [] };

/** The list after the change. */
export function applied(list: readonly string[], { add, remove }: Delta): string[] {
  return [...new Set([...list.filter((each) => !remove.includes(each)), ...add])];
}

/** The rules after the changes. New ones have ids below zero, edited ones their own. */
export function changedRules(rules: readonly Rule[], changes: Changes["rules"]): Rule[] {
  const deleted = new Set(changes.delete.map(({ id }) => id));
  const created = changes.create.map((rule, at) => ({
    ...rule,
    description: rule.description ?? "",
    id: rule.id ?? -1 - at,
  }));
  return [...rules.filter(({ id }) => !deleted.has(id)), ...created];
}
