// Refuses a plan that execute.ts could not apply: runs the checks of execute.ts, with the same sentences, on the state after the
// changes.

import { inSlices, nextRound } from "../http/heavy-work.ts";
import { requireFewAliases, requireFreeName, requireRouted } from "../names/aliases.ts";
import { maxGroups } from "../../api/nodes.ts";
import {
  hubOf,
  parsedNetworks,
  readObstacles,
  refuseRouted,
  requireRoutable,
  routersByNetwork,
  tooMany,
} from "../nodes/subnets.ts";
import { refuseHub } from "../nodes/nodes.ts";
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
  await requireNodes(reader, orgId, current.nodes, changes.nodes, after);
  await requireAliases(reader, orgId, current.aliases.length, changes.aliases, after);
}

/** `count`: of the aliases before. `after`: the nodes as they would be. */
async function requireAliases(
  reader: Reader,
  orgId: number,
  count: number,
  aliases: Changes["aliases"],
  after: readonly PolicyNode[],
): Promise<void> {
  if (aliases.create.length === 0) return;
  requireFewAliases(count + aliases.create.length - aliases.delete.length);
  const byId = new Map(after.map((node) => [node.id, node]));
  for (const [index, { name, nodeId, address }] of aliases.create.entries()) {
    const node = byId.get(nodeId);
    if (node !== undefined) requireRouted(node, address);
    await requireFreeName(reader, { id: orgId }, name);
    if (index % 20 === 19) await nextRound();
  }
}

/** Checks the nodes that change. The nodes `before` and `after` are the same ones. */
async function requireNodes(
  reader: Reader,
  orgId: number,
  before: readonly PolicyNode[],
  changes: readonly NodeChange[],
  after: readonly PolicyNode[],
): Promise<void> {
  if (changes.length === 0) return;
  const org = await readIssuingOrg(reader, orgId);
  const { controlPlane, hubs: hubsBefore } = await readObstacles(reader, orgId);
  const relayChanges = new Map(changes.map(({ id, relay }) => [id, relay]));
  // The lighthouses and relays as they would be.
  const hubs = hubsBefore.filter(({ id, isLighthouse }) => isLighthouse || relayChanges.get(id) !== false);
  const hubIds = new Set(hubs.map(({ id }) => id));
  for (const { id, relay } of changes) {
    if (relay === true && !hubIds.has(id)) hubs.push(hubOf(await findNode(reader, orgId, id)));
  }
  const nodesAfter = new Map(after.map((node) => [node.id, node]));
  const nodesBefore = new Map(before.map((node) => [node.id, node]));
  await inSlices(check());

  /** No hub's address may be in a routed network: compares changed subnets with all hubs, and new relays with all subnets. */
  function* check(): Generator<unknown, void> {
    const obstacles = { controlPlane, hubs };
    const allNetworks = parsedNetworks(routersByNetwork(after).keys());
    for (const { id, subnets, groups, relay } of changes) {
      yield;
      const [node, nodeBefore] = [nodesAfter.get(id), nodesBefore.get(id)];
      if (node === undefined || nodeBefore === undefined) continue;
      const { name } = node;
      // Groups that nodes have by their owners do not count.
      if (groups.add.length > 0 && node.given.length > maxGroups)
        throw tooMany(name, "groups", node.given.length, maxGroups);
      // Ephemeral nodes are not among these.
      refuseHub(
        { phone: node.phone, ephemeralSilenceS: null },
        { subnets: subnets.add, is_relay: relay ?? false },
      );
      // Subnets that the node has already are permitted in more forms than new ones.
      if (subnets.add.length + subnets.remove.length > 0)
        requireRoutable(org, obstacles, node.subnets, nodeBefore);
      const newRelay = relay === true ? hubs.find((hub) => hub.id === id) : undefined;
      if (newRelay !== undefined) refuseRouted(newRelay, allNetworks);
    }
  }
}
