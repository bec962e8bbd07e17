// What the control plane signs for nodes: orders, new order keys and moves, as compact JWS with Ed25519 (RFC 8037).

import { CompactSign, compactVerify, importJWK } from "jose";
import * as v from "valibot";
import { AppError } from "../base/errors.ts";
import { Move, Order } from "../protocol/orders.ts";
import { OrderKey, jsonTextOf } from "../protocol/values.ts";
import { sha256Hex } from "../base/sha256.ts";
import type { SigningKey } from "./tokens.ts";

const maxLength = 4096;
const orderType = "overlay-order+jwt";
const handOverType = "overlay-order-key+jwt";
const reportType = "overlay-report+jwt";
const moveType = "overlay-move+jwt";

/** A signed order as a compact JWS. */
export function signOrder(order: Order, key: SigningKey): Promise<string> {
  return signText(JSON.stringify(order), orderType, key);
}

/** The claims of an order signed by this key. Throws untrusted_answer for anything else. */
export async function verifyOrder(jws: string, key: OrderKey): Promise<Order> {
  return parseAs(Order, "order", await verifyText(jws, orderType, key));
}

/** The new order key, signed by the former one. Without this signature a node keeps the former key. */
export function signOrderKey(successor: OrderKey, former: SigningKey): Promise<string> {
  return signText(JSON.stringify(successor), handOverType, former);
}

/** Throws untrusted_answer for anything that this key did not sign as a new order key. */
export async function verifyOrderKey(jws: string, former: OrderKey): Promise<OrderKey> {
  return parseAs(OrderKey, "new order key", await verifyText(jws, handOverType, former));
}

/** A signed Move as a compact JWS. */
export function signMove(move: Move, key: SigningKey): Promise<string> {
  return signText(JSON.stringify(move), moveType, key);
}

/** Throws untrusted_answer for anything that this key did not sign as a Move. */
export async function verifyMove(jws: string, key: OrderKey): Promise<Move> {
  return parseAs(Move, "new address", await verifyText(jws, moveType, key));
}

const Digest = v.object({ sha256: v.string() });
const digestOf = (text: string) => ({ sha256: sha256Hex(text) });

/** Signs the text of a report, which may be long. */
export function signReport(text: string, key: SigningKey): Promise<string> {
  return signText(JSON.stringify(digestOf(text)), reportType, key);
}

/** Throws untrusted_answer unless the key signed exactly this text as a report. */
export async function verifyReport(jws: string, text: string, key: OrderKey): Promise<void> {
  const { sha256 } = parseAs(Digest, "report", await verifyText(jws, reportType, key));
  if (sha256 !== digestOf(text).sha256)
    throw new AppError("untrusted_answer", "The signature is valid, but for another report");
}

function parseAs<T>(schema: v.GenericSchema<unknown, T>, what: string, text: string): T {
  const parsed = v.safeParse(jsonTextOf(schema), text);
  if (parsed.success) return parsed.output;
  throw new AppError("untrusted_answer", `The signature of the ${what} is valid, but its content is not`);
}

async function signText(text: string, typ: string, key: SigningKey): Promise<string> {
  return new CompactSign(new TextEncoder().encode(text))
    .setProtectedHeader({ alg: "EdDSA", typ, kid: key.kid })
    .sign(await importJWK(key, "EdDSA"));
}

async function verifyText(jws: string, typ: string, key: OrderKey): Promise<string> {
  try {
    if (jws.length > maxLength) throw new RangeError(`over ${maxLength} characters`);
    const { payload, protectedHeader } = await compactVerify(jws, await importJWK(key, "EdDSA"), {
      algorithms: ["EdDSA"],
    });
    const { alg, kid, typ: signedType, ...others } = protectedHeader;
    const isExpected =
      alg === "EdDSA" && kid === key.kid && signedType === typ && Object.keys(others).length === 0;
    if (isExpected) return new TextDecoder("utf-8", { fatal: true }).decode(payload);
  } catch (error) {
    throw new AppError(
      "untrusted_answer",
      "This message is not signed by the order key of the organization",
      {
        cause: error,
      },
    );
  }
  throw new AppError("untrusted_answer", "The signature is valid, but for another kind of message");
}
