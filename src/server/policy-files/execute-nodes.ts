// Changes groups, routes and relay roles of nodes, for execute.ts. In a rollback, what cannot be changed any more is left out.

import type { Actor, AuditEvent } from "../audit/record.ts";
import { readIssuingOrg } from "../certificates/issue.ts";
import { changeNode } from "../nodes/nodes.ts";
import { changeGroups, readGrouped } from "../nodes/change-groups.ts";
import { checkSubnets } from "../nodes/subnets.ts";
import type { Transaction } from "../store/database.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import { isEmpty, noDelta, withDelta, type NodeChange } from "./differences.ts";
import { attempt, makeGroups, type Rollback } from "./rollback.ts";
import type { NodeStore } from "../nodes/node-store.ts";

export type Executing = Pick<NodeStore, "authorities" | "secretKey" | "system">;

/** Returns the changes of nodes that were made (`done`), and the events of certificates that were issued. */
export async function changeNodes(
  tx: Transaction,
  services: Executing,
  orgId: number,
  changes: readonly NodeChange[],
  actor: Actor,
  rollback: Rollback | undefined,
): Promise<{ done: NodeChange[]; issued: AuditEvent[] }> {
  const isOfGroupsOnly = ({ subnets, relay }: NodeChange) => isEmpty(subnets) && relay === null;
  // In a rollback each part is a change of its own: one that is left out must not take the others of its node with it.
  const parts = rollback === undefined ? changes : changes.flatMap(partsOf);
  const ofGroupsOnly = parts.filter(isOfGroupsOnly);
  /** The ids of the nodes that were changed. */
  const changed = await changeGroupsOnly(tx, orgId, ofGroupsOnly, services.system.now(), rollback);
  const issued: AuditEvent[] = [];
  for (const { id, groups, subnets, relay } of inOrder(parts.filter((each) => !isOfGroupsOnly(each)))) {
    const node = await nodes.find(tx, { orgId, id });
    // A node that was revoked between an application and its rollback stays as it is.
    if (node === undefined || node.state === "revoked") continue;
    const routes = { ...subnets, add: await possibleRoutes(tx, orgId, node, subnets.add, rollback) };
    const patch = {
      ...(isEmpty(groups) ? {} : { groups: withDelta(node.groups, groups) }),
      ...(isEmpty(routes) ? {} : { subnets: withDelta(node.subnets, routes) }),
      ...(relay === null ? {} : { is_relay: relay }),
    };
    if (Object.keys(patch).length === 0) continue;
    const change = () => changeNode(tx, services, { id: orgId }, id, patch, actor);
    const result = await attempt(tx, rollback, `The node ${node.name}`, change);
    if (result === undefined) continue;
    issued.push(...result.issued);
    changed.add(id);
  }
  return { done: changes.filter(({ id }) => changed.has(id)), issued };
}

/** Groups, routes that go, routes that come and the role of a relay, each a change of its own. */
function partsOf(change: NodeChange): NodeChange[] {
  const { id, name, groups, subnets, relay } = change;
  const nothing = { id, name, groups: noDelta, subnets: noDelta, relay: null };
  return [
    ...(isEmpty(groups) ? [] : [{ ...nothing, groups }]),
    ...(subnets.remove.length === 0 ? [] : [{ ...nothing, subnets: { add: [], remove: subnets.remove } }]),
    ...(subnets.add.length === 0 ? [] : [{ ...nothing, subnets: { add: subnets.add, remove: [] } }]),
    ...(relay === null ? [] : [{ ...nothing, relay }]),
  ];
}

/**
 * Those of the routes that the node can get. A rollback leaves out what is refused now, such as a route that holds the public address
 * of a new relay; else all are returned, and changeNode throws.
 */
async function possibleRoutes(
  tx: Transaction,
  orgId: number,
  node: NodeRow,
  add: string[],
  rollback: Rollback | undefined,
): Promise<string[]> {
  if (rollback === undefined || add.length === 0) return add;
  const org = await readIssuingOrg(tx, orgId);
  const possible: string[] = [];
  for (const route of add) {
    const subnets = withDelta(node.subnets, { add: [...possible, route], remove: [] });
    const check = async () => {
      await checkSubnets(tx, org, subnets, node);
      possible.push(route);
    };
    await attempt(tx, rollback, `The route ${route} of ${node.name}`, check);
  }
  return possible;
}

/** Changes the groups of many nodes with few statements. Returns the ids of the nodes; revoked ones are left out. */
async function changeGroupsOnly(
  tx: Transaction,
  orgId: number,
  changes: readonly NodeChange[],
  now: number,
  rollback: Rollback | undefined,
): Promise<Set<number>> {
  const deltas = new Map(changes.map(({ id, groups }) => [id, groups]));
  const found = await readGrouped(tx, orgId, [...deltas.keys()]);
  const regrouped = found.map((before) => {
    const groups = withDelta(before.groups, deltas.get(before.id) ?? noDelta);
    return { before, after: { ...before, groups } };
  });
  const names = [...new Set(regrouped.flatMap(({ after }) => after.groups))];
  await makeGroups(tx, orgId, names, now, rollback);
  // A rollback gives nodes their groups back even where the limit of certificates would refuse that.
  await changeGroups(tx, orgId, regrouped, now, { isBounded: rollback === undefined });
  return new Set(regrouped.map(({ before }) => before.id));
}

/**
 * Removals come first: a node becomes a relay, and its public address is in a network that is routed until then, perhaps by a node
 * that gains another network.
 * The removals of a gaining node are made twice, which changes nothing the second time.
 */
function inOrder(changes: readonly NodeChange[]): NodeChange[] {
  const isGain = ({ subnets, relay }: NodeChange) => subnets.add.length > 0 || relay === true;
  const gains = changes.filter(isGain);
  const removalsOfGains = gains.flatMap(({ id, name, subnets }): NodeChange[] =>
    subnets.remove.length === 0
      ? []
      : [{ id, name, groups: noDelta, subnets: { add: [], remove: subnets.remove }, relay: null }],
  );
  return [...changes.filter((change) => !isGain(change)), ...removalsOfGains, ...gains];
}
