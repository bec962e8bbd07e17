// Access and refresh tokens, signed orders, and known forgeries of such tokens.

import { createHmac, createPublicKey } from "node:crypto";
import { describe, expect, test } from "bun:test";
import type { Order } from "../../src/protocol/orders.ts";
import { makeSigningKey, makeTokenSigner, publicHalf, type Claims } from "../../src/pki/tokens.ts";
import { signOrder, signOrderKey, verifyOrder, verifyOrderKey } from "../../src/pki/signed-messages.ts";
import { rejection } from "./thrown.ts";
import { forgery, segment } from "./forgery.ts";

const nowMs = 1_800_000_000_000;
const nowS = nowMs / 1000;
const key = await makeSigningKey("key-1");
const signer = await makeTokenSigner(key);
/** Another organization's, or an attacker's, under the same id. */
const stranger = await makeSigningKey("key-1");
const claims: Claims = {
  token_type: "access",
  user_id: "7",
  jti: "0123456789abcdef",
  iat: nowS,
  exp: nowS + 900,
};
const payload = { ...claims, iss: "overlay-agent", aud: "overlay-agent" };
const header = { alg: "EdDSA", typ: "JWT", kid: "key-1" };

describe("tokens of users", () => {
  test("a token is valid until its last second", async () => {
    const token = await signer.sign(claims);
    expect(await signer.verify(token, "access", nowMs)).toMatchObject(claims);
    expect(await signer.verify(token, "access", nowMs + 899_000)).toMatchObject(claims);
    const late = await rejection(signer.verify(token, "access", nowMs + 900_000));
    expect([late.code, late.message]).toEqual(["token_not_valid", "The token is expired."]);
  });

  test("header and claims match the contract exactly", async () => {
    const [first = "", second = ""] = (await signer.sign(claims)).split(".");
    expect(JSON.parse(Buffer.from(first, "base64url").toString())).toEqual(header);
    expect(JSON.parse(Buffer.from(second, "base64url").toString())).toEqual(payload);
  });

  test("the construction of the forgeries below is valid without the forged part", async () => {
    expect(await signer.verify(forgery(key, header, payload), "access", nowMs)).toMatchObject(claims);
  });

  const publicPem = createPublicKey({ key: publicHalf(key), format: "jwk" }).export({
    format: "pem",
    type: "spki",
  });
  const unsigned = (alg: string) => `${segment({ ...header, alg })}.${segment(payload)}.`;
  const symmetric = (secret: string | Buffer) => {
    const input = `${segment({ ...header, alg: "HS256" })}.${segment(payload)}`;
    return `${input}.${createHmac("sha256", secret).update(input).digest("base64url")}`;
  };
  const good = forgery(key, header, payload);
  const [head = "", body = "", signature = ""] = good.split(".");
  const without = (name: keyof typeof payload) => {
    const { [name]: _, ...rest } = payload;
    return forgery(key, header, rest);
  };
  const flipped = Buffer.from(signature, "base64url");
  flipped[5] = (flipped[5] ?? 0) ^ 1;

  const cases: [string, string][] = [
    ["nothing", ""],
    ["no dots", "abc"],
    ["alg none", unsigned("none")],
    ["alg None", unsigned("None")],
    ["alg none with the signature kept", unsigned("none") + signature],
    ["HS256 with the public key's PEM as the secret", symmetric(publicPem)],
    ["HS256 with the public key's bytes as the secret", symmetric(Buffer.from(key.x, "base64url"))],
    ["HS256 with an empty secret", symmetric("")],
    ["another algorithm's name over a good signature", forgery(key, { ...header, alg: "ES256" }, payload)],
    ["an array as the algorithm", forgery(key, { ...header, alg: ["EdDSA"] }, payload)],
    ["the key id of another key", forgery(key, { ...header, kid: "key-2" }, payload)],
    ["no key id", forgery(key, { alg: "EdDSA", typ: "JWT" }, payload)],
    ["a critical extension", forgery(key, { ...header, crit: ["exp"], exp: 1 }, payload)],
    ["an empty list of critical extensions", forgery(key, { ...header, crit: [] }, payload)],
    ["an unencoded payload", forgery(key, { ...header, crit: ["b64"], b64: false }, payload)],
    [
      "a signature by a key in its own header",
      forgery(stranger, { ...header, jwk: publicHalf(stranger) }, payload),
    ],
    ["another key with the same id", forgery(stranger, header, payload)],
    ["a claim changed after signing", `${head}.${segment({ ...payload, user_id: "1" })}.${signature}`],
    ["a flipped bit in the signature", `${head}.${body}.${flipped.toString("base64url")}`],
    ["no signature", `${head}.${body}.`],
    ["half a signature", `${head}.${body}.${signature.slice(0, 43)}`],
    ["two segments", `${head}.${body}`],
    ["five segments, as an encrypted token has", `${good}.${body}.${signature}`],
    ["white space around it", ` ${good} `],
    ["64 KiB", forgery(key, header, { ...payload, x: "a".repeat(65_536) })],
    ["another issuer", forgery(key, header, { ...payload, iss: "elsewhere" })],
    ["another audience", forgery(key, header, { ...payload, aud: "elsewhere" })],
    ["no issuer", without("iss")],
    ["no audience", without("aud")],
    ["no expiry", without("exp")],
    ["no issue time", without("iat")],
    ["no token id", without("jti")],
    ["no user", without("user_id")],
    ["no type", without("token_type")],
    ["an expiry that is a string", forgery(key, header, { ...payload, exp: "9999999999" })],
    ["a user that is not a number", forgery(key, header, { ...payload, user_id: "7 OR 1=1" })],
    ["not valid yet", forgery(key, header, { ...payload, nbf: nowS + 60 })],
    ["a payload that is not an object", forgery(key, header, [payload])],
  ];
  test.each(cases)("%s is refused", async (_, token) => {
    const refusal = await rejection(signer.verify(token, "access", nowMs));
    expect([refusal.code, refusal.message]).toEqual(["token_not_valid", "The token is not valid."]);
  });

  test("access and refresh tokens are not interchangeable", async () => {
    const refresh = await signer.sign({ ...claims, token_type: "refresh" });
    expect((await rejection(signer.verify(refresh, "access", nowMs))).message).toContain("type");
    expect((await rejection(signer.verify(await signer.sign(claims), "refresh", nowMs))).message).toContain(
      "type",
    );
  });
});

