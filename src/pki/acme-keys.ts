// Keys and signatures of an ACME account: ES256 only (RFC 8555, section 6.2). Knows no URL and no order.

import {
  FlattenedSign,
  base64url,
  calculateJwkThumbprint,
  exportJWK,
  generateKeyPair,
  importJWK,
  type FlattenedJWS,
} from "jose";
import * as v from "valibot";
import { foreignText } from "../base/text.ts";

const Coordinate = v.pipe(foreignText(64), v.regex(/^[A-Za-z0-9_-]+$/));
/** JWK of a P-256 private key. Sealed at rest. */
export const AccountKey = v.object({
  kty: v.literal("EC"),
  crv: v.literal("P-256"),
  x: Coordinate,
  y: Coordinate,
  d: Coordinate,
});
export type AccountKey = v.InferOutput<typeof AccountKey>;

/** External account binding: the id and the MAC key (base64url) that the authority gave to its customer. */
export type ExternalAccount = { kid: string; key: string };

const algorithm = "ES256";

export async function makeAccountKey(): Promise<AccountKey> {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return v.parse(AccountKey, await exportJWK(privateKey));
}

function publicHalf({ kty, crv, x, y }: AccountKey) {
  return { kty, crv, x, y };
}

/**
 * The signed body of a request. `account`: its URL; without it, the signature has the public key itself. `payload`: "" for a request
 * that only reads (POST-as-GET).
 */
export async function signRequest(
  key: AccountKey,
  request: { url: string; nonce: string; account?: string; payload: object | "" },
): Promise<FlattenedJWS> {
  const { url, nonce, account, payload } = request;
  return new FlattenedSign(new TextEncoder().encode(payload === "" ? "" : JSON.stringify(payload)))
    .setProtectedHeader({
      alg: algorithm,
      nonce,
      url,
      ...(account === undefined ? { jwk: publicHalf(key) } : { kid: account }),
    })
    .sign(await importJWK(key, algorithm));
}

/** The proof that the holder of an external account wants this key (RFC 8555, section 7.3.4). */
export function bindExternalAccount(
  { kid, key }: ExternalAccount,
  accountKey: AccountKey,
  url: string,
): Promise<FlattenedJWS> {
  return new FlattenedSign(new TextEncoder().encode(JSON.stringify(publicHalf(accountKey))))
    .setProtectedHeader({ alg: "HS256", kid, url })
    .sign(base64url.decode(key));
}

/** The answer to a challenge (RFC 8555, section 8.1). */
export async function keyAuthorization(key: AccountKey, token: string): Promise<string> {
  return `${token}.${await calculateJwkThumbprint(publicHalf(key), "sha256")}`;
}

/** The value of the TXT record of DNS-01 (RFC 8555, section 8.4). */
export function dnsValue(authorization: string): string {
  return new Bun.CryptoHasher("sha256").update(authorization).digest("base64url");
}
