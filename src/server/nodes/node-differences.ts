// The differences of a node before and after a change: for its certificate, for other nodes, for the audit log. Pure.

import { valueAt } from "../../base/yaml.ts";
import { isConfigured, type NodeRecord } from "../store/nodes.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import type { NodeRow } from "../store/tables/nodes.ts";
import { isExit } from "../../protocol/routing/roles.ts";

/** What the node's certificate says of it, as text: equal for two rows with equal certificates. */
export function certifiedText(node: NodeRow): string {
  return JSON.stringify([node.name, node.ip, certifiedGroups(node), node.subnets, isExit(node)]);
}

/** Whether the certificate of `node` grants something that the certificate of `other` does not. */
export function grantsBeyond(node: NodeRecord, other: NodeRecord): boolean {
  return (
    node.name !== other.name ||
    node.ip !== other.ip ||
    (isExit(node) && !isExit(other)) ||
    hasGroupBeyond(node, other) ||
    hasBeyond(node.subnets, other.subnets)
  );
}

const hasBeyond = (list: readonly string[], other: readonly string[]) =>
  list.some((item) => !other.includes(item));

type Grouped = Pick<NodeRow, "groups" | "ownerGroups" | "ownerId">;

/** Whether the certificate of `node` has a group that the one of `other` has not. */
export function hasGroupBeyond(node: Grouped, other: Grouped): boolean {
  return hasBeyond(certifiedGroups(node), certifiedGroups(other));
}

/** Whether the change is in the configurations of other nodes. Ignores rules that name the node. */
export function affectsOthers(before: NodeRecord, after: NodeRecord): boolean {
  const seenByOthers = (node: NodeRecord) => {
    const { ip, isLighthouse, isRelay, publicIp, externalPort, tcp } = node;
    // The addresses for TCP fallback, which other nodes get, contain the engine's own port.
    const port = tcp === null ? undefined : valueAt(node.configOverrides, "listen.port");
    // Nodes that may use an exit are sent its name.
    const routed = [node.subnets, node.routeOptions, node.exitGroups, isExit(node) && node.name];
    return JSON.stringify([ip, isLighthouse, isRelay, publicIp, externalPort, port, routed]);
  };
  return (isConfigured(before) || isConfigured(after)) && seenByOthers(before) !== seenByOthers(after);
}

/** The fields of a node in events. */
export function auditedFields(node: NodeRow): Record<string, unknown> {
  return {
    name: node.name,
    ip_address: node.ip,
    groups: node.groups,
    subnets: node.subnets,
    ...(Object.keys(node.routeOptions).length === 0 ? {} : { route_options: node.routeOptions }),
    is_lighthouse: node.isLighthouse,
    is_relay: node.isRelay,
    is_name_server: node.isNameServer,
    exit_groups: node.exitGroups,
    public_ip: node.publicIp,
    external_port: node.externalPort,
    config_overrides: node.configOverrides,
  };
}
