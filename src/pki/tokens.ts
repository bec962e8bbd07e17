// JSON Web Tokens of users, and their keys: Ed25519 only (RFC 8037), with a fixed algorithm for verification. Must not
// decide about rights: it returns the user of a token, or throws.

import { SignJWT, errors, exportJWK, generateKeyPair, importJWK, jwtVerify } from "jose";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { OrderKey } from "../protocol/values.ts";
import { foreignText } from "../base/text.ts";

/** JWK of an Ed25519 private key (RFC 8037). Sealed at rest, never sent. */
export const SigningKey = v.object({ ...OrderKey.entries, d: foreignText(64) });
export type SigningKey = v.InferOutput<typeof SigningKey>;

export const Claims = v.object({
  /** docs: the cookie of the pages of documentation. device: the cookie of a browser in which the user has signed in before. */
  token_type: v.picklist(["access", "refresh", "docs", "device"]),
  user_id: v.pipe(foreignText(15), v.regex(/^\d{1,15}$/)),
  jti: v.pipe(foreignText(64), v.minLength(16)),
  /** Seconds with a fraction (RFC 7519 allows it), to compare with the time when sessions were ended. */
  iat: v.number(),
  exp: v.pipe(v.number(), v.integer()),
  /** The id of the session: all tokens of a session have the same. */
  family: v.optional(foreignText(255)),
});
export type Claims = v.InferOutput<typeof Claims>;
export type TokenType = Claims["token_type"];

export type TokenSigner = {
  sign(claims: Claims): Promise<string>;
  /** Throws token_not_valid with a reason. */
  verify(token: string, type: TokenType, nowMs: number): Promise<Claims>;
};

const maxTokenLength = 4096;

/** A new key. The caller chooses a random id, which is public and never reused. */
export async function makeSigningKey(kid: string): Promise<SigningKey> {
  const { privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519", extractable: true });
  return v.parse(SigningKey, { ...(await exportJWK(privateKey)), kid });
}

export function publicHalf(key: SigningKey): OrderKey {
  const { kty, crv, x, kid } = key;
  return { kty, crv, x, kid };
}

/** Tokens of users. Issuer and audience are the product, so no other JWT of the same key is accepted. */
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
      const claims = await verifyClaims(token, publicKey, key.kid, nowMs);
      if (claims.token_type !== type) throw notValid("The token has the wrong type.", wrongType(claims));
      return claims;
    },
  };
}

async function verifyClaims(
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

/** The error of jose for a refused claim. We issued this token, so it does not count as a guess. */
function wrongType(claims: Claims): Error {
  return new errors.JWTClaimValidationFailed("another type", claims, "token_type", "check_failed");
}

function notValid(message: string, cause?: unknown): AppError {
  return new AppError("token_not_valid", message, { cause });
}
