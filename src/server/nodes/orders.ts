// Signed orders: by them alone a node stops or starts its overlay (decisions 6). Each is kept with its node and outlives
// it, so that a node that was away for months still hears it.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { openSecret } from "../../pki/secrets.ts";
import { SigningKey, signOrder } from "../../pki/tokens.ts";
import { OrderKey, type Order } from "../../protocol.ts";
import type { NodeRecord } from "../store/nodes.ts";
import { orderKeyContext } from "../policy/organizations.ts";
import type { Services } from "../services.ts";
import { textOf, textOrNull, type Reader } from "../store/database.ts";
import { tellNode } from "../store/versions.ts";

type Store = Pick<Services, "db" | "system" | "secretKey">;
type Org = { id: number; slug: string };

export type SignedOrder = { seq: number; jws: string };

/** `seq` is higher than the node's last one and at least the time in ms, also after a restored backup. */
export async function makeOrder(
  { system, secretKey }: Store,
  reader: Pick<Reader, "get">,
  org: Org,
  node: Pick<NodeRecord, "id" | "orderSeq">,
  action: Order["action"],
  reason: string,
): Promise<SignedOrder> {
  const row = await reader.get("SELECT order_key_sealed, order_public FROM organizations WHERE id = $1", [
    org.id,
  ]);
  const { kid } = v.parse(OrderKey, JSON.parse(textOf(row ?? {}, "order_public")));
  const opened: unknown = JSON.parse(
    openSecret(secretKey, textOf(row ?? {}, "order_key_sealed"), orderKeyContext(kid)),
  );
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
  return { seq, jws: await signOrder(order, v.parse(SigningKey, opened)) };
}

const Payload = v.object({ action: v.picklist(["revoke", "restore"]) });

/** What a stored order says; it is our own, so its signature is not checked again. */
export function actionOf(jws: string | null): Order["action"] | undefined {
  if (jws === null) return undefined;
  const [, payload = ""] = jws.split(".");
  return v.parse(Payload, JSON.parse(Buffer.from(payload, "base64url").toString("utf8"))).action;
}

/**
 * The refusal of a revoked node, with its order. A node that was revoked together with its whole organization has none
 * yet: it is signed when the node first asks, and kept.
 */
export async function revokedError(services: Store, org: Org, node: NodeRecord): Promise<AppError> {
  const reason = node.revokeReason ?? "revoked";
  let { orderJws } = node;
  if (actionOf(orderJws) !== "revoke") {
    const { db } = services;
    const order = await makeOrder(services, db, org, node, "revoke", reason);
    orderJws = await db.write(async (tx) => {
      await tx.run(
        "UPDATE nodes SET order_seq = $2, order_jws = $3 WHERE id = $1 AND state = 'revoked' AND order_seq = $4",
        [node.id, order.seq, order.jws, node.orderSeq],
      );
      await tellNode(tx, org.id, node.id);
      // Another request may have been quicker; its order is as good.
      const row = await tx.get("SELECT order_jws FROM nodes WHERE id = $1", [node.id]);
      return textOrNull(row ?? {}, "order_jws");
    });
  }
  return new AppError(
    "node_revoked",
    `The node ${node.name} is revoked: ${reason}.`,
    orderJws === null ? {} : { order: orderJws },
  );
}
