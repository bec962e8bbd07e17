// Which releases are taken, and the reason given for each that is not.

import { describe, expect, test } from "bun:test";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { artifactFor, readManifest, writeManifest, type Manifest } from "../../src/release/manifest.ts";
import { makeSignature, type SecretKey } from "../../src/release/minisign.ts";

function makeKey(): SecretKey {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const tail = (bytes: Buffer) => bytes.subarray(-32);
  return {
    id: randomBytes(8),
    seed: tail(privateKey.export({ format: "der", type: "pkcs8" })),
    key: tail(publicKey.export({ format: "der", type: "spki" })),
  };
}

const key = makeKey();
const hash = "ab".repeat(32);
const nowMs = Date.parse("2026-11-20T00:00:00Z");
const manifest: Manifest = {
  schema: 1,
  product: "overlay-agent",
  sequence: 7,
  issued_at: "2026-11-01T00:00:00Z",
  expires_at: "2026-12-01T00:00:00Z",
  version: "1.2.3",
  artifacts: [{ target: "bun-linux-x64", file: "agent-1.2.3-linux-x64.tar.xz", size: 5, sha256: hash }],
  engines: [{ version: "1.11.1", file: "nebula-linux-amd64.tar.gz", sha256: hash }],
};
const rules = { keys: [key], nowMs, seenSequence: 7, allowOld: false };

function read(text: string, changed: Partial<typeof rules> = {}, signer = key): Manifest {
  const bytes = Buffer.from(text);
  return readManifest(bytes, makeSignature(bytes, signer, "test"), { ...rules, ...changed });
}

const written = (changed: object) => writeManifest({ ...manifest, ...changed });

describe("manifest", () => {
  test("what is written is read again, with or without engines", () => {
    expect(read(writeManifest(manifest))).toEqual(manifest);
    expect(read(written({ engines: [] })).engines).toEqual([]);
  });

  test("keys that a newer release may have are passed over", () => {
    expect(read(written({ notes: "more" })).version).toBe("1.2.3");
  });

  const refused: [string, () => unknown, string][] = [
    ["an unknown key", () => read(written({}), {}, makeKey()), "unknown key"],
    ["no trusted key at all", () => read(written({}), { keys: [] }), "trusts no release key"],
    ["another product", () => read(written({ product: "other" })), "another product"],
    ["a replayed one", () => read(written({ sequence: 6 })), "number 6, but 7"],
    [
      "one held back too long",
      () => read(written({}), { nowMs: Date.parse("2026-12-01T00:00:00Z") }),
      "expired",
    ],
    ["a newer format", () => read(written({ schema: 2 })), "not as expected"],
    ["a version that is none", () => read(written({ version: "1.2.3/../4" })), "not as expected"],
    ["no JSON", () => read("hello"), "not as expected"],
  ];
  for (const file of ["../agent", "a/b", ".hidden", "https://x/y", "a b", ""]) {
    const artifacts = [{ ...manifest.artifacts[0], file }];
    refused.push([`the file name "${file}"`, () => read(written({ artifacts })), "not as expected"]);
  }
  for (const [what, attempt, reason] of refused) {
    test(`refuses ${what}`, () => expect(attempt).toThrow(reason));
  }

  test("takes an old one for whoever asked for a downgrade, but only with a good signature", () => {
    const late = { nowMs: Date.parse("2030-01-01T00:00:00Z"), seenSequence: 99, allowOld: true };
    expect(read(written({}), late).version).toBe("1.2.3");
    expect(() => read(written({}), late, makeKey())).toThrow("unknown key");
  });

  test("names what it lacks", () => {
    expect(artifactFor(manifest, "bun-linux-x64").size).toBe(5);
    expect(() => artifactFor(manifest, "bun-darwin-x64")).toThrow("nothing for bun-darwin-x64");
  });
});
