// A provider of identities that answers whatever a test wants: wrong claims, wrong signatures, no answer.

import { createHmac } from "node:crypto";
import { exportJWK, exportSPKI, generateKeyPair, SignJWT, type JWK } from "jose";

export type Fault = {
  claims?: Record<string, unknown>;
  /** In place of RS256. */
  algorithm?: "none" | "HS256";
  /** Signed with a key that the provider does not publish. */
  isForged?: boolean;
  /** In place of the answer of the token endpoint. */
  answer?: () => Response;
  /** What happens here while the provider works on the code. */
  meanwhile?: () => Promise<unknown>;
  configuration?: Record<string, unknown>;
  /** What its page of user information says, where the configuration has one. */
  information?: Record<string, unknown>;
};

export type HostileProvider = AsyncDisposable & {
  issuer: string;
  clientId: string;
  clientSecret: string;
  fault: Fault;
  /** The requests to its token endpoint. */
  exchanges: URLSearchParams[];
  /** The paths that were asked for. */
  asked: string[];
  /** The nonce of the sign-in under way, which its page would get. */
  nonce: string;
};

export async function startHostileProvider(): Promise<HostileProvider> {
  const { privateKey, publicKey } = await generateKeyPair("RS256");
  const forged = await generateKeyPair("RS256");
  const jwk: JWK = { ...(await exportJWK(publicKey)), kid: "1", alg: "RS256", use: "sig" };
  const spki = await exportSPKI(publicKey);
  /** A code may hold the nonce, for sign-ins at the same time. */
  const token = async (code: string) => {
    const { fault, issuer, clientId } = made;
    const nonce = /^nonce (.+)/.exec(code)?.[1] ?? made.nonce;
    const now = Math.floor(Date.now() / 1000);
    const usual = { iss: issuer, aud: clientId, sub: "ada", nonce, iat: now, exp: now + 300 };
    const person = { email: "ada@example.org", email_verified: true };
    const claims = { ...usual, ...person, ...fault.claims };
    if (fault.algorithm === undefined) {
      const key = fault.isForged === true ? forged.privateKey : privateKey;
      return new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid: "1" }).sign(key);
    }
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const body = `${part({ alg: fault.algorithm, kid: "1" })}.${part(claims)}`;
    if (fault.algorithm === "none") return `${body}.`;
    return `${body}.${createHmac("sha256", spki).update(body).digest("base64url")}`;
  };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      const { issuer, fault } = made;
      made.asked.push(pathname);
      if (pathname === "/.well-known/openid-configuration")
        return Response.json({
          issuer,
          authorization_endpoint: `${issuer}/authorize`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/keys`,
          response_types_supported: ["code"],
          ...fault.configuration,
        });
      if (pathname === "/keys") return Response.json({ keys: [jwk] });
      if (pathname === "/userinfo") return Response.json({ sub: "ada", ...fault.information });
      const words = new URLSearchParams(await request.text());
      made.exchanges.push(words);
      await fault.meanwhile?.();
      if (fault.answer !== undefined) return fault.answer();
      return Response.json({
        access_token: "a",
        token_type: "bearer",
        id_token: await token(words.get("code") ?? ""),
      });
    },
  });
  server.unref();
  const made: HostileProvider = {
    issuer: `http://127.0.0.1:${server.port}`,
    clientId: "agent",
    clientSecret: "secret of the client",
    fault: {},
    exchanges: [],
    asked: [],
    nonce: "",
    [Symbol.asyncDispose]: () => server.stop(true),
  };
  return made;
}
