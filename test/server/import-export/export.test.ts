// An exported organization: which files it has and lacks, and that an empty control plane can import it.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, expect, spyOn, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { createPrivateKey } from "node:crypto";
import * as v from "valibot";
import * as baseFiles from "../../../src/base/files.ts";
import { readCaKey } from "../../../src/pki/ca-key.ts";
import { rawPublicKey } from "../../../src/pki/keys.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { exportOrganization } from "../../../src/server/import-export/export.ts";
import { importNetwork } from "../../../src/server/import-export/import.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { planTree, writeTree } from "../../../src/server/import-export/plain-files.ts";
import { startRotation } from "../../../src/server/rollout/rotation-commands.ts";
import { registerNode } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let acme: Organization;
let owner: string;
let directory: ReturnType<typeof temporaryDirectory>;

beforeEach(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme");
  owner = await server.person("owner@example.org");
  await server.join(acme, "owner@example.org", "owner");
  directory = temporaryDirectory();
});
afterEach(async () => {
  directory[Symbol.dispose]();
  await server[Symbol.asyncDispose]();
});

const out = () => join(directory.path, "out");
const take = async (passphrase?: string) => {
  const files = await exportOrganization(server.app.services, acme, { passphrase });
  writeTree(out(), files);
  return files;
};
const read = (name: string) => readFileSync(join(out(), name), "utf8");

test("has the CAs, their encrypted keys and the files of each node; the audit log records it", async () => {
  await registerNode(server, acme, "hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
  const gone = await registerNode(server, acme, "gone");
  await server.send("POST", "/api/org/acme/nodes/", { token: owner, body: { name: "later" } });
  await server.send("DELETE", `/api/org/acme/nodes/${gone.id}/`, { token: owner });
  await take("a long passphrase");
  expect(readdirSync(out()).sort()).toEqual(["ca.crt", "ca.key", "nodes", "x509-ca.crt", "x509-ca.key"]);
  expect(readdirSync(join(out(), "nodes"))).toEqual(["hub"]);
  expect(readdirSync(join(out(), "nodes/hub")).sort()).toEqual(
    ["ca.crt", "config.yml", "host.crt", "host.pub", "node-config.json", "node.crt"].sort(),
  );
  const mode = (name: string) => (statSync(join(out(), name)).mode & 0o777).toString(8);
  expect([mode("."), mode("ca.key"), mode("x509-ca.key"), mode("ca.crt")]).toEqual([
    "700",
    "600",
    "600",
    "644",
  ]);
  for (const name of ["ca.key", "x509-ca.key"]) expect(read(name)).toContain("ENCRYPTED PRIVATE KEY");
  expect((await readCaKey(read("ca.key"), "a long passphrase")).curve).toBe("25519");
  expect(createPrivateKey({ key: read("x509-ca.key"), passphrase: "a long passphrase" }).type).toBe(
    "private",
  );
  expect(read("nodes/hub/config.yml")).toContain(
    gone.answer.node.certificate?.fingerprint ?? "no fingerprint",
  );
  const event = await server.db.get("SELECT after FROM events WHERE type = 'ca.exported'");
  expect(JSON.parse(String(event?.["after"]))).toEqual({ nodes: 1, keys_encrypted: true });
});

test("its plan writes and records nothing and shows no key; a directory with files is refused", async () => {
  await registerNode(server, acme, "one");
  const files = await exportOrganization(server.app.services, acme, { isPlan: true });
  const plan = JSON.stringify(planTree(out(), files));
  expect(plan).toContain("nodes/one/config.yml");
  expect(plan).not.toContain("PRIVATE KEY");
  expect(existsSync(out())).toBe(false);
  expect(await server.db.all("SELECT id FROM events WHERE type = 'ca.exported'")).toEqual([]);
  mkdirSync(out());
  writeFileSync(join(out(), "mine"), "");
  expect(() => planTree(out(), files)).toThrow("is not empty");
  expect(() => writeTree(out(), files)).toThrow("is not empty");
  expect(readdirSync(directory.path)).toEqual(["out"]);
});

test("all directories of the tree are synced before it gets its name", () => {
  const synced: [path: string, isNamed: boolean][] = [];
  using sync = spyOn(baseFiles, "syncDirectory").mockImplementation((path) => {
    synced.push([relative(directory.path, path).replace(/\.\d+\.tmp/, " unnamed"), existsSync(out())]);
  });
  const content = "";
  writeTree(out(), [
    { path: "ca.crt", content, mode: 0o644 },
    { path: "nodes/one/ca.crt", content, mode: 0o644 },
  ]);
  expect(sync).toHaveBeenCalledTimes(4);
  expect(Object.fromEntries(synced)).toEqual({
    "out unnamed": false,
    [join("out unnamed", "nodes")]: false,
    [join("out unnamed", "nodes", "one")]: false,
    "": true,
  });
});

test("during a rotation it has all trusted CAs and the key of the signing CA", async () => {
  await startRotation(server.app.services, acme, operator);
  await take();
  const cas = decodeBundle(read("ca.crt"));
  const { privateKey } = await readCaKey(read("ca.key"));
  const active = await server.db.get(
    "SELECT fingerprint FROM authorities WHERE kind = 'overlay' AND state = 'active'",
  );
  const own = cas.find((ca) => Buffer.compare(ca.publicKey, rawPublicKey(privateKey)) === 0);
  expect(cas).toHaveLength(2);
  expect(own === undefined ? "" : fingerprint(own)).toBe(String(active?.["fingerprint"]));
});

test("an empty control plane imports it: same CA, names, addresses, certificates and blocklist", async () => {
  await registerNode(server, acme, "hub", {
    is_lighthouse: true,
    public_ip: "192.0.2.1",
    external_port: 4300,
  });
  await registerNode(server, acme, "one");
  const router = await registerNode(server, acme, "router");
  const path = `/api/org/acme/nodes/${router.id}/`;
  const body = { subnets: ["192.168.7.0/24", "172.16.0.0/16"], is_relay: true, groups: ["gateways"] };
  expect((await server.send("PATCH", path, { token: owner, body })).status).toBe(200);
  const gone = await registerNode(server, acme, "gone");
  await server.send("DELETE", `/api/org/acme/nodes/${gone.id}/`, { token: owner });
  await take("a long passphrase");
  await using other = await makeTestServer();
  other.clock.ms = server.clock.ms;
  await importNetwork(other.app.services, "again", out(), {
    network: undefined,
    owner: undefined,
    passphrase: async () => "a long passphrase",
    isPlan: false,
  });
  const nodes =
    "SELECT name, ip, is_lighthouse, is_relay, subnets, groups, public_ip, external_port FROM nodes WHERE state = 'active' ORDER BY name";
  expect(await other.db.all(nodes)).toEqual(
    // Only one of them has a known underlay address.
    await server.db.all(nodes),
  );
  const certificates =
    "SELECT fingerprint, pem, state FROM certificates WHERE kind = 'overlay' AND state <> 'former' ORDER BY fingerprint";
  const kept = v.array(v.object({ fingerprint: v.string(), pem: v.string(), state: v.string() }));
  const before = v.parse(kept, await server.db.all(certificates));
  expect(v.parse(kept, await other.db.all(certificates))).toEqual(
    before.map((each) => (each.state === "blocked" ? { ...each, pem: "" } : each)),
  );
  const ca = "SELECT fingerprint FROM authorities WHERE kind = 'overlay'";
  expect(await other.db.all(ca)).toEqual(await server.db.all(ca));
});
