// Registration of nodes. Also known faults of other systems: shared addresses, tokens used too often, private keys on the
// server.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { decodeCaBundle, verifyCertificate } from "../../../src/pki/nebula.ts";
import { Node } from "../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { codeOf, useAcme } from "../../support/acme.ts";
import { makeKeys } from "../../support/nodes.ts";

const acme = useAcme();
const { post, get, register, registrationToken } = acme;

test("a registration returns addresses, valid certificates and a configuration", async () => {
  const { node, api_token, config } = await register("alpha", { mode: "server", overlay_version: "1.6.1" });
  expect(node).toMatchObject({ name: "alpha", ip_address: "10.77.0.1", state: "active", mode: "server" });
  expect(api_token).toMatch(/^[A-Za-z0-9_-]{43}$/);
  const [host] = decodeBundle(config.files["host.crt"]);
  if (host === undefined) throw new Error("There is no host.crt");
  const cas = decodeCaBundle(config.files["ca.crt"]);
  verifyCertificate(host, cas, acme.server.clock.ms / 1000);
  // Backdated, because the engine allows no clock skew, but never before its CA.
  verifyCertificate(host, cas, acme.server.clock.ms / 1000 - 299);
  expect(host.networks).toEqual(["10.77.0.1/24"]);
  expect(config.files["node.crt"]?.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
  expect(config.files["config.yml"]).toContain("disconnect_invalid: true");
  expect((await register("beta")).node.ip_address).toBe("10.77.0.2");
});

test("a registration with the same keys returns the same node with a new token, and the old token stops working", async () => {
  const token = await registrationToken();
  const keys = await makeKeys("any");
  const first = v.parse(
    RegisterAnswer,
    (await post("nodes/register/", { name: "alpha", ...keys, registration_token: token })).json,
  );
  const again = v.parse(
    RegisterAnswer,
    (await post("nodes/register/", { name: "alpha", ...keys, registration_token: token })).json,
  );
  expect(again.node.id).toBe(first.node.id);
  expect(again.api_token).not.toBe(first.api_token);
  const path = `nodes/${first.node.id}/checkin/`;
  expect((await post(path, { version: "1.0.0", uptime: 5 }, first.api_token)).status).toBe(401);
  expect((await post(path, { version: "1.0.0", uptime: 5 }, again.api_token)).status).toBe(200);
  const tokens = await get("registration_tokens/", acme.admin);
  expect(tokens.json).toMatchObject([{ used: 1 }]);
});

test("a registration with a known host key, which every peer sees, is refused without the CSR key", async () => {
  const { keys } = await register("alpha");
  const other = await makeKeys("any");
  const stolen = { name: "beta", host_public_key: keys.host_public_key, node_csr: other.node_csr };
  expect(codeOf(await post("nodes/register/", stolen, acme.admin))).toBe("conflict");
  expect(codeOf(await post("nodes/register/", { ...stolen, node_csr: undefined }, acme.admin))).toBe(
    "conflict",
  );
});

test("a registration refuses taken or invalid names and addresses, and a full network", async () => {
  await register("alpha", { ip_address: "10.77.0.9" });
  const attempt = async (more: Record<string, unknown>) =>
    post("nodes/register/", { name: "beta", ...(await makeKeys("any")), ...more }, acme.admin);
  expect([(await attempt({ name: "alpha" })).status, codeOf(await attempt({ name: "alpha" }))]).toEqual([
    409,
    "name_taken",
  ]);
  expect(codeOf(await attempt({ ip_address: "10.77.0.9" }))).toBe("address_taken");
  for (const ip_address of ["10.78.0.1", "10.77.0.0", "10.77.0.255", "10.77.0.5/24", "nonsense"]) {
    const refused = await attempt({ ip_address });
    expect([refused.status, codeOf(refused)]).toEqual([400, "validation_failed"]);
  }
  for (const name of ["../../../tmp/x", "A", "a b", "-a", "a".repeat(64), "a\nb"]) {
    expect((await attempt({ name })).status).toBe(400);
  }
  const tinyOrg = await acme.server.organization("tiny", "10.9.0.0/30");
  await acme.server.join(tinyOrg, "admin@example.org", "admin");
  const tiny = async (name: string) =>
    acme.server.send("POST", "/api/org/tiny/nodes/register/", {
      token: acme.admin,
      body: { name, ...(await makeKeys("any")) },
    });
  expect([(await tiny("a")).status, (await tiny("b")).status]).toEqual([201, 201]);
  const full = await tiny("c");
  expect([full.status, codeOf(full)]).toEqual([409, "network_full"]);
});

test("a registration refuses a private key in any field and stores none", async () => {
  const { privatePem } = makeHostKey();
  const refused = await post(
    "nodes/register/",
    { name: "alpha", ...(await makeKeys("any")), host_public_key: privatePem },
    acme.admin,
  );
  expect([refused.status, codeOf(refused)]).toEqual([400, "validation_failed"]);
  expect(refused.text).not.toContain(privatePem.split("\n")[1] ?? "?");
});

test("a registration permits only what its token permits", async () => {
  const plain = await registrationToken();
  const asLighthouse = {
    name: "hub",
    ...(await makeKeys("any")),
    is_lighthouse: true,
    public_ip: "192.0.2.7",
  };
  const refused = await post("nodes/register/", { ...asLighthouse, registration_token: plain });
  expect([refused.status, codeOf(refused)]).toEqual([403, "token_scope"]);
  // A refusal consumes no use.
  const lighthouse = await registrationToken({ is_lighthouse: true, groups: ["servers"] });
  const made = v.parse(
    RegisterAnswer,
    (await post("nodes/register/", { ...asLighthouse, registration_token: lighthouse })).json,
  );
  expect(made.node).toMatchObject({ is_lighthouse: true, groups: ["servers"] });
  expect(
    (await post("nodes/register/", { name: "b", ...(await makeKeys("any")), registration_token: plain }))
      .status,
  ).toBe(201);
  for (const token of [plain, lighthouse, "A".repeat(43)]) {
    const spent = await post("nodes/register/", {
      name: "c",
      ...(await makeKeys("any")),
      registration_token: token,
    });
    expect([spent.status, codeOf(spent)]).toEqual([401, "token_not_valid"]);
  }
  const soon = await registrationToken({ expires_in: "1s" });
  acme.server.clock.ms += 1001;
  expect(
    (await post("nodes/register/", { name: "c", ...(await makeKeys("any")), registration_token: soon }))
      .status,
  ).toBe(401);
  expect((await post("nodes/register/", { name: "c", ...(await makeKeys("any")) })).status).toBe(401);
});

test("200 concurrent requests with a single-use token create exactly one node", async () => {
  const registration_token = await registrationToken();
  const machines = await Promise.all(Array.from({ length: 200 }, () => makeKeys("any")));
  const answers = await Promise.all(
    machines.map((keys, at) => post("nodes/register/", { name: `n${at}`, ...keys, registration_token })),
  );
  expect(answers.filter((each) => each.status === 201)).toHaveLength(1);
  expect((await get("nodes/", acme.admin)).headers.get("X-Total-Count")).toBe("1");
});

test("100 concurrent registrations get 100 addresses", async () => {
  const machines = await Promise.all(Array.from({ length: 100 }, () => makeKeys("any")));
  const answers = await Promise.all(
    machines.map((keys, at) => post("nodes/register/", { name: `n${at}`, ...keys }, acme.admin)),
  );
  const addresses = answers.map((each) => v.parse(RegisterAnswer, each.json).node.ip_address);
  expect(new Set(addresses).size).toBe(100);
});

test("a registration claims a pending node by name with the address that it was created with", async () => {
  const made = v.parse(
    Node,
    (await post("nodes/", { name: "later", ip_address: "10.77.0.50", groups: ["db"] }, acme.admin)).json,
  );
  expect(made.state).toBe("pending");
  const { node } = await register("later");
  expect(node).toMatchObject({ id: made.id, ip_address: "10.77.0.50", groups: ["db"], state: "active" });
});
