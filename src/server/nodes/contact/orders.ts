// Signs orders: only a signed order makes a node stop or restart its overlay. The order stays in the row of a revoked node,
// so a node that was offline for months still gets it.

import * as v from "valibot";
import { AppError } from "../../../base/errors.ts";
import { makeOpaqueToken } from "../../../pki/opaque.ts";
import { openSecret } from "../../../pki/secrets.ts";
import { SigningKey } from "../../../pki/tokens.ts";
import { signMove, signOrder } from "../../../pki/signed-messages.ts";
import type { Order } from "../../../protocol/orders.ts";
import { orderKeyContext } from "../../organizations/organizations.ts";
import type { ServerOptions } from "../../options.ts";
import type { Reader } from "../../store/database.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { requireOrganization } from "../../store/tables/organizations.ts";
import { notifyNode } from "../../store/versions.ts";
import { unlessStorageRefuses } from "./storage-refusal.ts";
import type { Org } from "../../http/route.ts";

type Store = Pick<ServerOptions, "db" | "system" | "secretKey">;

export type SignedOrder = { seq: number; jws: string };

/** `seq` is higher than the node's last one and at least the time in ms, so it rises even after a restored backup. */
export async function makeOrder(
  { system, secretKey }: Store,
  reader: Reader,
  org: Org,
  node: Pick<NodeRow, "id" | "orderSeq">,
  action: Order["action"],
  reason: string,
): Promise<SignedOrder> {
  const key = await openOrderKey(reader, org.id, secretKey);
  const seq = Math.max(system.now(), node.orderSeq + 1);
  const order: Order = {
    org: org.slug,
    node_id: node.id,
    action,
    seq,
    iat: Math.floor(system.now() / 1000),
    reason,
    jti: makeOpaqueToken(system.random).slice(0, 22),
  };
  return { seq, jws: await signOrder(order, key) };
}

/** The key that signs orders, moves and reports. Throws not_found, and conflict for a key that cannot be read. */
export async function openOrderKey(
  reader: Reader,
  orgId: number,
  secretKey: Store["secretKey"],
): Promise<SigningKey> {
  try {
    const org = await requireOrganization(reader, { id: orgId });
    const context = orderKeyContext(org.orderPublic.kid);
    return v.parse(SigningKey, JSON.parse(openSecret(secretKey, org.orderKeySealed, context)));
  } catch (cause) {
    if (cause instanceof AppError && cause.code !== "bad_configuration") throw cause;
    const message =
      "The order key of the organization, which signs orders and reports, cannot be read: the database was changed by hand.";
    const hint = "Compare `order_public` and `order_key_sealed` in the table `organizations` with a backup.";
    throw new AppError("conflict", message, { cause, hint });
  }
}

/**
 * Tells a node of this organization that the control plane is at `apiBase`, with a public certificate. `seq`: seconds; moves do not
 * share the numbers of orders.
 */
export async function makeMove({ db, system, secretKey }: Store, org: Org, apiBase: string): Promise<string> {
  const seq = Math.floor(system.now() / 1000);
  return signMove({ org: org.slug, api_base: apiBase, seq }, await openOrderKey(db, org.id, secretKey));
}

const Payload = v.object({ action: v.picklist(["revoke", "restore"]) });

/** The action of a stored order. The server signed it itself, so its signature is not verified. */
export function actionOf(jws: string | null): Order["action"] | undefined {
  if (jws === null) return undefined;
  const [, payload = ""] = jws.split(".");
  return v.parse(Payload, JSON.parse(Buffer.from(payload, "base64url").toString("utf8"))).action;
}

/** The error for a revoked node, with its order, which is signed and stored at the node's first request after the revocation. */
export async function revokedError(services: Store, org: Org, node: NodeRow): Promise<AppError> {
  // An ephemeral node that ended gets no order: an order would stop its machine for good, and the node may come back.
  if (node.endedAt !== null)
    return new AppError(
      "conflict",
      `The node ${node.name} has ended. A check-in of its running engine brings it back.`,
    );
  const reason = node.revokeReason ?? "revoked";
  let { orderJws } = node;
  if (actionOf(orderJws) !== "revoke") {
    const { db } = services;
    const order = await makeOrder(services, db, org, node, "revoke", reason);
    const store = () =>
      db.writeFor({ org: org.id }, async (tx) => {
        const unsigned = { id: node.id, state: "revoked", orderSeq: node.orderSeq } as const;
        await nodes.update(tx, unsigned, { orderSeq: order.seq, orderJws: order.jws });
        await notifyNode(tx, org.id, node.id);
        // A concurrent request may have stored its order first: return that one.
        return (await nodes.find(tx, { id: node.id }))?.orderJws ?? null;
      });
    // An order that is not stored is signed anew at the next request, with a higher number.
    orderJws = await unlessStorageRefuses<string | null>(store, order.jws);
  }
  return new AppError(
    "node_revoked",
    `The node ${node.name} is revoked: ${reason}.`,
    orderJws === null ? {} : { order: orderJws },
  );
}
