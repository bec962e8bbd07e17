// What a rollback brings back of routes, relays and aliases. Meanwhile machines may have registered, so some of it may not be
// possible any more: that is left out. One machine must not keep a policy in force that nobody confirmed.

import { AppError } from "../../errors.ts";
import { readIssuingOrg } from "../certificates/issue.ts";
import { insertAlias } from "../names/aliases.ts";
import { checkHub, checkSubnets, hubOf, parsedNetworks, refuseRouted } from "../nodes/subnets.ts";
import type { Transaction } from "../store/database.ts";
import { nodes, type NodeRow } from "../store/tables/nodes.ts";
import type { Changes, NodeChange } from "./differences.ts";

/** The sentence of what was refused is added to the list. */
async function isPossible(check: Promise<unknown>, leftOut: string[]): Promise<boolean> {
  try {
    await check;
    return true;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    leftOut.push(error.message);
    return false;
  }
}

/** Without the routes and relays that would be refused now. */
export async function possibleChanges(
  tx: Transaction,
  orgId: number,
  changes: readonly NodeChange[],
  leftOut: string[],
): Promise<NodeChange[]> {
  const org = await readIssuingOrg(tx, orgId);
  const givenUp = new Set(changes.flatMap(({ subnets }) => subnets.remove));
  const back: string[] = [];
  const routed: NodeChange[] = [];
  for (const change of changes) {
    const node = change.subnets.add.length > 0 ? await nodes.find(tx, { orgId, id: change.id }) : undefined;
    const add: string[] = [];
    for (const network of change.subnets.add) {
      // Another node gives it up in this very rollback, and before.
      const isFree =
        givenUp.has(network) || (await isPossible(checkSubnets(tx, org, [network], node), leftOut));
      if (isFree) add.push(network);
    }
    back.push(...add);
    routed.push({ ...change, subnets: { ...change.subnets, add } });
  }
  const found: NodeChange[] = [];
  for (const change of routed) {
    const node = change.relay === true ? await nodes.find(tx, { orgId, id: change.id }) : undefined;
    const mayBe = node === undefined || (await isPossible(requireUnrouted(tx, node, back), leftOut));
    found.push(mayBe ? change : { ...change, relay: null });
  }
  return found;
}

/** `back`: networks that are routed again. */
async function requireUnrouted(tx: Transaction, relay: NodeRow, back: readonly string[]): Promise<void> {
  await checkHub(tx, relay.orgId, { ...relay, isRelay: true });
  refuseRouted(hubOf(relay), parsedNetworks(back));
}

type Aliases = Changes["aliases"]["create"];

/** After the nodes: an address has to be behind its node. */
export async function bringAliasesBack(
  tx: Transaction,
  orgId: number,
  list: Aliases,
  { now, leftOut }: { now: number; leftOut: string[] },
): Promise<Aliases> {
  const created: Aliases = [];
  for (const { name, nodeId, address } of list) {
    const node = await nodes.find(tx, { orgId, id: nodeId });
    if (node === undefined || node.state === "revoked") continue;
    const alias = insertAlias(tx, { id: orgId }, { name, node: nodeId, address }, now, true);
    if (await isPossible(alias, leftOut)) created.push({ name, nodeId, address });
  }
  return created;
}
