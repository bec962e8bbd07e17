// Signatures of the real ssh-keygen, and of a security key that the test is itself.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { parseSshKey, sshFingerprint, verifySshSignature } from "../../src/pki/ssh-signature.ts";
import { rawPublicKey } from "../../src/pki/keys.ts";
import { runSync } from "../support/debian.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const namespace = "seal@overlay-agent";
const message = Buffer.from('{"number":1}');

const string = (bytes: Uint8Array | string) => {
  const content = Buffer.from(bytes);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(content.length);
  return Buffer.concat([length, content]);
};

/** What an authenticator signs (PROTOCOL.u2f), in the armor of ssh-keygen. */
function hardwareKey(application = "ssh:") {
  const { privateKey } = generateKeyPairSync("ed25519");
  const type = "sk-ssh-ed25519@openssh.com";
  const blob = Buffer.concat([string(type), string(rawPublicKey(privateKey)), string(application)]);
  const digest = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest();
  const signed = (flags: number, purpose = namespace) => {
    const hashed = createHash("sha512").update(message).digest();
    const body = Buffer.concat([
      Buffer.from("SSHSIG"),
      ...[purpose, "", "sha512"].map(string),
      string(hashed),
    ]);
    const tail = Buffer.from([flags, 0, 0, 0, 7]);
    const signature = sign(null, Buffer.concat([digest(application), tail, digest(body)]), privateKey);
    const whole = Buffer.concat([
      Buffer.from("SSHSIG"),
      Buffer.from([0, 0, 0, 1]),
      string(blob),
      ...[purpose, "", "sha512"].map(string),
      string(Buffer.concat([string(type), string(signature), tail])),
    ]);
    const lines = whole.toString("base64").match(/.{1,70}/g) ?? [];
    return ["-----BEGIN SSH SIGNATURE-----", ...lines, "-----END SSH SIGNATURE-----", ""].join("\n");
  };
  return { line: `${type} ${blob.toString("base64")} token`, signed };
}

describe("signatures of ssh-keygen", () => {
  test("the key that signed is found, and its fingerprint is the one of ssh-keygen", () => {
    using directory = temporaryDirectory();
    const [one, two] = ["one", "two"].map((name) => makeSshKey(join(directory.path, name)));
    if (one === undefined || two === undefined) throw new Error("no keys");
    const keys = [one, two].map(({ line }) => parseSshKey(line));
    const armored = sshSign(two.file, message, namespace);
    expect(verifySshSignature(armored, message, namespace, keys)).toBe(keys[1] as never);
    const shown = runSync(["ssh-keygen", "-l", "-f", `${one.file}.pub`]);
    expect(shown.split(" ")[1]).toBe(sshFingerprint(parseSshKey(one.line)));
  });

  test("another message, purpose, key or byte is refused", () => {
    using directory = temporaryDirectory();
    const [one, two] = ["one", "two"].map((name) => makeSshKey(join(directory.path, name)));
    if (one === undefined || two === undefined) throw new Error("no keys");
    const keys = [parseSshKey(one.line)];
    const armored = sshSign(one.file, message, namespace);
    const refusal = (text: string, content = message, purpose = namespace) => {
      try {
        verifySshSignature(text, content, purpose, keys);
        return "taken";
      } catch (error) {
        return String(error);
      }
    };
    expect(refusal(armored)).toBe("taken");
    expect(refusal(armored, Buffer.from('{"number":2}'))).toContain("does not match");
    expect(refusal(armored, message, "file")).toContain("another purpose");
    expect(refusal(sshSign(one.file, message, "file"))).toContain("another purpose");
    expect(refusal(sshSign(two.file, message, namespace))).toContain("not a signer");
    const lines = armored.trim().split("\n");
    const bytes = Buffer.from(lines.slice(1, -1).join(""), "base64");
    for (let at = 0; at < bytes.length; at++) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      const text = [lines[0], changed.toString("base64"), lines.at(-1)].join("\n");
      expect([at, refusal(text)]).not.toEqual([at, "taken"]);
    }
    for (let length = 0; length < bytes.length; length++) {
      const text = [lines[0], bytes.subarray(0, length).toString("base64"), lines.at(-1)].join("\n");
      expect([length, refusal(text)]).not.toEqual([length, "taken"]);
    }
    expect(refusal([lines[0], `${bytes.toString("base64")}AAAA`, lines.at(-1)].join("\n"))).toContain(
      "no sig",
    );
  });

  test("ssh-keygen accepts what it made, by the same line of allowed signers", () => {
    using directory = temporaryDirectory();
    const key = makeSshKey(join(directory.path, "one"));
    const files = { signers: `seal ${key.line}`, sig: sshSign(key.file, message, namespace) };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(directory.path, name), text);
    const at = (name: string) => join(directory.path, name);
    const argv = ["ssh-keygen", "-Y", "verify", "-f", at("signers"), "-I", "seal", "-n", namespace];
    const checked = Bun.spawnSync([...argv, "-s", at("sig")], { stdin: message });
    expect(checked.exitCode).toBe(0);
    expect(readFileSync(at("sig"), "utf8")).toContain("BEGIN SSH SIGNATURE");
  });
});

describe("signatures of security keys", () => {
  test("are taken if the owner touched the key", () => {
    const { line, signed } = hardwareKey();
    const keys = [parseSshKey(line)];
    expect(verifySshSignature(signed(1), message, namespace, keys)).toBe(keys[0] as never);
    expect(verifySshSignature(signed(5), message, namespace, keys)).toBe(keys[0] as never);
    expect(() => verifySshSignature(signed(0), message, namespace, keys)).toThrow("does not match");
    expect(() => verifySshSignature(signed(1, "file"), message, namespace, keys)).toThrow("another purpose");
  });

  test("ssh-keygen takes the same signature", () => {
    using directory = temporaryDirectory();
    const { line, signed } = hardwareKey();
    const at = (name: string) => join(directory.path, name);
    writeFileSync(at("signers"), `seal ${line}\n`);
    writeFileSync(at("sig"), signed(1));
    const argv = ["ssh-keygen", "-Y", "verify", "-f", at("signers"), "-I", "seal", "-n", namespace];
    const checked = Bun.spawnSync([...argv, "-s", at("sig")], { stdin: message });
    expect([checked.exitCode, checked.stderr.toString()]).toEqual([0, ""]);
  });

  test("belong to one application", () => {
    const [one, other] = [hardwareKey(), hardwareKey("ssh:other")];
    expect(() => verifySshSignature(one.signed(1), message, namespace, [parseSshKey(other.line)])).toThrow();
  });
});

test("other kinds of keys are no signers", () => {
  using directory = temporaryDirectory();
  const file = join(directory.path, "rsa");
  runSync(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", file]);
  const good = hardwareKey().line;
  for (const line of [readFileSync(`${file}.pub`, "utf8"), "", "ssh-ed25519", `${good.split(" ")[0]} AAAA`])
    expect(() => parseSshKey(line)).toThrow("not the public half");
  expect(() => parseSshKey(good.replace("sk-ssh-ed25519@openssh.com ", "ssh-ed25519 "))).toThrow();
});
