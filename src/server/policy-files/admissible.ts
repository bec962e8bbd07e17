// Refuses a plan that cannot be applied: runs the checks of execute.ts, with the same sentences, on the state after the changes.

import { AppError } from "../../base/errors.ts";
import { inSlices, nextRound } from "../http/heavy-work.ts";
import { requireFewAliases, requireFreeName, requireRouted } from "../names/aliases.ts";
import { maxGroups } from "../../api/nodes.ts";
import { maxSubnets } from "../../protocol/routing/advertised.ts";
import {
  hubOf,
  parsedNetworks,
  readObstacles,
  refuseRouted,
  requireRoutable,
  routersByNetwork,
} from "../nodes/subnets.ts";
import { readIssuingOrg } from "../certificates/issue.ts";
import { requireFewProviderGroups } from "../policy/group-users.ts";
import type { PolicyNode } from "../policy/policy-nodes.ts";
import type { Reader } from "../store/database.ts";
import { findNode } from "../store/nodes.ts";
import type { Current, Changes, NodeChange } from "./differences.ts";
import { requireFewRules } from "./execute.ts";

/** `after`: the nodes as they would be. Throws validation_failed, conflict, name_taken or too_many_rules. */
export async function requireAdmissible(
  reader: Reader,
  orgId: number,
  current: Pick<Current, "rules" | "nodes" | "aliases" | "providerGroups">,
  changes: Changes,
  after: readonly PolicyNode[],
): Promise<void> {
  requireFewRules(current.rules.length, changes.rules);
  const { add, remove } = changes.providerGroups;
  if (add.length > 0) requireFewProviderGroups(current.providerGroups.length + add.length - remove.length);
  await requireRoutes(reader, orgId, current.nodes, changes.nodes, after);
  const { create, delete: deleted } = changes.aliases;
  if (create.length === 0) return;
  requireFewAliases(current.aliases.length + create.length - deleted.length);
  const byId = new Map(after.map((node) => [node.id, node]));
  for (const [index, { name, nodeId, address }] of create.entries()) {
    const node = byId.get(nodeId);
    if (node !== undefined) requireRouted(node, address);
    await requireFreeName(reader, { id: orgId }, name);
    if (index % 20 === 19) await nextRound();
  }
}

async function requireRoutes(
  reader: Reader,
  orgId: number,
  before: readonly PolicyNode[],
  changes: readonly NodeChange[],
  after: readonly PolicyNode[],
): Promise<void> {
  if (changes.length === 0) return;
  const org = await readIssuingOrg(reader, orgId);
  const { controlPlane, hubs: hubsBefore } = await readObstacles(reader, orgId);
  const relays = new Map(changes.map(({ id, relay }) => [id, relay]));
  const hubs = hubsBefore.filter(({ id, isLighthouse }) => isLighthouse || relays.get(id) !== false);
  const known = new Set(hubs.map(({ id }) => id));
  for (const { id, relay } of changes) {
    if (relay === true && !known.has(id)) hubs.push(hubOf(await findNode(reader, orgId, id)));
  }
  const nodesAfter = new Map(after.map((node) => [node.id, node]));
  const nodesBefore = new Map(before.map((node) => [node.id, node]));
  await inSlices(check());

  function* check(): Generator<unknown, void> {
    const routing = { controlPlane, hubs };
    const all = parsedNetworks(routersByNetwork(after).keys());
    for (const { id, subnets, groups, relay } of changes) {
      yield;
      const [node, nodeBefore] = [nodesAfter.get(id), nodesBefore.get(id)];
      if (node === undefined || nodeBefore === undefined) continue;
      const { name } = node;
      if (groups.add.length > 0) requireCount(name, "groups", node.given.length, maxGroups);
      if (subnets.add.length > 0) requireCount(name, "subnets", node.subnets.length, maxSubnets);
      if (subnets.add.length + subnets.remove.length > 0)
        requireRoutable(org, routing, node.subnets, nodeBefore);
      const hub = relay === true ? hubs.find((each) => each.id === id) : undefined;
      if (hub !== undefined) refuseRouted(hub, all);
    }
  }
}

function requireCount(name: string, what: string, count: number, most: number): void {
  if (count <= most) return;
  throw new AppError(
    "validation_failed",
    `The node ${name} would have ${count} ${what}; the maximum is ${most}.`,
  );
}
