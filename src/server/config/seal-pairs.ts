// Compares two seals on a signer's machine: which nodes gain or lose access to which other nodes. One of the compared peers is
// "anyone who has the control plane". A seal contains only groups and names of unprivileged nodes, and the control plane chooses
// these. The comparison assumes that nodes enforce both seals.

import { isWithin, networksOverlap, parseNetwork, type Network } from "../../base/ip.ts";
import type { Rule } from "../../api/rules.ts";
import type { SealedNode, SealedRule, SealedState } from "../../protocol/seals/seal.ts";
import { networkOfGroup, ownerGroupIn, selfGroup } from "../../protocol/users-groups.ts";
import { inSlices } from "../http/heavy-work.ts";
import { TooMuchWork } from "../policy/comparison-limit.ts";
import type { Member } from "../policy/firewall.ts";
import type { NodeClass } from "../policy/node-classes.ts";
import { isNothing, showAccess, type Access } from "../policy/packets.ts";
import { makeReach, type Change } from "../policy/reach.ts";

export type PairDifferences = { gained: string[]; lost: string[]; reason?: string };

/** `before`: undefined for the first seal. `reason`: there are too many pairs; each rule that changes is still shown. */
export async function pairDifferences(
  before: SealedState | undefined,
  after: SealedState,
): Promise<PairDifferences> {
  // The comparison of a large organization takes seconds.
  if (before !== undefined && Bun.deepEquals(before, after)) return { gained: [], lost: [] };
  try {
    return wordsOf(await inSlices(changesBetween(before, after)));
  } catch (error) {
    if (!(error instanceof TooMuchWork)) throw error;
    const reason = "! There are too many pairs of nodes to compare: read each rule that changes";
    return { gained: [], lost: [], reason };
  }
}

function* changesBetween(
  before: SealedState | undefined,
  after: SealedState,
): Generator<unknown, readonly Change[]> {
  const states = [...(before === undefined ? [] : [before]), after];
  const [parties, owners] = [partiesOf(states), ownersIn(states)];
  const was = yield* comparable(before, parties, owners);
  const is = yield* comparable(after, parties, owners);
  const reach = yield* makeReach(was, is);
  return yield* reach.changes();
}

// Parties

/** `name`: of a node; `group`: all unprivileged nodes in it; `behind`: a network behind the node. */
type Party = { label: string; isAnyone?: true; name?: string; group?: string; behind?: string };

const anyone: Party = { label: "ANYONE who has the control plane", isAnyone: true };

function partiesOf(states: readonly SealedState[]): Party[] {
  const nodes = states.flatMap((state) => state.nodes);
  const sides = states.flatMap(({ rules }) => rules.flatMap(({ peer, target }) => [peer, target]));
  const sealed = new Set(nodes.flatMap(({ name, identity }) => (identity === undefined ? [] : [name])));
  const privileged = new Set(states.flatMap(({ sealing }) => sealing?.privileged ?? []));
  const groups = new Set(sides.flatMap((side) => ("group" in side ? [side.group] : [])));
  const names = new Set([
    ...nodes.map(({ name }) => name),
    ...sides.flatMap((side) => ("node" in side ? [side.node] : [])),
  ]);
  const behind = new Map(
    nodes.flatMap(({ name, routes }) =>
      routes.map((network): [string, Party] => [
        `${network} ${name}`,
        { label: `${network} behind ${name}`, name, behind: network },
      ]),
    ),
  );
  const unprivileged: Party[] = [
    ...[...groups].flatMap((group) =>
      privileged.has(group) || group === selfGroup || networkOfGroup(group) !== undefined
        ? []
        : [{ label: `unprivileged nodes in group ${JSON.stringify(group)}`, group }],
    ),
    ...[...names].flatMap((name) => (sealed.has(name) ? [] : [{ label: `unprivileged node ${name}`, name }])),
    { label: "other unprivileged nodes" },
  ];
  return [
    anyone,
    ...[...sealed].map((name) => ({ label: name, name })),
    ...behind.values(),
    // Each of these parties stands for several nodes, which reach each other.
    ...unprivileged.flatMap((party) => ("name" in party ? [party] : [party, party])),
  ];
}

