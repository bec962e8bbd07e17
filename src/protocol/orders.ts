// Documents that the order key signs: revocations and restores of nodes, and another address of the control plane.

import * as v from "valibot";
import { received, Slug, wholeWithin } from "./values.ts";

/** The claims of a signed order. */
export const Order = v.object({
  org: Slug,
  node_id: v.number(),
  action: v.picklist(["revoke", "restore"]),
  /** Higher than that of every earlier order for the node, so that nodes refuse a repeated one. */
  seq: v.pipe(v.number(), v.integer()),
  /** When it was signed, in seconds since 1970. */
  iat: v.number(),
  reason: received(4096),
  /** Random: tells orders apart. */
  jti: received(255),
});
export type Order = v.InferOutput<typeof Order>;

/** Where nodes find the control plane from now on, by a public certificate. `seq`: when the order key signed it, s since 1970. */
export const Move = v.object({
  org: Slug,
  api_base: v.pipe(received(2048), v.url(), v.startsWith("https://")),
  seq: wholeWithin(1, Number.MAX_SAFE_INTEGER),
});
export type Move = v.InferOutput<typeof Move>;

/** The reason of the revocations with which an organization ends. Nodes know by it that no restore will follow. */
export const organizationDeleted = "the organization was deleted";
