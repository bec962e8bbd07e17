// The parties whose access two seals may change: sealed nodes, networks behind them, and all that the control plane controls.
// A sealed node has its identity in the seal. Other nodes are unprivileged: the control plane chooses their groups, except privileged
// ones, which only a certificate of an offline CA gives.

import type { SealedNode, SealedState } from "../../protocol/seals/seal.ts";
import { networkOfGroup, ownerGroupIn, selfGroup } from "../../protocol/users-groups.ts";

export type Party = { label: string } & (
  | { kind: "anyone" }
  /** Sealed in one of the states, or not. */
  | { kind: "node"; name: string }
  /** A network behind the node. */
  | { kind: "behind"; name: string; network: string }
  /** All unprivileged nodes in the group. */
  | { kind: "group"; group: string }
  /** All unprivileged nodes that no rule names. */
  | { kind: "others" }
);

/** `anyone` is the first one. */
export function partiesOf(states: readonly SealedState[]): Party[] {
  const nodes = states.flatMap((state) => state.nodes);
  const sides = states.flatMap(({ rules }) => rules.flatMap(({ peer, target }) => [peer, target]));
  const sealed = new Set(nodes.flatMap(({ name, identity }) => (identity === undefined ? [] : [name])));
  const privileged = new Set(states.flatMap(({ sealing }) => sealing?.privileged ?? []));
  const groups = new Set(sides.flatMap((side) => ("group" in side ? [side.group] : [])));
  const names = new Set([
    ...nodes.map(({ name }) => name),
    ...sides.flatMap((side) => ("node" in side ? [side.node] : [])),
  ]);
  /** The control plane gives such a group to any node. */
  const isFreeGroup = (group: string) =>
    !privileged.has(group) && group !== selfGroup && networkOfGroup(group) === undefined;
  const unprivileged: Party[] = [
    ...[...groups].filter(isFreeGroup).map((group): Party => ({
      kind: "group",
      label: `unprivileged nodes in group ${JSON.stringify(group)}`,
      group,
    })),
    ...[...names.difference(sealed)].map((name): Party => ({
      kind: "node",
      label: `unprivileged node ${name}`,
      name,
    })),
    { kind: "others", label: "other unprivileged nodes" },
  ];
  return [
    { kind: "anyone", label: "ANYONE who has the control plane" },
    ...[...sealed].map((name): Party => ({ kind: "node", label: name, name })),
    ...networksBehind(nodes),
    // A party that stands for several nodes comes twice: they reach each other.
    ...unprivileged.flatMap((party): Party[] => (party.kind === "node" ? [party] : [party, party])),
  ];
}

/** Each network behind a node once, although both states may have it. */
function networksBehind(nodes: readonly SealedNode[]): Party[] {
  const parties = nodes.flatMap(({ name, routes }) =>
    routes.map((network) => ({
      kind: "behind" as const,
      label: `${network} behind ${name}`,
      name,
      network,
    })),
  );
  return [...new Map(parties.map((party) => [party.label, party])).values()];
}

/** The groups of owners of sealed nodes, which rules about nodes of the same owner name. */
export const ownersIn = (states: readonly SealedState[]): string[] => [
  ...new Set(
    states.flatMap(({ nodes }) =>
      nodes.flatMap(({ identity }) => ownerGroupIn(identity?.groups ?? []) ?? []),
    ),
  ),
];
