// Keys, opaque tokens and secrets at rest.

import { createPrivateKey } from "node:crypto";
import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import { encryptCaKey, formatCaKey, readCaKey } from "../../src/pki/ca-key.ts";
import {
  makeHostKey,
  makeNodeKey,
  publicOfHostKey,
  publicPemOfHostKey,
  readHostPublicKey,
} from "../../src/pki/keys.ts";
import { hashToken, makeOpaqueToken } from "../../src/pki/opaque.ts";
import { formatPem, parseOnePem, parsePem } from "../../src/pki/pem.ts";
import { openSecret, sealSecret, keyIdOfEnvelope, secretKeyId } from "../../src/pki/secrets.ts";
import { rejection, thrown } from "./thrown.ts";
import { key, passphrase, toHex } from "./vectors.ts";

describe("host keys", () => {
  test("the halves of a pair match, and every pair is different", () => {
    const [one, other] = [makeHostKey(), makeHostKey()];
    expect(publicOfHostKey(one.privatePem)).toEqual(readHostPublicKey(one.publicPem));
    expect(publicPemOfHostKey(one.privatePem)).toBe(one.publicPem);
    expect(other.privatePem).not.toBe(one.privatePem);
  });

  test("reads a key pair of the engine", () => {
    expect(publicPemOfHostKey(key("hx.key"))).toBe(key("hx.pub"));
  });

  const { privatePem, publicPem } = makeHostKey();
  const banner = "NEBULA X25519 PUBLIC KEY";
  const point = (hex: string) => formatPem(banner, Buffer.from(hex.padEnd(64, "0"), "hex"));
  const cases: [string, string][] = [
    ["nothing", ""],
    ["a private key", privatePem],
    ["a public key with a private one after it", publicPem + privatePem],
    ["a private key with a public one after it", privatePem + publicPem],
    ["two keys", publicPem + publicPem],
    ["31 bytes", formatPem(banner, new Uint8Array(31).fill(9))],
    ["33 bytes", formatPem(banner, new Uint8Array(33).fill(9))],
    ["a P-256 key", key("hp.pub")],
    // RFC 7748, 6.1: with these points every secret comes out as zero.
    ["the point 0", point("00")],
    ["the point 1", point("01")],
    ["a point of order 8", point("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")],
    ["another point of order 8", point("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157")],
    ["the point p - 1", point(`ec${"ff".repeat(30)}7f`)],
    ["the point p", point(`ed${"ff".repeat(30)}7f`)],
    ["the point p + 1", point(`ee${"ff".repeat(30)}7f`)],
  ];
  test.each(cases)("%s is refused as a public key", (_, pem) => {
    const refusal = thrown(() => readHostPublicKey(pem));
    expect(refusal.code).toBe("bad_request");
    expect(refusal.message).not.toContain(privatePem.split("\n")[1] ?? "");
  });

  test("a node's key is P-256 in PKCS#8", () => {
    const { privatePem } = makeNodeKey();
    expect(privatePem).toStartWith("-----BEGIN PRIVATE KEY-----\n");
    expect(createPrivateKey(privatePem).asymmetricKeyDetails).toMatchObject({ namedCurve: "prime256v1" });
  });
});

