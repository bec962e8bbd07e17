// Signatures against the real minisign tool, in both directions.

import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  makeSignature,
  readPublicKey,
  readSecretKey,
  verifySignature,
  writePublicKey,
} from "../../src/release/minisign.ts";

const tool = "/usr/bin/minisign";
const directory = mkdtempSync(join(tmpdir(), "minisign-"));
const at = (name: string) => join(directory, name);
const content = Buffer.from('{"schema":1}\n');

/** Made by minisign 0.11 with the password `pass word`; opening it costs 1 GiB and seconds, by design. */
const lockedKey =
  "RWRTY0Iy/HAJhMoVxd7aU8kou+ASaj2cMYMDHtPL584ci5n8fcgAAAACAAAAAAAAAEAAAAAAYngQAHijFftoAiDn7lqpB3LcLC198/KGSz1bQkeca5P7Q+mFDPvqGcF1pSK5c6Dz/TDQr8bsq5zkpkFCDJmC+tuVTXUywyzDPItKLIDL6YFSX5fg9ZsyHzvM8YpUNuMgkU2/tCphgtg=";
const lockedPublicKey = "RWQGwYxMYlh+B7uZFm4wvCSdPyznF+ScLTdEpa2Q7v9Gk+f9HoxvRt4F";

function minisign(args: string[], input = ""): number {
  return Bun.spawnSync([tool, ...args], { stdin: Buffer.from(input), stdout: "ignore", stderr: "ignore" })
    .exitCode;
}

function makeKey(name: string) {
  minisign(["-G", "-W", "-p", at(`${name}.pub`), "-s", at(`${name}.key`)]);
  return {
    secret: readSecretKey(readFileSync(at(`${name}.key`), "utf8"), undefined),
    public: readPublicKey(readFileSync(at(`${name}.pub`), "utf8")),
  };
}

afterAll(() => rmSync(directory, { recursive: true }));

describe.skipIf(!existsSync(tool))("minisign", () => {
  const key = makeKey("one");
  const other = makeKey("two");
  writeFileSync(at("content"), content);
  minisign(["-S", "-W", "-s", at("one.key"), "-m", at("content"), "-t", "sequence 7"]);
  const signature = readFileSync(at("content.minisig"), "utf8");

  test("the tool's signature is accepted, with its trusted comment", () => {
    expect(verifySignature(content, signature, [other.public, key.public])).toBe("sequence 7");
  });

  test("our signature is accepted by the tool", () => {
    writeFileSync(at("ours"), content);
    writeFileSync(at("ours.minisig"), makeSignature(content, key.secret, "sequence 8"));
    expect(minisign(["-V", "-p", at("one.pub"), "-m", at("ours")])).toBe(0);
    expect(minisign(["-V", "-p", at("two.pub"), "-m", at("ours")])).not.toBe(0);
  });

  test("a key that the tool has protected by a password opens with it", () => {
    expect(writePublicKey(readSecretKey(lockedKey, "pass word"))).toBe(lockedPublicKey);
    expect(() => readSecretKey(lockedKey, undefined)).toThrow("password");
  }, 120_000);

  test("every altered byte of content or signature is refused", () => {
    for (let index = 0; index < content.length; index++) {
      const altered = Buffer.from(content);
      altered[index] = (altered[index] ?? 0) ^ 1;
      expect(() => verifySignature(altered, signature, [key.public])).toThrow("does not match");
    }
    const lines = signature.split("\n");
    for (const line of [1, 2, 3]) {
      const text = lines[line] ?? "";
      const swapped = text.slice(0, 18) + (text[18] === "A" ? "B" : "A") + text.slice(19);
      const altered = lines.with(line, swapped).join("\n");
      expect(() => verifySignature(content, altered, [key.public])).toThrow();
    }
  });

  test("an unknown key, the old form and damage are refused with the reason", () => {
    expect(() => verifySignature(content, signature, [other.public])).toThrow("unknown key");
    minisign(["-S", "-l", "-W", "-s", at("one.key"), "-m", at("content"), "-x", at("legacy")]);
    const legacy = readFileSync(at("legacy"), "utf8");
    expect(() => verifySignature(content, legacy, [key.public])).toThrow("prehashed");
    expect(() => verifySignature(content, "", [key.public])).toThrow("damaged");
    expect(() => readPublicKey("RWQ=")).toThrow("public key");
  });
});
