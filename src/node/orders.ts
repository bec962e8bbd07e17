// Signed orders of the control plane: the only thing that stops an organization here, or starts it again (decisions 6).
// An order counts if the pinned order key signed it, it is for this node, and its number is higher than the last one's.

import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../duration.ts";
import { AppError } from "../errors.ts";
import { writeFileAtomic } from "../files.ts";
import type { Log } from "../log.ts";
import { Order } from "../protocol.ts";
import {
  readJsonFile,
  readRevokedNote,
  removeRevokedNote,
  writeRevokedNote,
  type Organization,
} from "./organizations.ts";

const Taken = v.object({ jws: v.string(), order: Order });

/**
 * Checks an order and remembers it; the last one taken passes again, because a kill may have come before it was carried
 * out. Throws untrusted_answer where it does not count.
 */
export async function takeOrder(jws: string, { slug, directory, config }: Organization): Promise<Order> {
  const path = join(directory, "orders.json");
  const last = readJsonFile(path, Taken);
  // It comes with every answer for as long as it is in force: what was checked once is not checked again.
  if (last?.jws === jws) return last.order;
  if (config.order_key === undefined)
    throw new AppError("untrusted_answer", `No order key is known for "${slug}"`);
  const { verifyOrder } = await import("../pki/tokens.ts");
  const order = await verifyOrder(jws, config.order_key);
  if (order.org !== slug || order.node_id !== config.node_id) {
    throw new AppError("untrusted_answer", "The order is for another node");
  }
  if (last !== undefined && order.seq <= last.order.seq) {
    throw new AppError("untrusted_answer", "The order is not newer than one that was already taken");
  }
  writeFileAtomic(path, `${JSON.stringify({ jws, order })}\n`, 0o644);
  return order;
}

export type Stopping = {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** False where a person has stopped it; unset where only wanted ones are asked about. */
  wanted?(): Promise<boolean>;
};

/** "stopped" and "started" on the transition, "none" where the order is already in force. */
export async function carryOut(
  order: Pick<Order, "action" | "reason" | "node_id">,
  { directory, slug }: Organization,
  engine: Stopping,
  edge: { now(): number; log: Log },
): Promise<"stopped" | "started" | "none"> {
  const note = readRevokedNote(directory);
  if (order.action === "revoke") {
    // The note first: nothing starts the engine again while it is there.
    if (note === undefined) {
      const wasWanted = (await engine.wanted?.()) ?? true;
      writeRevokedNote(directory, {
        revoked_at: formatTime(edge.now()),
        reason: order.reason,
        node_id: order.node_id,
        was_wanted: wasWanted,
      });
      edge.log.warn("The control plane has revoked this node; its overlay is stopped", {
        team: slug,
        reason: order.reason,
      });
    }
    await engine.stop();
    return note === undefined ? "stopped" : "none";
  }
  if (note === undefined) return "none";
  removeRevokedNote(directory);
  const start = note.was_wanted !== false;
  edge.log.info(
    start
      ? "The control plane has restored this node; its overlay starts again"
      : "The control plane has restored this node; its overlay was stopped before and stays so",
    { team: slug },
  );
  if (start) await engine.start();
  return start ? "started" : "none";
}
