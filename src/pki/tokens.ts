// JSON Web Tokens and signed orders: Ed25519 only (RFC 8037), the algorithm pinned on verification. The only user of
// jose. Decides nothing about rights: it says who a token was issued to, or throws.

import {
  CompactSign,
  SignJWT,
  compactVerify,
  errors,
  exportJWK,
  generateKeyPair,
  importJWK,
  jwtVerify,
} from "jose";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { Order, OrderKey } from "../protocol.ts";

/** JWK of an Ed25519 private key (RFC 8037). Sealed at rest, never sent. */
export const SigningKey = v.object({ ...OrderKey.entries, d: v.pipe(v.string(), v.maxLength(64)) });
export type SigningKey = v.InferOutput<typeof SigningKey>;

export const Claims = v.object({
  token_type: v.picklist(["access", "refresh", "docs"]),
  user_id: v.pipe(v.string(), v.maxLength(15), v.regex(/^\d{1,15}$/)),
  jti: v.pipe(v.string(), v.minLength(16), v.maxLength(64)),
  /** To the millisecond (RFC 7519 allows a fraction): what ends sessions is compared with it. */
  iat: v.number(),
  exp: v.pipe(v.number(), v.integer()),
  family: v.optional(v.pipe(v.string(), v.maxLength(255))),
});
export type Claims = v.InferOutput<typeof Claims>;
export type TokenType = Claims["token_type"];

export type TokenSigner = {
  sign(claims: Claims): Promise<string>;
  /** Throws token_not_valid with the reason a person can act on. */
  verify(token: string, type: TokenType, nowMs: number): Promise<Claims>;
};

const maxTokenLength = 4096;

/** A new key. Its id is public, chosen at random by the caller, and never used again. */
export async function makeSigningKey(kid: string): Promise<SigningKey> {
  const { privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519", extractable: true });
  return v.parse(SigningKey, { ...(await exportJWK(privateKey)), kid });
}

export function publicHalf(key: SigningKey): OrderKey {
  const { kty, crv, x, kid } = key;
  return { kty, crv, x, kid };
}

/** Tokens of people: issuer and audience are the product, so that no other JWT of the same key passes. */
export async function makeTokenSigner(key: SigningKey): Promise<TokenSigner> {
  const [privateKey, publicKey] = await Promise.all([
    importJWK(key, "EdDSA"),
    importJWK(publicHalf(key), "EdDSA"),
  ]);
  return {
    sign: (claims) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: "EdDSA", typ: "JWT", kid: key.kid })
        .setIssuer(brand.id)
        .setAudience(brand.id)
        .sign(privateKey),
    async verify(token, type, nowMs) {
      if (token.length > maxTokenLength) throw notValid("The token is not valid.");
      const claims = await verified(token, publicKey, key.kid, nowMs);
      if (claims.token_type !== type) throw notValid("The token has the wrong type.", wrongType(claims));
      return claims;
    },
  };
}

async function verified(
  token: string,
  key: CryptoKey | Uint8Array,
  kid: string,
  nowMs: number,
): Promise<Claims> {
  try {
    const { payload, protectedHeader } = await jwtVerify(token, key, {
      algorithms: ["EdDSA"],
      issuer: brand.id,
      audience: brand.id,
      currentDate: new Date(nowMs),
      requiredClaims: ["exp", "iat", "jti"],
    });
    if (protectedHeader.kid !== kid) throw notValid("The token is not valid.");
    return v.parse(Claims, payload);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw notValid(
      error instanceof errors.JWTExpired ? "The token is expired." : "The token is not valid.",
      error,
    );
  }
}

function wrongType(claims: Claims): Error {
  return new errors.JWTClaimValidationFailed("another type", claims, "token_type", "check_failed");
}

function notValid(message: string, cause?: unknown): AppError {
  return new AppError("token_not_valid", message, { cause });
}

const orderType = "overlay-order+jwt";
const handOverType = "overlay-order-key+jwt";

/** A signed order (decisions 6) as a compact JWS. */
export function signOrder(order: Order, key: SigningKey): Promise<string> {
  return signText(JSON.stringify(order), orderType, key);
}

/** The claims of an order that this key has signed. Throws untrusted_answer for anything else. */
export async function verifyOrder(jws: string, key: OrderKey): Promise<Order> {
  const parsed = v.safeParse(
    v.pipe(v.string(), v.parseJson(), Order),
    await verifiedText(jws, orderType, key),
  );
  if (parsed.success) return parsed.output;
  throw new AppError(
    "untrusted_answer",
    "The order's signature is valid but it does not hold what an order holds",
  );
}

/** The former key's word for its successor: without it a node keeps the key that it knows (decisions 6). */
export function signOrderKey(successor: OrderKey, former: SigningKey): Promise<string> {
  return signText(JSON.stringify(successor), handOverType, former);
}

export async function verifyOrderKey(jws: string, former: OrderKey): Promise<OrderKey> {
  const parsed = v.safeParse(
    v.pipe(v.string(), v.parseJson(), OrderKey),
    await verifiedText(jws, handOverType, former),
  );
  if (parsed.success) return parsed.output;
  throw new AppError("untrusted_answer", "The new order key is signed but it is no key");
}

async function signText(text: string, typ: string, key: SigningKey): Promise<string> {
  return new CompactSign(new TextEncoder().encode(text))
    .setProtectedHeader({ alg: "EdDSA", typ, kid: key.kid })
    .sign(await importJWK(key, "EdDSA"));
}

async function verifiedText(jws: string, typ: string, key: OrderKey): Promise<string> {
  try {
    if (jws.length > maxTokenLength) throw new RangeError(`over ${maxTokenLength} characters`);
    const { payload, protectedHeader } = await compactVerify(jws, await importJWK(key, "EdDSA"), {
      algorithms: ["EdDSA"],
    });
    const { alg, kid, typ: met, ...more } = protectedHeader;
    const isExpected = alg === "EdDSA" && kid === key.kid && met === typ && Object.keys(more).length === 0;
    if (isExpected) return new TextDecoder("utf-8", { fatal: true }).decode(payload);
  } catch (error) {
    throw new AppError("untrusted_answer", "The order is not signed by this organization's order key", {
      cause: error,
    });
  }
  throw new AppError("untrusted_answer", "What is signed is of another kind than expected");
}
