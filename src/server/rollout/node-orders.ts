// The orders of a rollout: each node that it tells has one, until it has carried it out.

import type { UpdateOrder } from "../../protocol/updates/order.ts";
import type { Transaction } from "../store/database.ts";
import { nodes } from "../store/tables/nodes.ts";
import { orderOf, type RolloutRow } from "../store/tables/rollouts.ts";

const ways = ["told", "returning"] as const;
type Way = (typeof ways)[number];

function orderText(row: RolloutRow, way: Way): string {
  const { agent, engine, settings, watchS } = row;
  const number = orderOf(row);
  const order: UpdateOrder = {
    ...(way === "told" ? { order: number } : { order: number + 1, back: true }),
    ...(agent === null ? {} : { agent }),
    ...(engine === null ? {} : { engine }),
    ...(settings === null ? {} : { settings: true }),
    watch_s: watchS,
  };
  return JSON.stringify(order);
}

/** Of all nodes that have passed. */
export async function endOrders(tx: Transaction, row: RolloutRow): Promise<void> {
  await nodes.update(tx, { orgId: row.orgId, updateOrder: orderText(row, "told") }, { updateOrder: null });
}

export async function giveOrder(tx: Transaction, row: RolloutRow, nodeId: number, way: Way): Promise<void> {
  await nodes.update(tx, { id: nodeId }, { updateOrder: orderText(row, way) });
}

/** Orders of other rollouts stay: a node that is away may have to go back from an earlier one, or have been told by the next one. */
export async function endOrder(tx: Transaction, row: RolloutRow, nodeId: number): Promise<void> {
  for (const way of ways)
    await nodes.update(tx, { id: nodeId, updateOrder: orderText(row, way) }, { updateOrder: null });
}
