// What the configurations of an organization's nodes are rendered from (config.ts). The part that all nodes share at one
// config_version, above all the blocklist, is rendered once and kept in a ConfigView.

import { stringifyYaml, type YamlMap } from "../../base/yaml.ts";
import type { Demanded } from "../certificates/demanded-ca.ts";
import { isSelf, type Rule } from "../../api/rules.ts";
import { readOrder } from "../../protocol/updates/order.ts";
import { certifiedGroups, userOfGroup } from "../../protocol/users-groups.ts";
import type { NodeRow } from "../store/tables/nodes.ts";
import { sha256Hex } from "../../base/sha256.ts";

/** The columns of a node that its own configuration depends on. */
export type ConfigNode = Pick<
  NodeRow,
  | "id"
  | "name"
  | "ip"
  | "ip6"
  | "groups"
  | "ownerId"
  | "ownerGroups"
  | "isLighthouse"
  | "isRelay"
  | "publicIp"
  | "externalPort"
  | "listenPort"
  | "subnets"
  | "routeOptions"
  | "exitGroups"
  | "configOverrides"
  | "overlayVersion"
  | "platform"
  | "pinsDefaults"
> &
  /** The order of a rollout. Phones have none. */
  Partial<Pick<NodeRow, "updateOrder">>;

/** The columns of a lighthouse, a relay or a router with subnets that other nodes' configurations depend on. */
export type Hub = Pick<
  ConfigNode,
  "id" | "ip" | "isLighthouse" | "isRelay" | "publicIp" | "externalPort" | "subnets" | "routeOptions"
>;

export type ConfigSource = {
  slug: string;
  /** The overlay's networks. */
  networks: readonly string[];
  /** How often engines test their tunnels, in seconds; null: the default of the node's engine. */
  aliveInterval: number | null;
  overrides: YamlMap;
  /** Overrides of an open rollout: they are sent beside `overrides` to the nodes that have its order. */
  tried?: { order: number; overrides: YamlMap } | undefined;
  certificateVersion: 1 | "both" | 2;
  rules: readonly Rule[];
  /** Names of the nodes in rules, as in their certificates. */
  nodeNames: ReadonlyMap<number, string>;
  hubs: readonly Hub[];
  /** Ids of relays whose monthly limit is reached. They keep their ports and addresses. */
  pausedRelays: readonly number[];
  /** Fingerprints, lower-case hex. */
  blocklist: readonly string[];
  /**
   * How often engines had to check open flows again, because an address got another node. The number is hidden in a timeout
   * (withRechecks in config.ts): an engine checks them after each change of its firewall settings.
   */
  flowRechecks: number;
  /** What the newest seal demands of CAs. Only where nodes enforce a seal. */
  demanded?: Demanded | undefined;
};

export type ConfigView = ConfigSource & {
  /** The lines of the blocklist below `pki`, and their SHA-256. */
  blocklistYaml: string;
  blocklistDigest: string;
  /**
   * What may tell nodes apart: the nodes that are hubs or targets of rules, and the groups that are targets. `byOwner`: also the owner,
   * because a rule is about nodes of the same one.
   */
  named: { nodes: ReadonlySet<number>; groups: ReadonlySet<string>; byOwner: boolean };
  /** Changes with anything in the source. */
  digest: string;
};

/**
 * Everything that the configuration of a node depends on. Nodes of the same kind have the same one. What is omitted is in certificates
 * or in the configurations of other nodes; the owner counts as a group, where rules need it (kindOf).
 */
export type NodeKind = Omit<
  ConfigNode,
  "name" | "ip" | "ip6" | "ownerId" | "ownerGroups" | "routeOptions" | "updateOrder"
> & {
  /** It gets the settings of the open rollout, too. */
  tries?: true;
};

export function kindOf({ named, tried }: ConfigView, node: ConfigNode): NodeKind {
  return {
    ...(tried !== undefined && hasOrder(node, tried.order) ? { tries: true } : {}),
    // 0: no configuration depends on which node it is.
    id: named.nodes.has(node.id) ? node.id : 0,
    groups: certifiedGroups(node)
      .filter((group) => named.groups.has(group) || (named.byOwner && userOfGroup(group) !== undefined))
      .sort(),
    isLighthouse: node.isLighthouse,
    isRelay: node.isRelay,
    publicIp: node.publicIp,
    externalPort: node.externalPort,
    listenPort: node.listenPort,
    subnets: node.subnets,
    exitGroups: node.exitGroups,
    configOverrides: node.configOverrides,
    overlayVersion: node.overlayVersion,
    platform: node.platform,
    pinsDefaults: node.pinsDefaults,
  };
}

/** Whether the node has the order with this number, or the order to go back, which has the next one. */
function hasOrder({ updateOrder = null }: ConfigNode, number: number): boolean {
  const order = readOrder(updateOrder)?.order;
  return order === number || order === number + 1;
}

export function makeConfigView(source: ConfigSource): ConfigView {
  const blocklistYaml = stringifyYaml({ pki: { blocklist: [...source.blocklist] } }).slice("pki:\n".length);
  const blocklistDigest = sha256Hex(blocklistYaml);
  const { blocklist: _, nodeNames, ...rest } = source;
  const digest = sha256Hex(JSON.stringify([rest, [...nodeNames], blocklistDigest]));
  return { ...source, blocklistYaml, blocklistDigest, named: namedIn(source), digest };
}

function namedIn({ rules, hubs }: ConfigSource): ConfigView["named"] {
  const nodes = new Set(hubs.map(({ id }) => id));
  const groups = new Set<string>();
  for (const { target } of rules) {
    if ("node" in target) nodes.add(target.node);
    if ("group" in target) groups.add(target.group);
  }
  return { nodes, groups, byOwner: rules.some(({ peer }) => isSelf(peer)) };
}
