// The control plane's TLS CA, found by its fingerprint in a real handshake, and used for a real request.

import * as v from "valibot";
import { apiPath } from "../../../src/api/endpoint.ts";
import { organizationsApi } from "../../../src/api/organizations.ts";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHash, X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildInfo } from "../../../src/build-info.ts";
import { checkForUpdate } from "../../../src/node/update/self-update.ts";
import { makeClient } from "../../../src/node/contact/requests/client.ts";
import { planProvision } from "../../../src/node/enroll/provide-engine.ts";
import { readApiCaByFingerprint } from "../../../src/node/enroll/register-input.ts";
import { realSystem } from "../../../src/base/system.ts";
import { rejection } from "../../pki/thrown.ts";
import { releaseKey } from "../../support/releases.ts";
import { runSync } from "../../support/debian.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const directory = temporaryDirectory();
const path = (name: string) => join(directory.path, name);
const read = (name: string) => readFileSync(path(name), "utf8");
let server: ReturnType<typeof Bun.serve>;
const keysBefore = buildInfo.releaseKeys;
let base = "";
const asked: string[] = [];

function openssl(...words: string[]): void {
  runSync(["openssl", ...words], { cwd: directory.path });
}

beforeAll(() => {
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl(
    "req",
    "-x509",
    ...key,
    "-keyout",
    "ca.key",
    "-out",
    "ca.crt",
    "-days",
    "30",
    "-subj",
    "/CN=Our own CA",
  );
  openssl("req", "-new", ...key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost");
  writeFileSync(path("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  openssl(
    ..."x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out server.crt".split(
      " ",
    ),
  );
  server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    development: false,
    tls: { key: read("server.key"), cert: read("server.crt") + read("ca.crt") },
    fetch: ({ url }) =>
      asked.push(new URL(url).pathname) > 0 && url.includes("/releases/")
        ? new Response(null, { status: 404 })
        : Response.json({ slug: "acme" }),
  });
  base = `https://127.0.0.1:${server.port}`;
});

afterAll(() => {
  Object.assign(buildInfo, { releaseKeys: keysBefore });
  void server.stop(true);
  directory[Symbol.dispose]();
});

const printOf = (pem: string) =>
  `sha256:${createHash("sha256").update(new X509Certificate(pem).raw).digest("hex")}`;

test("the CA with this fingerprint is found in the chain and then trusted", async () => {
  const pem = await readApiCaByFingerprint(base, printOf(read("ca.crt")));
  expect(new X509Certificate(pem).subject).toContain("Our own CA");
  const asked = {
    path: apiPath(organizationsApi.retrieve, { slug: "acme" }),
    schema: v.unknown(),
    repeatable: true,
  };
  const trusting = makeClient({ base, ca: pem, system: realSystem() });
  expect((await trusting.request(asked)).status).toBe(200);
  const trustless = makeClient({ base, system: { ...realSystem(), sleep: async () => {} } });
  expect((await rejection(trustless.request(asked))).code).toBe("control_plane_unreachable");
});

test("another fingerprint is refused as a possible interception", async () => {
  const error = await rejection(readApiCaByFingerprint(base, `sha256:${"0".repeat(64)}`));
  expect(error.code).toBe("untrusted_answer");
  expect(error.details.hint).toContain("intercepted");
});

test("an invalid fingerprint or a URL without TLS is a usage error", async () => {
  for (const [address, print] of [
    [base, "sha1:00"],
    [base, "0".repeat(64)],
    ["http://127.0.0.1:1", `sha256:${"0".repeat(64)}`],
  ] as const) {
    expect((await rejection(readApiCaByFingerprint(address, print))).code).toBe("usage");
  }
});

test("a closed port is reported as unreachable", async () => {
  const error = await rejection(readApiCaByFingerprint("https://127.0.0.1:1", `sha256:${"0".repeat(64)}`));
  expect(error.code).toBe("control_plane_unreachable");
});

test("a port of plain HTTP is named as such", async () => {
  const server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("plain") });
  const { port } = server;
  const base = `https://127.0.0.1:${port}`;
  const error = await rejection(readApiCaByFingerprint(base, `sha256:${"0".repeat(64)}`));
  await server.stop(true);
  expect(error.message).toBe(`Cannot reach the control plane at ${base}: the TLS handshake failed`);
  expect(error.details.hint).toBe(
    `The port may speak plain HTTP: try http://127.0.0.1:${port}, or another port.`,
  );
});

test("an update from the own control plane trusts the authority that the registration pinned, for that origin alone", async () => {
  const configRoot = path("etc");
  const organization = join(configRoot, "acme");
  mkdirSync(organization, { recursive: true });
  writeFileSync(join(organization, "node-config.json"), "damaged");
  writeFileSync(join(organization, "api-ca.crt"), read("ca.crt"));
  const credentials = { org_slug: "acme", node_id: 1, api_token: "t".repeat(40) };
  const places = { stateDb: path("state.db"), configRoot, dryRun: false };
  const log = { debug: () => {} };
  const ask = async (apiBase: string) => {
    writeFileSync(
      join(organization, "credentials.json"),
      JSON.stringify({ ...credentials, api_base: apiBase }),
    );
    const request = { releaseUrl: `${base}/releases/`, allowDowngrade: false };
    return (await rejection(checkForUpdate(request, places, { system: realSystem(), log }))).message;
  };
  // The connection is trusted; what it brings, the signature of the release decides.
  expect(await ask(base)).toContain("returned status 404");
  expect(await ask("https://127.0.0.1:1")).not.toContain("returned status 404");
});

test("a plan that knows the fingerprint alone reads the list of engines behind that CA", async () => {
  const places = { configRoot: path("root"), stateDb: path("state.db") };
  const settings = { ...places, overlayBinary: path("no-engine"), overlayBinaryGiven: true };
  const plan = async (caFingerprint: string | undefined) => {
    asked.length = 0;
    const newcomer = { slug: "acme", apiBase: base, apiCa: "", caFingerprint };
    await planProvision(settings, realSystem(), newcomer);
    return asked;
  };
  Object.assign(buildInfo, { releaseKeys: [releaseKey.text] });
  expect(await plan(undefined)).toEqual([]);
  expect(await plan(`sha256:${"0".repeat(64)}`)).toEqual([]);
  expect(await plan(printOf(read("ca.crt")))).toContain("/releases/manifest.json");
});
