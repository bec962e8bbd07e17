// `agent admin seal ca`: the key file, as the engines' own program reads it.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { env } from "node:process";
import * as v from "valibot";
import { decodeCaBundle } from "../../src/pki/nebula.ts";
import { makeHostKey } from "../../src/pki/keys.ts";
import { adminJson, runAdmin } from "../support/admin.ts";
import { describeEveryEngine } from "../support/engines.ts";
import { temporaryDirectory } from "../support/temporary.ts";

// The derivation of a key from a passphrase takes a second.
setDefaultTimeout(60_000);
const directory = temporaryDirectory();
const at = (name: string) => join(directory.path, name);
const data = at("data");
const passphrase = "a long passphrase";
afterAll(() => directory[Symbol.dispose]());
const make = (more: string[] = []) =>
  runAdmin(data, ["seal", "ca", "acme", at("offline.key"), "--passphrase-file", "-", ...more], passphrase);

beforeAll(async () => {
  await runAdmin(
    data,
    ["user", "create", "o@c.example", "--password-file", "-"],
    "correct horse battery staple",
  );
  await adminJson(data, ["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", "o@c.example"]);
});

test("the key is encrypted and stays; the certificate is sent, again after an interruption", async () => {
  const plan = await make(["--dry-run"]);
  expect([plan.status, plan.err]).toEqual([0, expect.stringContaining("make an offline CA")]);
  const made = await make();
  expect([made.status, made.out]).toEqual([0, expect.stringContaining("trust the offline CA")]);
  expect(readFileSync(at("offline.key"), "utf8")).toContain("ENCRYPTED PRIVATE KEY");
  expect(statSync(at("offline.key")).mode & 0o777).toBe(0o600);
  const [ca] = decodeCaBundle(readFileSync(at("offline.key.crt"), "utf8"));
  expect(ca?.name).toBe("acme offline CA");
  const again = await make(["--json"]);
  const { fingerprint } = v.parse(v.object({ fingerprint: v.string() }), JSON.parse(again.out));
  const shown = await adminJson(data, ["ca", "show", "acme"]);
  expect(JSON.stringify(shown)).toContain(`"fingerprint":"${fingerprint}"`);
  expect((await runAdmin(data, ["ca", "show", "acme"])).out).toContain("offline");
  rmSync(at("offline.key.crt"));
  expect((await make()).err).toContain("there is a file already");
  const short = ["seal", "ca", "acme", at("b.key"), "--passphrase-file", "-"];
  expect((await runAdmin(data, short, "short")).err).toContain("fewer than 12");
});

describeEveryEngine("with the program of the engine", ({ nebulaCert, version }) => {
  // Encrypted keys of other programs are read from 1.7 on.
  if (Bun.semver.order(version, "1.7.0") < 0) return;
  test("nebula-cert signs with the key, by the passphrase alone", async () => {
    await runAdmin(data, ["seal", "ca", "acme", at(`${version}.key`), "--passphrase-file", "-"], passphrase);
    writeFileSync(at("host.pub"), makeHostKey().publicPem);
    const out = at(`${version}-host.crt`);
    const files = [
      "-ca-key",
      at(`${version}.key`),
      "-ca-crt",
      at(`${version}.key.crt`),
      "-in-pub",
      at("host.pub"),
    ];
    const sign = (secret: string) =>
      Bun.spawnSync(
        [
          nebulaCert,
          "sign",
          ...files,
          "-name",
          "db",
          "-ip",
          "10.77.0.5/16",
          "-duration",
          "100h",
          "-out-crt",
          out,
        ],
        {
          env: { ...env, NEBULA_CA_PASSPHRASE: secret },
        },
      );
    expect(sign("another passphrase").exitCode).not.toBe(0);
    const { exitCode, stderr } = sign(passphrase);
    expect([exitCode, stderr.toString()]).toEqual([0, expect.any(String)]);
    const verify = [nebulaCert, "verify", "-ca", at(`${version}.key.crt`), "-crt", out];
    expect(Bun.spawnSync(verify).exitCode).toBe(0);
  });
});