const order: Order = {
  org: "acme",
  node_id: 3,
  action: "revoke",
  seq: nowMs,
  iat: nowS,
  reason: "laptop stolen",
  jti: "order-1",
};
const orderOfStranger = await signOrder(order, stranger);
const handOver = await signOrderKey(publicHalf(stranger), key);
const accessToken = await signer.sign(claims);
const orderHeader = { alg: "EdDSA", typ: "overlay-order+jwt", kid: "key-1" };

describe("orders", () => {
  test("a node reads an order of its organization", async () => {
    expect(await verifyOrder(await signOrder(order, key), publicHalf(key))).toEqual(order);
    expect(await verifyOrder(forgery(key, orderHeader, order), publicHalf(key))).toEqual(order);
  });

  const cases: [string, string][] = [
    ["nothing", ""],
    ["an order of another key with the same id", orderOfStranger],
    ["alg none", `${segment({ ...orderHeader, alg: "none" })}.${segment(order)}.`],
    ["another key's id", forgery(key, { ...orderHeader, kid: "key-2" }, order)],
    ["an access token by the same key", accessToken],
    ["an order without its type", forgery(key, { alg: "EdDSA", kid: "key-1" }, order)],
    ["an order key change by the same key", handOver],
    ["one more header", forgery(key, { ...orderHeader, b64: true, crit: ["b64"] }, order)],
    ["an unknown action", forgery(key, orderHeader, { ...order, action: "erase" })],
    ["no sequence number", forgery(key, orderHeader, { ...order, seq: undefined })],
    ["half a sequence number", forgery(key, orderHeader, { ...order, seq: 1.5 })],
    ["a node that is a string", forgery(key, orderHeader, { ...order, node_id: "3" })],
    ["text that is not JSON", forgery(key, orderHeader, Buffer.from("revoke"))],
    ["bytes that are not UTF-8", forgery(key, orderHeader, Buffer.from([0xff, 0xfe]))],
    ["64 KiB", forgery(key, orderHeader, { ...order, reason: "a".repeat(65_536) })],
  ];
  test.each(cases)("%s is refused", async (_, jws) => {
    expect((await rejection(verifyOrder(jws, publicHalf(key)))).code).toBe("untrusted_answer");
  });
});

describe("a new order key", () => {
  test("is accepted if the present key signed it, and refused if the new key did", async () => {
    const former = await makeSigningKey("former");
    const next = await makeSigningKey("next");
    const proof = await signOrderKey(publicHalf(next), former);
    expect(await verifyOrderKey(proof, publicHalf(former))).toEqual(publicHalf(next));
    const own = await signOrderKey(publicHalf(next), next);
    expect((await rejection(verifyOrderKey(own, publicHalf(former)))).code).toBe("untrusted_answer");
    const asOrder = await signOrder(order, former);
    expect((await rejection(verifyOrderKey(asOrder, publicHalf(former)))).code).toBe("untrusted_answer");
  });

  test("is sent without its private half", async () => {
    const next = await makeSigningKey("next");
    const proof = await signOrderKey(publicHalf(next), key);
    expect(Buffer.from(proof.split(".")[1] ?? "", "base64url").toString()).not.toContain(next.d);
    expect(publicHalf(next)).not.toHaveProperty("d");
  });
});
