// Values of `agent serve` that make a useless control plane are refused before it listens, with the flag or the file.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentHere } from "../support/in-process.ts";
import { temporaryDirectory } from "../support/temporary.ts";

test("useless lifetimes and a missing directory of releases are usage errors", async () => {
  using directory = temporaryDirectory();
  for (const [flag, value] of [
    ["--access-lifetime", "0s"],
    ["--refresh-lifetime", "0d"],
    ["--event-retention", "0h"],
    ["--releases", join(directory.path, "missing")],
  ] as const) {
    const words = [
      "serve",
      "--listen",
      "127.0.0.1:0",
      "--data-dir",
      join(directory.path, "data"),
      flag,
      value,
    ];
    expect(await agentHere(words)).toMatchObject({ status: 2, err: expect.stringContaining(flag) });
  }
});

test("a TLS file that cannot be used is named", async () => {
  using directory = temporaryDirectory();
  const file = (name: string) => join(directory.path, name);
  const openssl = (name: string) =>
    Bun.spawnSync(
      `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout ${file(`${name}.key`)} -out ${file(`${name}.crt`)}`.split(
        " ",
      ),
      { stderr: "ignore" },
    );
  openssl("a");
  openssl("b");
  writeFileSync(file("bad"), "no PEM");
  for (const [cert, key, named] of [
    ["bad", "a.key", /bad holds no certificate/],
    ["a.crt", "bad", /bad holds no unencrypted private key/],
    ["a.crt", "b.key", /b\.key is not that of the certificate .*a\.crt/],
    ["a.crt", "missing", /missing/],
  ] as const) {
    const data = ["--listen", "127.0.0.1:0", "--data-dir", file("data")];
    const { status, err } = await agentHere([
      "serve",
      ...data,
      "--tls-cert",
      file(cert),
      "--tls-key",
      file(key),
    ]);
    expect(err).toMatch(named);
    expect([1, 78]).toContain(status);
  }
});
