// The orders that a rollout gives to nodes, in a column of the node: its check-ins send the order until the node has carried it
// out. An order to change has the number of the rollout, an order to go back the next one.

import type { UpdateOrder } from "../../protocol/updates/order.ts";
import type { Transaction } from "../store/database.ts";
import { nodes } from "../store/tables/nodes.ts";
import { orderOf, type RolloutRow } from "../store/tables/rollouts.ts";

/** The state of the node: `told` to change, or `returning` to what it ran before. */
const orderedStates = ["told", "returning"] as const;
type OrderedState = (typeof orderedStates)[number];

/** The column's text. Orders are found by this text when they are withdrawn, so the same order must always give the same one. */
function orderText(row: RolloutRow, state: OrderedState): string {
  const { agent, engine, settings, watchS } = row;
  const number = orderOf(row);
  const order: UpdateOrder = {
    ...(state === "told" ? { order: number } : { order: number + 1, back: true }),
    ...(agent === null ? {} : { agent }),
    ...(engine === null ? {} : { engine }),
    ...(settings === null ? {} : { settings: true }),
    watch_s: watchS,
  };
  return JSON.stringify(order);
}

/**
 * Withdraws the orders to change from all nodes that still have one. In a rollout of settings, nodes that passed have theirs, too:
 * config.yml holds the settings because of the order.
 */
export async function endOrders(tx: Transaction, row: RolloutRow): Promise<void> {
  await nodes.update(tx, { orgId: row.orgId, updateOrder: orderText(row, "told") }, { updateOrder: null });
}

export async function giveOrder(
  tx: Transaction,
  row: RolloutRow,
  nodeId: number,
  state: OrderedState,
): Promise<void> {
  await nodes.update(tx, { id: nodeId }, { updateOrder: orderText(row, state) });
}

/**
 * Withdraws the order of one node. One of another rollout stays: a node that was away may still have to go back from an earlier
 * rollout, or have its order of the next one.
 */
export async function endOrder(tx: Transaction, row: RolloutRow, nodeId: number): Promise<void> {
  for (const state of orderedStates)
    await nodes.update(tx, { id: nodeId, updateOrder: orderText(row, state) }, { updateOrder: null });
}
