// Signed orders of the control plane: only they revoke or restore this node. An order is valid if the pinned order key
// signed it, it names this node, and its sequence number is higher than that of the last order. `acceptOrder` verifies one and records
// it in orders.json; `carryOut` then stops or starts the engine.

import { given } from "../../base/given.ts";
import { join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError, messageOf } from "../../base/errors.ts";
import { removeTree, writeFileAtomic } from "../../base/files.ts";
import type { Log } from "../../base/log.ts";
import { Order } from "../../protocol/orders.ts";
import { NodeConfig } from "../../protocol/organization-files.ts";
import type { OrderKey } from "../../protocol/values.ts";
import type { Organization } from "./organizations.ts";
import { readJsonFile, readValidJson } from "./json-file.ts";
import {
  damagedNote,
  readRestoredNote,
  readRevokedNote,
  removeRestoredNote,
  beginRestore,
  writeRevokedNote,
  type RevokedNote,
} from "./revoked-notes.ts";

/** orders.json: the last order that was accepted. It prevents the replay of older ones. */
export const StoredOrder = v.object({ jws: boundedText(32_768), order: Order });

/**
 * Verifies and records an order. The last recorded order is accepted again: a kill may have come before it was carried
 * out. Throws untrusted_answer if the order is not valid. A revocation is accepted even if orders.json is damaged or cannot be
 * written (`unsaved`): a full disk must not keep a revoked node's overlay running. A restore is not accepted then.
 */
export async function acceptOrder(
  jws: string,
  organization: Organization,
): Promise<{ order: Order; unsaved?: AppError }> {
  const path = join(organization.directory, "orders.json");
  const history = readHistory(path);
  const order = await examine(jws, organization, history);
  if (!("damage" in history) && history.last?.jws === jws) return { order };
  try {
    // A directory may be in place of the file: no write replaces that.
    if ("damage" in history) removeTree(path);
    writeFileAtomic(path, `${JSON.stringify({ jws, order })}\n`, 0o644);
  } catch (error) {
    const unsaved = fromSystemError(`write ${path}`, error);
    if (order.action === "restore") throw unsaved;
    return { order, unsaved };
  }
  return { order };
}

/** Verifies an order, and records nothing. Throws like acceptOrder. */
export function examineOrder(jws: string, organization: Organization): Promise<Order> {
  return examine(jws, organization, readHistory(join(organization.directory, "orders.json")));
}

async function examine(jws: string, organization: Organization, history: History): Promise<Order> {
  const { slug, directory, config } = organization;
  const last = "damage" in history ? undefined : history.last;
  // The control plane repeats an order in every answer while it is in force: verify it once.
  const isRepeated = last?.jws === jws;
  const order = isRepeated ? last.order : await verified(jws, organization);
  refuseRestoreIfDamaged(order, organization);
  if (isRepeated) return order;
  if (order.org !== slug || order.node_id !== config.node_id) {
    throw new AppError("untrusted_answer", "The order is for another node");
  }
  const note = last === undefined ? readRevokedNote(directory) : undefined;
  if (!isNewer(order, last?.order, note))
    throw new AppError("untrusted_answer", "The order is not newer than one that was already taken");
  if ("damage" in history && order.action === "restore") {
    throw new AppError(
      "bad_configuration",
      `Cannot carry out the order that restores this node, because it may be a replayed one: ${messageOf(history.damage)}`,
      { cause: history.damage, hint: `Register again: \`${brand.executable} register --force\`.` },
    );
  }
  return order;
}

/**
 * Whether an order is newer than the last one. If orders.json is gone or damaged, the note of a revocation has the number: then the same
 * revocation is also accepted again, which changes nothing, but no restore with this number.
 */
function isNewer(order: Order, last: Order | undefined, note: RevokedNote | undefined): boolean {
  if (last !== undefined) return order.seq > last.seq;
  if (note?.seq === undefined) return true;
  return order.seq > note.seq || (order.seq === note.seq && order.action === "revoke");
}

/** If node-config.json is damaged, the order key of any of its copies counts. */
async function verified(jws: string, organization: Organization): Promise<Order> {
  const { verifyOrder } = await import("../../pki/signed-messages.ts");
  let refusal: unknown = new AppError("untrusted_answer", `No order key is known for "${organization.slug}"`);
  for (const key of orderKeysOf(organization)) {
    try {
      return await verifyOrder(jws, key);
    } catch (error) {
      refusal = error;
    }
  }
  throw refusal;
}

/** Empty for a control plane that never sent one. */
export function orderKeysOf({ config, damage }: Pick<Organization, "config" | "damage">): OrderKey[] {
  if (damage !== undefined) return damage.orderKeys;
  return config.order_key === undefined ? [] : [config.order_key];
}

