// What an imported network becomes: names, addresses of the underlay, and nodes that are revoked before they register.

import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Node } from "../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { importNetwork } from "../../../src/server/import-export/import.ts";
import { handMade } from "../../support/hand-made.ts";
import { makeKeys, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let owner: string;
let directory: ReturnType<typeof temporaryDirectory>;

beforeEach(async () => {
  server = await makeTestServer();
  owner = await server.person("owner@example.org");
  directory = temporaryDirectory();
});
afterEach(async () => {
  directory[Symbol.dispose]();
  await server[Symbol.asyncDispose]();
});

const { file, makeNetwork } = handMade(
  () => directory.path,
  () => Math.floor(server.clock.ms / 1000),
);
const bring = () =>
  importNetwork(server.app.services, "acme", directory.path, {
    network: undefined,
    owner: { email: "owner@example.org" },
    passphrase: async () => "",
    isPlan: false,
  });
const call = (method: string, path: string, body?: unknown) =>
  server.send(method, `/api/org/acme/${path}`, { token: owner, ...(body === undefined ? {} : { body }) });
const nodes = async () => v.parse(v.array(Node), (await call("GET", "nodes/")).json);

test("an import keeps valid names with their hosts, and gives no host the name of another", async () => {
  const { host } = makeNetwork();
  // The engines tell `DB` and `db` apart: a rule for `db` must not hold for the first machine.
  for (const [at, name] of ["DB", "db", "Web", "web-2", "web", "any"].entries())
    host(`${at}.crt`, { name, networks: [`10.42.0.${at + 2}/16`] });
  host("7.crt", { name: "web", networks: ["10.42.0.9/16"] });
  const imported = await bring();
  expect((await nodes()).map(({ name }) => name)).toEqual([
    "db-2",
    "db",
    "web-3",
    "web-2",
    "web",
    "node",
    "web-4",
  ]);
  expect("plan" in imported && imported.plan.notes).toEqual([
    '0.crt: the node of "DB" (10.42.0.2) is named db-2.',
    '2.crt: the node of "Web" (10.42.0.4) is named web-3.',
    '5.crt: the node of "any" (10.42.0.7) is named node.',
    '7.crt: the node of "web" (10.42.0.9) is named web-4.',
  ]);
});

test("an import takes only addresses of the underlay that the API would accept", async () => {
  const { host } = makeNetwork();
  for (const at of [1, 2, 3, 4]) host(`${at}.crt`, { name: `n${at}`, networks: [`10.42.0.${at}/16`] });
  const map = {
    "10.42.0.1": [
      "1.2.3.4.5:4242",
      "hub.example:70000",
      "hub.example:0",
      "[2001:db8::1]:4242",
      "late.example:1",
    ],
    "10.42.0.2": ["bad name:4242"],
    "10.42.0.3": [`${"x".repeat(300)}:1`],
    "10.42.0.4": ["no port"],
  };
  file("config.yml", JSON.stringify({ pki: {}, static_host_map: map, lighthouse: { hosts: ["10.42.0.1"] } }));
  const imported = await bring();
  expect((await nodes()).map((node) => [node.public_ip, node.external_port])).toEqual([
    ["late.example", 1],
    [null, null],
    [null, null],
    [null, null],
  ]);
  const notes = "plan" in imported ? imported.plan.notes : [];
  expect(notes).toHaveLength(7);
  expect(notes).toContain(
    'config.yml:1: "bad name:4242" is no address of n2 outside the overlay with a port; not imported.',
  );
});

test("an imported node keeps its IPv6 address when it is revoked and restored", async () => {
  const { host } = makeNetwork(2);
  host("one.crt", { name: "one", version: 2, networks: ["10.42.0.1/24", "fd42::5/64"] });
  await bring();
  const path = "/api/org/acme/nodes/1/";
  expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
  const restored = await server.send("POST", `${path}restore/`, { token: owner, body: {} });
  expect(restored.json).toMatchObject({ ip_address: "10.42.0.1", ip_address6: "fd42::5" });
  expect(
    await server.db.all("SELECT host, node_id, held_until FROM addresses WHERE node_id = 1 ORDER BY host"),
  ).toEqual([
    { host: 1, node_id: 1, held_until: null },
    { host: 5, node_id: 1, held_until: null },
  ]);
});

test("a machine can register after its node was revoked and restored", async () => {
  const { host } = makeNetwork();
  host("one.crt", { name: "one", networks: ["10.42.0.2/16"], groups: ["web"] });
  const imported = await bring();
  if (!("organization" in imported)) throw new Error("Nothing was imported");
  expect((await call("DELETE", "nodes/1/")).status).toBe(204);
  const restored = v.parse(Node, (await call("POST", "nodes/1/restore/", {})).json);
  expect(restored).toMatchObject({ id: 1, state: "pending", ip_address: "10.42.0.2" });
  const registration_token = await registrationToken(server, imported.organization, { uses: 1, node_id: 1 });
  const answer = await sendRegistration(server, "acme", {
    name: "one",
    ...(await makeKeys("one")),
    registration_token,
  });
  expect(v.parse(RegisterAnswer, answer.json).node).toMatchObject({
    id: 1,
    state: "active",
    groups: ["web"],
  });
});
