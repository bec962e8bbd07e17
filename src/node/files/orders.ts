// Signed orders of the control plane: only they revoke or restore this node. An order is valid if the pinned order key
// signed it, it names this node, and its sequence number is higher than that of the last order.

import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { brand } from "../../brand.ts";
import { AppError, messageOf } from "../../errors.ts";
import { removeTree, writeFileAtomic } from "../../files.ts";
import type { Log } from "../../log.ts";
import { NodeConfig, Order } from "../../protocol.ts";
import { readJsonFile, readValidJson, type Organization } from "./organizations.ts";
import {
  damagedNote,
  readRestoredNote,
  readRevokedNote,
  removeRestoredNote,
  revokedNotePath,
  beginRestore,
  writeRevokedNote,
} from "./revoked-notes.ts";

export const Taken = v.object({ jws: v.pipe(v.string(), v.maxLength(32_768)), order: Order });

/**
 * Verifies and records an order. The last recorded order is accepted again: a kill may have come before it was carried
 * out. Throws untrusted_answer if the order is not valid. orders.json prevents the replay of old orders. A revocation is
 * accepted even if that file is damaged, a restore is not.
 */
export async function acceptOrder(
  jws: string,
  { slug, directory, config }: Organization,
  engine: Pick<Stopping, "stop">,
): Promise<Order> {
  const path = join(directory, "orders.json");
  const history = readHistory(path);
  const last = "damage" in history ? undefined : history.last;
  // The control plane repeats an order in every answer while it is in force: verify it once.
  if (last?.jws === jws) return last.order;
  if (config.order_key === undefined)
    throw new AppError("untrusted_answer", `No order key is known for "${slug}"`);
  const { verifyOrder } = await import("../../pki/tokens.ts");
  const order = await verifyOrder(jws, config.order_key);
  if (order.org !== slug || order.node_id !== config.node_id) {
    throw new AppError("untrusted_answer", "The order is for another node");
  }
  if (last !== undefined && order.seq <= last.order.seq) {
    throw new AppError("untrusted_answer", "The order is not newer than one that was already taken");
  }
  if ("damage" in history && order.action === "restore") {
    throw new AppError(
      "bad_configuration",
      `Cannot carry out the order that restores this node, because it may be a replayed one: ${messageOf(history.damage)}`,
      { cause: history.damage, hint: `Register again: \`${brand.executable} register --force\`.` },
    );
  }
  const remember = () => {
    if ("damage" in history) removeTree(path);
    writeFileAtomic(path, `${JSON.stringify({ jws, order })}\n`, 0o644);
  };
  if (order.action === "revoke") await orStopEngine(remember, engine);
  else remember();
  return order;
}

type History = { last: { jws: string; order: Order } | undefined } | { damage: unknown };

function readHistory(path: string): History {
  try {
    return { last: readJsonFile(path, Taken) };
  } catch (damage) {
    return { damage };
  }
}

/** Copies the last order when the same node registers again, so that older orders stay invalid. */
export function keepOrders(from: string, to: string): void {
  const [previous, next] = [from, to].map((each) =>
    readValidJson(join(each, "node-config.json"), NodeConfig),
  );
  if (previous === undefined || next === undefined || previous.node_id !== next.node_id) return;
  if (previous.order_key === undefined || previous.order_key.x !== next.order_key?.x) return;
  const last = readValidJson(join(from, "orders.json"), Taken);
  if (last !== undefined) writeFileAtomic(join(to, "orders.json"), `${JSON.stringify(last)}\n`, 0o644);
}

/** Stops the engine even if the write fails: a full disk must not keep a revoked node's overlay running. */
async function orStopEngine(write: () => void, engine: Pick<Stopping, "stop">): Promise<void> {
  try {
    write();
  } catch (error) {
    await engine.stop();
    throw error;
  }
}

export type Stopping = {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** False if a user has stopped the overlay: then a restore does not start it. Unset: always true. */
  wanted?(): Promise<boolean>;
};

/**
 * "stopped" and "started" report the transition, "none" an order that is already in force. What the user wants (`wanted`)
 * is only read, and only at the restore: start and stop also count while the node is revoked.
 */
export async function carryOut(
  order: Pick<Order, "action" | "reason" | "node_id">,
  { directory, slug }: Organization,
  engine: Stopping,
  edge: { now(): number; log: Log },
): Promise<"stopped" | "started" | "none"> {
  const note = readRevokedNote(directory);
  if (order.action === "revoke") {
    const isNoted = note !== undefined && note !== damagedNote;
    // Write the note first: nothing starts the engine while it exists.
    if (!isNoted) {
      const write = () => {
        if (note === damagedNote) removeTree(revokedNotePath(directory));
        writeRevokedNote(directory, {
          revoked_at: formatTime(edge.now()),
          reason: order.reason,
          node_id: order.node_id,
        });
      };
      await orStopEngine(write, engine);
      // This ends an interrupted restore: the next restore needs a new order.
      removeRestoredNote(directory);
      edge.log.warn("The control plane has revoked this node; its overlay is stopped", {
        team: slug,
        reason: order.reason,
      });
    }
    await engine.stop();
    return isNoted ? "none" : "stopped";
  }
  const left = note ?? readRestoredNote(directory);
  if (left === undefined) return "none";
  if (note !== undefined) beginRestore(directory);
  const start = left.was_wanted !== false && ((await engine.wanted?.()) ?? true);
  edge.log.info(
    start
      ? "The control plane has restored this node; its overlay starts again"
      : "The control plane has restored this node; its overlay stays stopped until a user starts it",
    { team: slug },
  );
  if (start) await engine.start();
  // Remove it last: after an interruption, the next check-in continues the restore.
  removeRestoredNote(directory);
  return start ? "started" : "none";
}