describe("CA keys", () => {
  const cost = { memory: 64, passes: 1, parallelism: 1 };
  const plain = ["v1open.key", "v1p256.key"];

  test.each(plain)("%s formats to the same text, also after encryption and decryption", async (file) => {
    const read = await readCaKey(key(file));
    expect(formatCaKey(read)).toBe(key(file));
    const encrypted = await encryptCaKey(read, "a passphrase", cost);
    expect(encrypted).toContain(" ENCRYPTED PRIVATE KEY-----");
    expect(formatCaKey(await readCaKey(encrypted, "a passphrase"))).toBe(key(file));
    expect((await rejection(readCaKey(encrypted, "another"))).code).toBe("invalid_credentials");
    expect((await rejection(readCaKey(encrypted))).message).toContain("enter its passphrase");
  });

  test("refuses an empty passphrase", async () => {
    expect((await rejection(encryptCaKey(await readCaKey(key("v1open.key")), "", cost))).code).toBe(
      "invalid_credentials",
    );
  });

  test("refuses a file with any changed byte", async () => {
    const pem = await encryptCaKey(await readCaKey(key("v1open.key")), "a passphrase", cost);
    const { banner, bytes } = parseOnePem(pem, ["NEBULA ED25519 ENCRYPTED PRIVATE KEY"]);
    // The first bytes name lengths and the cost: a changed cost must not be worked off.
    for (let at = 0; at < bytes.length; at += at < 40 ? 1 : 7) {
      const altered = Uint8Array.from(bytes);
      altered[at] = (altered[at] ?? 0) ^ 0x81;
      const refusal = await rejection(readCaKey(formatPem(banner, altered), "a passphrase"));
      expect(["bad_request", "invalid_credentials"]).toContain(refusal.code);
    }
  });

  test("refuses excessive cost, mismatched halves, wrong lengths and other labels", async () => {
    const [raw] = parsePem(key("v1open.key"));
    const bytes = Uint8Array.from(raw?.bytes ?? []);
    bytes[40] = (bytes[40] ?? 0) ^ 1;
    const banner = "NEBULA ED25519 PRIVATE KEY";
    const absurd = await encryptCaKey(await readCaKey(key("v1open.key")), "p", { ...cost, passes: 65 });
    const cases = [
      formatPem(banner, bytes),
      formatPem(banner, bytes.subarray(0, 32)),
      formatPem("NEBULA ECDSA P256 PRIVATE KEY", new Uint8Array(32)),
      formatPem("NEBULA ECDSA P256 PRIVATE KEY", new Uint8Array(32).fill(0xff)),
      key("hx.key"),
      absurd,
    ];
    for (const pem of cases) expect((await rejection(readCaKey(pem, "p"))).code).toBe("bad_request");
  });

  test("refuses bytes that are not such a file", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async (bytes) => {
        const pem = formatPem("NEBULA ED25519 ENCRYPTED PRIVATE KEY", bytes);
        expect((await rejection(readCaKey(pem, passphrase))).code).toBe("bad_request");
      }),
    );
  });
});

describe("opaque tokens", () => {
  test("are 32 random bytes in URL-safe base64, and only their hash is stored", () => {
    const token = makeOpaqueToken((length) => new Uint8Array(length).fill(0xfb));
    expect(token).toBe("-_v7".repeat(10) + "-_s");
    expect(hashToken("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  });
});

describe("secrets at rest", () => {
  const secretKey = new Uint8Array(32).fill(1);
  const nextKey = new Uint8Array(32).fill(2);

  test("decrypts what it encrypted, and every envelope is different", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.string(), (secret, context) => {
        const envelope = sealSecret(secretKey, secret, context);
        expect(openSecret(secretKey, envelope, context)).toBe(secret);
        expect(sealSecret(secretKey, secret, context)).not.toBe(envelope);
      }),
    );
  });

  test("the envelope names its key, so two keys can be in use during a rotation", () => {
    const envelope = sealSecret(nextKey, "secret", "row 1");
    expect(keyIdOfEnvelope(envelope)).toBe(secretKeyId(nextKey));
    expect(openSecret([secretKey, nextKey], envelope, "row 1")).toBe("secret");
    expect(thrown(() => openSecret([secretKey], envelope, "row 1")).details.hint).toContain(
      "--secret-key-file",
    );
    expect(envelope).not.toContain(toHex(nextKey));
  });

  test("refuses an envelope in another row, with any changed character, or truncated", () => {
    const envelope = sealSecret(secretKey, "secret", "row 1");
    expect(thrown(() => openSecret(secretKey, envelope, "row 2")).code).toBe("bad_configuration");
    for (let at = 0; at < envelope.length - 1; at++) {
      const altered = envelope.slice(0, at) + (envelope[at] === "A" ? "B" : "A") + envelope.slice(at + 1);
      expect(thrown(() => openSecret(secretKey, altered, "row 1")).code).toBe("bad_configuration");
      expect(thrown(() => openSecret(secretKey, envelope.slice(0, at), "row 1")).code).toBe(
        "bad_configuration",
      );
    }
  });

  test("refuses a key of another length", () => {
    expect(thrown(() => sealSecret(new Uint8Array(16), "secret", "row 1")).message).toContain("32 bytes");
  });
});
