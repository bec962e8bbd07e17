// Accepted and refused manifests, and the reason for each refusal.

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
  artifacts: [{ target: "bun-linux-x64", file: "agent-1.2.3-linux-x64.tar.gz", size: 5, sha256: hash }],
  engines: [{ version: "1.11.1", file: "nebula-linux-amd64.tar.gz", sha256: hash }],
};
const rules = { keys: [key], nowMs, seenSequence: 7, allowOld: false, ifOutdated: "" };

function read(text: string, changed: Partial<typeof rules> = {}, signer = key): Manifest {
  const bytes = Buffer.from(text);
  return readManifest(bytes, makeSignature(bytes, signer, "test"), { ...rules, ...changed });
}

const written = (changed: object) => writeManifest({ ...manifest, ...changed });

describe("manifest", () => {
  test("reads what it writes, with and without engines", () => {
    expect(read(writeManifest(manifest))).toEqual(manifest);
    expect(read(written({ engines: [] })).engines).toEqual([]);
  });

  test("ignores unknown keys of newer releases", () => {
    expect(read(written({ notes: "more" })).version).toBe("1.2.3");
  });

  test("takes the .tar.zst of a target if there is one", () => {
    const [gz] = manifest.artifacts;
    const zst = { file: "agent-1.2.3-linux-x64.tar.zst", size: 4, sha256: "cd".repeat(32) };
    const both = read(written({ artifacts: [{ ...gz, zst }] }));
    expect(artifactFor(both, "bun-linux-x64")).toEqual(zst);
    expect(artifactFor(manifest, "bun-linux-x64").file).toBe("agent-1.2.3-linux-x64.tar.gz");
    for (const bad of [{ ...zst, file: "../agent" }, { ...zst, sha256: "" }, { file: zst.file }, "x"])
      expect(() => read(written({ artifacts: [{ ...gz, zst: bad }] }))).toThrow("is invalid");
  });

  const refused: [string, () => unknown, string][] = [
    ["an unknown key", () => read(written({}), {}, makeKey()), "unknown key"],
    ["everything without a trusted key", () => read(written({}), { keys: [] }), "trusts no release key"],
    ["another product", () => read(written({ product: "other" })), "for another product"],
    [
      "a number lower than one already seen",
      () => read(written({ sequence: 6 })),
      "number is 6, and this machine has seen 7",
    ],
    ["an expired one", () => read(written({}), { nowMs: Date.parse("2026-12-01T00:00:00Z") }), "expired"],
    ["an unknown schema", () => read(written({ schema: 2 })), "is invalid"],
    ["an invalid version", () => read(written({ version: "1.2.3/../4" })), "is invalid"],
    ["no JSON", () => read("hello"), "is invalid"],
  ];
  for (const file of ["../agent", "a/b", ".hidden", "https://x/y", "a b", ""]) {
    const artifacts = [{ ...manifest.artifacts[0], file }];
    refused.push([`the file name "${file}"`, () => read(written({ artifacts })), "is invalid"]);
  }
  for (const [what, attempt, reason] of refused) {
    test(`refuses ${what}`, () => expect(attempt).toThrow(reason));
  }

  test("allowOld accepts an expired release with an old number, but not a bad signature", () => {
    const late = { nowMs: Date.parse("2030-01-01T00:00:00Z"), seenSequence: 99, allowOld: true };
    expect(read(written({}), late).version).toBe("1.2.3");
    expect(() => read(written({}), late, makeKey())).toThrow("unknown key");
  });

  test("a missing target is named", () => {
    expect(artifactFor(manifest, "bun-linux-x64").size).toBe(5);
    expect(() => artifactFor(manifest, "bun-darwin-x64")).toThrow("no executable for bun-darwin-x64");
  });
});
