// The differences of a node before and after a change: for its certificate, for other nodes, for the audit log. Pure.

import { valueAt } from "../../base/yaml.ts";
import { isConfigured, type NodeRecord } from "../store/nodes.ts";
import { certifiedGroups } from "../../protocol/users-groups.ts";
import type { NodeRow } from "../store/tables/nodes.ts";
import { isExit } from "../../protocol/routing/roles.ts";

export function certified(node: NodeRow): string {
  return JSON.stringify([node.name, node.ip, certifiedGroups(node), node.subnets, isExit(node)]);
}

/** Whether the certificate of `from` grants something that the certificate of `to` does not. */
export function granted(from: NodeRecord, to: NodeRecord): boolean {
  return from.name !== to.name || from.ip !== to.ip || gains(to, from);
}

/** Whether `to` grants a group, a subnet or the internet that `from` does not. */
function gains(from: NodeRecord, to: NodeRecord): boolean {
  const isNowExit = isExit(to) && !isExit(from);
  return isNowExit || gainsGroup(from, to) || hasMore(from.subnets, to.subnets);
}

const hasMore = (old: readonly string[], now: readonly string[]) => now.some((each) => !old.includes(each));

type Grouped = Pick<NodeRow, "groups" | "ownerGroups" | "ownerId">;

/** Whether the certificate of `to` has a group that the one of `from` has not. */
export function gainsGroup(from: Grouped, to: Grouped): boolean {
  return hasMore(certifiedGroups(from), certifiedGroups(to));
}

/** Whether configurations of other nodes change. Rules that name the node are not looked at. */
export function affectsOthers(before: NodeRecord, after: NodeRecord): boolean {
  const shown = (node: NodeRecord) => {
    const { ip, isLighthouse, isRelay, publicIp, externalPort, tcp } = node;
    // The addresses for TCP fallback, which other nodes get, contain the engine's own port.
    const port = tcp === null ? undefined : valueAt(node.configOverrides, "listen.port");
    const routed = [node.subnets, node.routeOptions, node.exitGroups, isExit(node) && node.name];
    return JSON.stringify([ip, isLighthouse, isRelay, publicIp, externalPort, port, routed]);
  };
  return (isConfigured(before) || isConfigured(after)) && shown(before) !== shown(after);
}

export function audited(node: NodeRow): Record<string, unknown> {
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
