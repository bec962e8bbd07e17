// Exits of an organization: what the nodes of their groups, and no others, are told; and what an exit may pass on.

import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Organization } from "../../../src/api/organizations.ts";
import { isMap, listOf, valueAt } from "../../../src/base/yaml.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import {
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let gate: RegisteredNode;
let laptop: RegisteredNode;
let other: RegisteredNode;

beforeEach(async () => {
  server = await makeTestServer();
  org = await server.organization("acme");
  admin = await server.person("admin@acme.example");
  await server.join(org, "admin@acme.example", "admin");
  [gate, laptop, other] = (await Promise.all(
    ["gate", "laptop", "other"].map((name) => registerNode(server, org, name)),
  )) as [RegisteredNode, RegisteredNode, RegisteredNode];
  for (const node of [gate, laptop, other]) await node.checkin({ overlay_version: "1.12.0" });
  await patch(laptop, { groups: ["staff"] });
});

afterEach(() => server[Symbol.asyncDispose]());

const patch = (node: RegisteredNode, body: unknown) =>
  server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: admin, body });

async function filesOf(node: RegisteredNode) {
  const { files } = (await node.download()).json as { files: Record<string, string> };
  const config = readYaml(files["config.yml"] ?? "", "config.yml");
  return {
    config,
    node: JSON.parse(files["node-config.json"] ?? "{}") as Record<string, unknown>,
    behind: decodeBundle(files["host.crt"] ?? "").flatMap(({ unsafeNetworks }) => unsafeNetworks),
    inbound: listOf(valueAt(config, "firewall.inbound")).filter(isMap),
    routes: valueAt(config, "tun.unsafe_routes"),
  };
}

test("an exit is told to the nodes of its groups alone, and routes nothing by itself", async () => {
  expect((await patch(gate, { exit_groups: ["staff"] })).status).toBe(200);
  const exit = { name: "gate", ip_address: gate.ip, ip_address6: null };
  expect((await filesOf(laptop)).node).toMatchObject({ exits: [exit] });
  expect((await filesOf(laptop)).routes).toEqual([]);
  expect((await filesOf(other)).node).not.toHaveProperty("exits");
  expect((await filesOf(gate)).node).toMatchObject({ is_exit: true });
  const listed = await server.send("GET", "/api/org/acme/nodes/?exits=true", { token: admin });
  expect(listed.json).toMatchObject([{ name: "gate", exit_groups: ["staff"] }]);
  expect((await patch(gate, { exit_groups: ["any"] })).status).toBe(200);
  expect((await filesOf(other)).node).toMatchObject({ exits: [exit] });
  expect((await patch(gate, { exit_groups: [] })).status).toBe(200);
  expect((await filesOf(laptop)).node).not.toHaveProperty("exits");
});

test("an exit passes on to the internet for its groups, and opens neither itself nor private networks", async () => {
  await patch(gate, { exit_groups: ["staff"], subnets: ["192.168.7.0/24"] });
  const { behind, inbound } = await filesOf(gate);
  expect(behind.toSorted()).toEqual(["0.0.0.0/0", "192.168.7.0/24"]);
  expect(inbound.filter(({ local_cidr: local }) => local === "any")).toEqual([]);
  const open = inbound.filter(({ group }) => group === "staff");
  const wide = open.filter(({ port, proto }) => port === "any" && proto === "any");
  expect(wide.length).toBeGreaterThan(10);
  for (const { local_cidr: local } of wide)
    expect(JSON.stringify(local)).toMatch(/^"(?!10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|127\.|0\.)\d/);
  expect(open.filter((rule) => !wide.includes(rule)).map(({ proto, port }) => [proto, port])).toEqual([
    ["icmp", undefined],
    ["udp", "53"],
    ["tcp", "53"],
  ]);
  // The organization's rule for all reaches the network behind it, not the internet.
  const pings = inbound.filter(({ proto, host }) => proto === "icmp" && host === "any");
  expect(pings.map(({ local_cidr: local }) => local)).toEqual([undefined, "192.168.7.0/24"]);
});

test("a node that is an exit no longer has the certificate of one blocked", async () => {
  await patch(gate, { exit_groups: ["staff"] });
  const [before] = decodeBundle(
    ((await gate.download()).json as { files: Record<string, string> }).files["host.crt"] ?? "",
  );
  expect(before?.unsafeNetworks).toEqual(["0.0.0.0/0"]);
  await patch(gate, { exit_groups: [] });
  expect((await filesOf(gate)).behind).toEqual([]);
  const blocked = await server.db.all(
    "SELECT id FROM certificates WHERE node_id = $1 AND kind = 'overlay' AND (state = 'blocked' OR block_after IS NOT NULL)",
    [gate.id],
  );
  expect(blocked.length).toBeGreaterThan(0);
});

test("engines that open all behind a node, phones and ephemeral nodes are no exits; a group in use stays", async () => {
  await other.checkin({ overlay_version: "1.9.7" });
  expect((await patch(other, { exit_groups: ["staff"] })).text).toContain("an exit needs 1.10 or later");
  await patch(gate, { exit_groups: ["guests"] });
  const { status, text } = await server.send("DELETE", "/api/org/acme/groups/guests/", { token: admin });
  expect([status, text]).toEqual([409, expect.stringContaining("gate")]);
});

test("a machine with such an engine does not take the place of an exit that was created before", async () => {
  const post = (path: string, body: object) =>
    server.send("POST", `/api/org/acme/${path}/`, { token: admin, body });
  expect((await post("nodes", { name: "exit", exit_groups: ["staff"] })).status).toBe(201);
  const registration_token = await registrationToken(server, org, { node_name: "exit" });
  const asked = { name: "exit", ...(await makeKeys()), registration_token };
  const refused = await sendRegistration(server, org.slug, { ...asked, overlay_version: "1.9.7" });
  expect([refused.status, refused.text]).toEqual([
    400,
    expect.stringContaining("an exit needs 1.10 or later"),
  ]);
  // The token was not used.
  expect((await sendRegistration(server, org.slug, { ...asked, overlay_version: "1.10.0" })).status).toBe(
    201,
  );
});
