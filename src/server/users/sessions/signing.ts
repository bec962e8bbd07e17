// Signs and verifies the tokens of sessions. The key is sealed in the database, so that replicas share it.

import { given } from "../../../base/given.ts";
import { makeOpaqueToken } from "../../../pki/opaque.ts";
import type { TokenSigner, TokenType } from "../../../pki/tokens.ts";
import { parse } from "../../http/parse-input.ts";
import type { ServerOptions } from "../../options.ts";
import { sharedSecret } from "../../store/shared-secret.ts";

/** The content of an access token; issuedAt in ms. */
export type AccessClaims = {
  userId: number;
  issuedAt: number;
  /** The sign-in that the token followed from; undefined in tokens of an earlier release. */
  family?: string;
};

type TokenContent = { userId: number; lifetimeS: number; at: number; jti: string; family?: string };

export async function makeSigning(options: ServerOptions) {
  const { system } = options;
  const key = await sharedSecret(options, "jwt_key", async () => {
    const { makeSigningKey } = await import("../../../pki/tokens.ts");
    return JSON.stringify(await makeSigningKey(makeOpaqueToken(system.random).slice(0, 16)));
  });
  let opened: Promise<TokenSigner> | undefined;
  // Loads jose with the first token, not at the start: that keeps restarts fast.
  const signer = () => (opened ??= openSigner(key));
  return {
    /**
     * `at`: the time of the transaction that admitted the user, ms: an end of sessions may lie between it and the signing. `jti`: the
     * id of the token. `family`: only of an access token.
     */
    sign: async (type: TokenType, { userId, lifetimeS, at, jti, family }: TokenContent) =>
      (await signer()).sign({
        ...given({ family }),
        token_type: type,
        user_id: String(userId),
        jti,
        iat: at / 1000,
        exp: Math.floor(at / 1000) + lifetimeS,
      }),
    async verify(token: string, type: TokenType): Promise<AccessClaims & { jti: string }> {
      const claims = await (await signer()).verify(token, type, system.now());
      // Rounded: seconds as a binary fraction are not exactly the milliseconds that were signed.
      const { jti, family } = claims;
      const issuedAt = Math.round(claims.iat * 1000);
      return { userId: Number(claims.user_id), issuedAt, jti, ...given({ family }) };
    },
  };
}

async function openSigner(key: string): Promise<TokenSigner> {
  const { SigningKey, makeTokenSigner } = await import("../../../pki/tokens.ts");
  return makeTokenSigner(parse(SigningKey, JSON.parse(key)));
}

/** Errors of jose that come only after the signature was found valid. */
export const signedCodes = ["ERR_JWT_EXPIRED", "ERR_JWT_CLAIM_VALIDATION_FAILED"];