/** The groups of owners of sealed nodes, which rules about nodes of the same owner name. */
const ownersIn = (states: readonly SealedState[]): string[] => [
  ...new Set(
    states.flatMap(({ nodes }) =>
      nodes.flatMap(({ identity }) => ownerGroupIn(identity?.groups ?? []) ?? []),
    ),
  ),
];

// A state in the words of the policy's comparison: a group for each side of a rule, and the parties that are in it.

type Side = SealedRule["peer"];
/** `owner`: of those, the nodes with this owner. */
type Wanted = { as: "peer" | "target"; side: Side; owner?: string };
type Compared = { rules: Rule[]; members: Member[] };

/** The group of `anyone`, whose engine lets all packets out and in. */
const unbound = "unbound";

function* comparable(
  state: SealedState | undefined,
  parties: readonly Party[],
  owners: readonly string[],
): Generator<unknown, Compared> {
  const wanted = new Map<string, Wanted>();
  const key = (each: Wanted) => {
    const text = JSON.stringify(each);
    wanted.set(text, each);
    return text;
  };
  const rules = (state?.rules ?? []).flatMap((rule) =>
    perOwner(rule, owners).flatMap(({ peer, target }): Rule[] =>
      // Closed nodes have tunnels with sealed nodes alone.
      ["sealed", "not closed"].map((tunnel) => ({
        ...ruleOf(rule),
        peer: { group: `${tunnel} ${key(peer)}` },
        target: { group: `${tunnel} ${key(target)}` },
      })),
    ),
  );
  for (const direction of ["inbound", "outbound"] as const)
    rules.push({
      ...ruleOf({ direction, protocol: "any", ports: "any" }),
      peer: { any: true },
      target: { group: unbound },
    });
  const matching = matcher(state);
  const members: Member[] = [];
  for (const [at, party] of parties.entries()) {
    const { isSealed, isClosed, matches } = matching(party);
    const groups = [...wanted].flatMap(([text, each]) =>
      matches(each)
        ? [...(isSealed ? [`sealed ${text}`] : []), ...(isClosed ? [] : [`not closed ${text}`])]
        : [],
    );
    const own = party.isAnyone === true && state !== undefined ? [unbound] : [];
    members.push({ id: at + 1, name: party.label, ip: "", ip6: null, groups: [...groups, ...own] });
    yield;
  }
  return { rules, members };
}

const ruleOf = ({ direction, protocol, ports }: Pick<SealedRule, "direction" | "protocol" | "ports">) => ({
  id: 0,
  direction,
  protocol,
  ports,
  description: "",
});

function perOwner(
  { peer, target }: SealedRule,
  owners: readonly string[],
): { peer: Wanted; target: Wanted }[] {
  const isSelf = "group" in peer && peer.group === selfGroup;
  if (!isSelf) return [{ peer: { as: "peer", side: peer }, target: { as: "target", side: target } }];
  return owners.map((owner) => ({
    peer: { as: "peer", side: { group: owner } },
    target: { as: "target", side: target, owner },
  }));
}

type Matching = { isSealed: boolean; isClosed: boolean; matches(wanted: Wanted): boolean };

