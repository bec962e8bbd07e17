// Signed orders of the control plane: the only thing that stops an organization here, or starts it again (decisions 6).
// An order counts if the pinned order key signed it, it is for this node, and its number is higher than the last one's.

import { join } from "node:path";
import * as v from "valibot";
import { formatTime } from "../duration.ts";
import { AppError } from "../errors.ts";
import { writeFileAtomic } from "../files.ts";
import type { Log } from "../log.ts";
import type { Order } from "../protocol.ts";
import {
  readJsonFile,
  readRevokedNote,
  removeRevokedNote,
  writeRevokedNote,
  type Organization,
} from "./organizations.ts";

const Taken = v.object({ seq: v.number(), action: v.picklist(["revoke", "restore"]) });

/**
 * Checks an order and remembers its number; the last one taken passes again, because a kill may have come before it was
 * carried out. Throws untrusted_answer where it does not count.
 */
export async function takeOrder(jws: string, { slug, directory, config }: Organization): Promise<Order> {
  if (config.order_key === undefined)
    throw new AppError("untrusted_answer", `No order key is known for "${slug}"`);
  const { verifyOrder } = await import("../pki/tokens.ts");
  const order = await verifyOrder(jws, config.order_key);
  if (order.org !== slug || order.node_id !== config.node_id) {
    throw new AppError("untrusted_answer", "The order is for another node");
  }
  const path = join(directory, "orders.json");
  const last = readJsonFile(path, Taken);
  if (last !== undefined && order.seq < last.seq) {
    throw new AppError("untrusted_answer", "The order is older than one that was already taken");
  }
  if (last?.seq !== order.seq) {
    writeFileAtomic(path, `${JSON.stringify({ seq: order.seq, action: order.action })}\n`, 0o644);
  }
  return order;
}

export type Stopping = { start(): Promise<void>; stop(): Promise<void> };

/** "stopped" and "started" on the transition, "none" where the order is already in force. */
export async function carryOut(
  order: Order,
  organization: Organization,
  engine: Stopping,
  edge: { now(): number; log: Log },
): Promise<"stopped" | "started" | "none"> {
  const { directory, slug } = organization;
  const stopped = readRevokedNote(directory) !== undefined;
  if (order.action === "revoke") {
    // The note first: nothing starts the engine again while it is there.
    if (!stopped) {
      const note = { revoked_at: formatTime(edge.now()), reason: order.reason, node_id: order.node_id };
      writeRevokedNote(directory, note);
      edge.log.warn("The control plane has revoked this node; its overlay is stopped", {
        team: slug,
        reason: order.reason,
      });
    }
    await engine.stop();
    return stopped ? "none" : "stopped";
  }
  if (!stopped) return "none";
  removeRevokedNote(directory);
  edge.log.info("The control plane has restored this node; its overlay starts again", { team: slug });
  await engine.start();
  return "started";
}