/** Throws for a restore while node-config.json is damaged: its copy may have a former order key, which must not restore a node. */
function refuseRestoreIfDamaged({ action }: Order, { damage }: Organization): void {
  if (damage !== undefined && action === "restore") throw damage.error;
}

type History = { last: v.InferOutput<typeof StoredOrder> | undefined } | { damage: unknown };

function readHistory(path: string): History {
  try {
    return { last: readJsonFile(path, StoredOrder) };
  } catch (damage) {
    return { damage };
  }
}

/** Copies the last order when the same node registers again with the same order key, so that older orders stay invalid. */
export function keepOrders(from: string, to: string): void {
  const nodeIn = (directory: string) => readValidJson(join(directory, "node-config.json"), NodeConfig);
  const former = nodeIn(from);
  const next = nodeIn(to);
  if (former === undefined || next === undefined || former.node_id !== next.node_id) return;
  if (former.order_key === undefined || former.order_key.x !== next.order_key?.x) return;
  const last = readValidJson(join(from, "orders.json"), StoredOrder);
  if (last !== undefined) writeFileAtomic(join(to, "orders.json"), `${JSON.stringify(last)}\n`, 0o644);
}

/** An engine that orders stop and start. */
export type StoppableEngine = {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** False if a user has stopped the overlay: then a restore does not start it. Unset: always true. */
  wanted?(): Promise<boolean>;
};

type CarriedOut = {
  /** What was done. "none": it was done already, or the user wants the overlay of a restored node to stay stopped. */
  action: "stopped" | "started" | "none";
  /** Why the revocation could not be noted. The engine is stopped, and the next run tries to note it again. */
  unsaved?: AppError;
};

/**
 * Stops the engine of a revoked node, or starts that of a restored one. What the user wants (`wanted`) is only read, and only at
 * the restore: a user's starts and stops also count while the node is revoked. `seq` is unset without a signed order: a control plane
 * that never sent an order key refused this node, or an interrupted restore goes on.
 */
export async function carryOut(
  order: Pick<Order, "action" | "reason" | "node_id"> & Partial<Pick<Order, "seq">>,
  { directory, slug }: Organization,
  engine: StoppableEngine,
  deps: { now(): number; log: Log },
): Promise<CarriedOut> {
  const note = readRevokedNote(directory);
  if (order.action === "revoke") return revoke(order, { directory, slug, note }, engine, deps);
  // The restored note alone: an earlier run has begun this restore.
  const stoppedBy = note ?? readRestoredNote(directory);
  if (stoppedBy === undefined) return { action: "none" };
  if (note !== undefined) beginRestore(directory);
  // `was_wanted` is in notes of version 0.1.0 alone.
  const start = stoppedBy.was_wanted !== false && ((await engine.wanted?.()) ?? true);
  deps.log.info(
    start
      ? "The control plane has restored this node; its overlay starts again"
      : "The control plane has restored this node; its overlay stays stopped until a user starts it",
    { team: slug },
  );
  if (start) await engine.start();
  // Remove it last: after an interruption, the next check-in continues the restore.
  removeRestoredNote(directory);
  return { action: start ? "started" : "none" };
}

async function revoke(
  order: Pick<Order, "reason" | "node_id"> & Partial<Pick<Order, "seq">>,
  { directory, slug, note }: { directory: string; slug: string; note: RevokedNote | undefined },
  engine: StoppableEngine,
  { now, log }: { now(): number; log: Log },
): Promise<CarriedOut> {
  const isNoted = note !== undefined && note !== damagedNote;
  let unsaved: AppError | undefined;
  // Write the note first: nothing starts the engine while it exists.
  if (!isNoted) {
    const { reason, node_id, seq } = order;
    try {
      writeRevokedNote(directory, {
        revoked_at: formatTime(now()),
        reason,
        node_id,
        ...given({ seq }),
      });
      // This ends an interrupted restore: the next restore needs a new order.
      removeRestoredNote(directory);
    } catch (error) {
      unsaved = fromSystemError(`note the revocation in ${directory}`, error);
    }
  }
  await engine.stop();
  // The overlay was stopped before: it is noted, or an earlier run on the full disk could leave only an empty note
  // (writeRevokedNote), which reads as `damagedNote`.
  if (isNoted || (note === damagedNote && unsaved !== undefined))
    return { action: "none", ...given({ unsaved }) };
  log.warn("The control plane has revoked this node; its overlay is stopped", {
    team: slug,
    reason: order.reason,
  });
  return { action: "stopped", ...given({ unsaved }) };
}
