// stand-in until pki/tokens.ts is there
import { SignJWT, errors, exportJWK, generateKeyPair, importJWK, jwtVerify, type JWK } from "jose";
import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";

export type JwtKey = { kid: string; privateJwk: JWK };
const Claims = v.object({
  token_type: v.string(),
  user_id: v.pipe(v.string(), v.regex(/^\d{1,15}$/)),
  jti: v.string(),
  iat: v.number(),
  exp: v.number(),
  family: v.optional(v.string()),
});
export type JwtClaims = v.InferOutput<typeof Claims>;
export type JwtSigner = {
  sign(claims: JwtClaims): Promise<string>;
  verify(token: string, type: string, nowMs: number): Promise<JwtClaims>;
};

export async function makeJwtKey(kid: string): Promise<string> {
  const { privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519", extractable: true });
  return JSON.stringify({ ...(await exportJWK(privateKey)), kid });
}

export async function makeJwtSigner(text: string): Promise<JwtSigner> {
  const jwk = v.parse(
    v.object({
      kty: v.literal("OKP"),
      crv: v.literal("Ed25519"),
      x: v.string(),
      d: v.string(),
      kid: v.string(),
    }),
    JSON.parse(text),
  );
  const { d: _d, ...publicJwk } = jwk;
  const privateKey = await importJWK(jwk, "EdDSA");
  const publicKey = await importJWK(publicJwk, "EdDSA");
  return {
    sign: (claims) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: "EdDSA", typ: "JWT", kid: jwk.kid })
        .setIssuer(brand.id)
        .setAudience(brand.id)
        .sign(privateKey),
    async verify(token, type, nowMs) {
      try {
        const { payload } = await jwtVerify(token, publicKey, {
          algorithms: ["EdDSA"],
          issuer: brand.id,
          audience: brand.id,
          currentDate: new Date(nowMs),
          requiredClaims: ["exp", "iat", "jti"],
        });
        const claims = v.parse(Claims, payload);
        if (claims.token_type !== type)
          throw new AppError("token_not_valid", "The token has the wrong type.");
        return claims;
      } catch (error) {
        if (error instanceof AppError) throw error;
        const expired = error instanceof errors.JWTExpired;
        throw new AppError("token_not_valid", expired ? "The token is expired." : "The token is not valid.", {
          cause: error,
        });
      }
    },
  };
}