function matcher(state: SealedState | undefined): (party: Party) => Matching {
  const nodes = new Map(state?.nodes.map((node) => [node.name, node]));
  const privileged = new Set(state?.sealing?.privileged);
  const networks = (state?.networks ?? []).flatMap((each) => parseNetwork(each) ?? []);
  const isSealedName = (name: string) => nodes.get(name)?.identity !== undefined;
  const byServer = (party: Party): Matching["matches"] => {
    const has = (group: string) => (party.isAnyone === true ? !privileged.has(group) : party.group === group);
    return ({ as, side, owner }) => {
      // Other nodes cannot rely on what the machine of `anyone` lets in.
      if (party.isAnyone === true && as === "target") return false;
      if (owner !== undefined && !has(owner)) return false;
      if ("any" in side) return true;
      if ("group" in side) return has(side.group);
      if ("node" in side)
        return party.isAnyone === true ? !isSealedName(side.node) : party.name === side.node;
      // A node that is not sealed may have any address.
      const network = parseNetwork(side.cidr);
      return (
        party.isAnyone === true ||
        networks.some((each) => network !== undefined && networksOverlap(each, network))
      );
    };
  };
  return (party) => {
    const node = party.name === undefined ? undefined : nodes.get(party.name);
    const identity = node?.identity;
    const isGone = party.behind === undefined ? false : node?.routes.includes(party.behind) !== true;
    if (state === undefined || isGone) return nowhere;
    if (node === undefined || identity === undefined)
      return { isSealed: false, isClosed: false, matches: byServer(party) };
    const { groups, kind } = identity;
    return {
      isSealed: true,
      isClosed: kind === "closed",
      matches: (wanted) => isSide(wanted, party, node, groups),
    };
  };
}

const nowhere: Matching = { isSealed: false, isClosed: false, matches: () => false };

function isSide(
  { as, side, owner }: Wanted,
  { behind }: Party,
  node: SealedNode,
  groups: readonly string[],
): boolean {
  if (owner !== undefined && !groups.includes(owner)) return false;
  if ("any" in side) return true;
  if ("node" in side) return side.node === node.name;
  if ("group" in side) {
    const network = as === "target" ? networkOfGroup(side.group) : undefined;
    return network === undefined ? groups.includes(side.group) : network === behind;
  }
  const network = parseNetwork(side.cidr);
  return network !== undefined && isInside(network, behind, node.addresses);
}

function isInside(network: Network, behind: string | undefined, addresses: readonly string[]): boolean {
  const own = behind === undefined ? undefined : parseNetwork(behind);
  if (own !== undefined) return networksOverlap(network, own);
  return addresses.some((each) => isWithin(each, [network]));
}

// Words

/** Longer lists are written once, below. */
const namedInLine = 8;

function wordsOf(changes: readonly Change[]): PairDifferences {
  const long = new Map<NodeClass, number>();
  const label = (of: NodeClass) => {
    const names = namesIn(of);
    if (names.length <= namedInLine) return names.join(", ");
    if (!long.has(of)) long.set(of, long.size + 1);
    return `${names.length} nodes [${long.get(of)}]`;
  };
  const lines = (which: "gains" | "loses") => {
    const found = changes.filter((each) => !isNothing(each[which]));
    const sorted = found.toSorted((a, b) => Number(isAnyone(b)) - Number(isAnyone(a)));
    return together(sorted, which, label);
  };
  const [gained, lost] = [lines("gains"), lines("loses")];
  const legend = [...long].map(([of, at]) => `[${at}]: ${namesIn(of).join(", ")}`);
  return gained.length > 0
    ? { gained: [...gained, ...legend], lost }
    : { gained, lost: [...lost, ...legend] };
}

const namesIn = ({ members }: NodeClass): string[] => [...new Set(members.map(({ name }) => name))];
const isAnyone = ({ from, to }: Change): boolean =>
  [from, to].some((each) => each.members[0]?.name === anyone.label);

/** One line for all that a class reaches in the same way. */
function together(
  changes: readonly Change[],
  which: "gains" | "loses",
  label: (of: NodeClass) => string,
): string[] {
  const words = (access: Access) => showAccess(access).join(", ");
  const lines = Map.groupBy(changes, (each) => `${label(each.from)}: ${words(each[which])}`);
  return [...lines.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const to = same.map((each) => label(each.to)).join(", ");
    return [`${words(first[which])} from ${label(first.from)} to ${to}`];
  });
}
