// Nodes of an organization: registration, changes, revocation. Also known faults of other systems: shared addresses,
// tokens used too often, private keys on the server, revocations that never arrive.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey, makeNodeKey } from "../../../src/pki/keys.ts";
import { decodeBundle, decodeCaBundle, fingerprint, verifyCertificate } from "../../../src/pki/nebula.ts";
import { verifyOrder } from "../../../src/pki/tokens.ts";
import { makeCsr } from "../../../src/pki/x509.ts";
import { CheckinAnswer, DownloadAnswer, ErrorBody, Node, RegisterAnswer } from "../../../src/protocol.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let admin: string;

beforeEach(async () => {
  server = await makeTestServer();
  const org = await server.organization("acme", "10.77.0.0/24");
  admin = await server.person("admin@example.org");
  await server.join(org, "admin@example.org", "admin");
});

afterEach(() => server[Symbol.asyncDispose]());

type Machine = { host_public_key: string; node_csr: string };

async function machine(): Promise<Machine> {
  const node_csr = await makeCsr({ privateKeyPem: makeNodeKey().privatePem, name: "any" });
  return { host_public_key: makeHostKey().publicPem, node_csr };
}

const post = (path: string, body: unknown, token?: string, headers: Record<string, string> = {}) =>
  server.send("POST", `/api/org/acme/${path}`, { body, headers, ...(token === undefined ? {} : { token }) });
const get = (path: string, token: string, headers: Record<string, string> = {}) =>
  server.send("GET", `/api/org/acme/${path}`, { token, headers });

async function register(name: string, more: Record<string, unknown> = {}) {
  const keys = await machine();
  const answer = await post("nodes/register/", { name, ...keys, ...more }, admin);
  expect(answer.status).toBe(201);
  return { ...v.parse(RegisterAnswer, answer.json), keys };
}

async function registrationToken(more: Record<string, unknown> = {}): Promise<string> {
  const answer = await post("registration_tokens/", more, admin);
  return v.parse(v.object({ token: v.string() }), answer.json).token;
}

const codeOf = (answer: Answer) => v.parse(ErrorBody, answer.json).code;
const checkinBody = (config_version?: number) => ({
  version: "1.0.0",
  uptime: 5,
  ...(config_version === undefined ? {} : { config_version }),
});

describe("registration", () => {
  test("returns addresses, valid certificates and a configuration", async () => {
    const { node, api_token, config } = await register("alpha", { mode: "server", overlay_version: "1.6.1" });
    expect(node).toMatchObject({ name: "alpha", ip_address: "10.77.0.1", state: "active", mode: "server" });
    expect(api_token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    const [host] = decodeBundle(config.files["host.crt"]);
    if (host === undefined) throw new Error("There is no host.crt");
    const cas = decodeCaBundle(config.files["ca.crt"]);
    verifyCertificate(host, cas, server.clock.ms / 1000);
    // Backdated, because the engine allows no clock skew, but never before its CA.
    verifyCertificate(host, cas, server.clock.ms / 1000 - 299);
    expect(host.networks).toEqual(["10.77.0.1/24"]);
    expect(config.files["node.crt"]?.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
    expect(config.files["config.yml"]).toContain("disconnect_invalid: true");
    expect((await register("beta")).node.ip_address).toBe("10.77.0.2");
  });

  test("with the same keys returns the same node with a new token, and the old token stops working", async () => {
    const token = await registrationToken();
    const keys = await machine();
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
    expect((await post(path, checkinBody(), first.api_token)).status).toBe(401);
    expect((await post(path, checkinBody(), again.api_token)).status).toBe(200);
    const tokens = await get("registration_tokens/", admin);
    expect(tokens.json).toMatchObject([{ used: 1 }]);
  });

  test("with a known host key, which every peer sees, is refused without the CSR key", async () => {
    const { keys } = await register("alpha");
    const other = await machine();
    const stolen = { name: "beta", host_public_key: keys.host_public_key, node_csr: other.node_csr };
    expect(codeOf(await post("nodes/register/", stolen, admin))).toBe("conflict");
    expect(codeOf(await post("nodes/register/", { ...stolen, node_csr: undefined }, admin))).toBe("conflict");
  });

  test("refuses taken or invalid names and addresses, and a full network", async () => {
    await register("alpha", { ip_address: "10.77.0.9" });
    const attempt = async (more: Record<string, unknown>) =>
      post("nodes/register/", { name: "beta", ...(await machine()), ...more }, admin);
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
    const tinyOrg = await server.organization("tiny", "10.9.0.0/30");
    await server.join(tinyOrg, "admin@example.org", "admin");
    const tiny = async (name: string) =>
      server.send("POST", "/api/org/tiny/nodes/register/", {
        token: admin,
        body: { name, ...(await machine()) },
      });
    expect([(await tiny("a")).status, (await tiny("b")).status]).toEqual([201, 201]);
    const full = await tiny("c");
    expect([full.status, codeOf(full)]).toEqual([409, "network_full"]);
  });

  test("refuses a private key in any field and stores none", async () => {
    const { privatePem } = makeHostKey();
    const refused = await post(
      "nodes/register/",
      { name: "alpha", ...(await machine()), host_public_key: privatePem },
      admin,
    );
    expect([refused.status, codeOf(refused)]).toEqual([400, "validation_failed"]);
    expect(refused.text).not.toContain(privatePem.split("\n")[1] ?? "?");
  });

  test("permits only what its token permits", async () => {
    const plain = await registrationToken();
    const asLighthouse = { name: "hub", ...(await machine()), is_lighthouse: true, public_ip: "192.0.2.7" };
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
      (await post("nodes/register/", { name: "b", ...(await machine()), registration_token: plain })).status,
    ).toBe(201);
    for (const token of [plain, lighthouse, "A".repeat(43)]) {
      const spent = await post("nodes/register/", {
        name: "c",
        ...(await machine()),
        registration_token: token,
      });
      expect([spent.status, codeOf(spent)]).toEqual([401, "token_not_valid"]);
    }
    const soon = await registrationToken({ expires_in: "1s" });
    server.clock.ms += 1001;
    expect(
      (await post("nodes/register/", { name: "c", ...(await machine()), registration_token: soon })).status,
    ).toBe(401);
    expect((await post("nodes/register/", { name: "c", ...(await machine()) })).status).toBe(401);
  });

  test("200 concurrent requests with a single-use token create exactly one node", async () => {
    const registration_token = await registrationToken();
    const machines = await Promise.all(Array.from({ length: 200 }, machine));
    const answers = await Promise.all(
      machines.map((keys, at) => post("nodes/register/", { name: `n${at}`, ...keys, registration_token })),
    );
    expect(answers.filter((each) => each.status === 201)).toHaveLength(1);
    expect((await get("nodes/", admin)).headers.get("X-Total-Count")).toBe("1");
  });

  test("100 concurrent registrations get 100 addresses", async () => {
    const machines = await Promise.all(Array.from({ length: 100 }, machine));
    const answers = await Promise.all(
      machines.map((keys, at) => post("nodes/register/", { name: `n${at}`, ...keys }, admin)),
    );
    const addresses = answers.map((each) => v.parse(RegisterAnswer, each.json).node.ip_address);
    expect(new Set(addresses).size).toBe(100);
  });

  test("claims a pending node by name with the address that it was created with", async () => {
    const made = v.parse(
      Node,
      (await post("nodes/", { name: "later", ip_address: "10.77.0.50", groups: ["db"] }, admin)).json,
    );
    expect(made.state).toBe("pending");
    const { node } = await register("later");
    expect(node).toMatchObject({ id: made.id, ip_address: "10.77.0.50", groups: ["db"], state: "active" });
  });
});

describe("a node's token", () => {
  test("opens its own two endpoints and gets 403 at every other, for every method", async () => {
    const alpha = await register("alpha");
    const beta = await register("beta");
    const token = alpha.api_token;
    expect((await get(`nodes/${alpha.node.id}/download_config/`, token)).status).toBe(200);
    const closed = [
      ["GET", `nodes/${alpha.node.id}/`],
      ["PATCH", `nodes/${alpha.node.id}/`],
      ["DELETE", `nodes/${alpha.node.id}/`],
      ["GET", `nodes/${alpha.node.id}/checkin/`],
      ["POST", `nodes/${alpha.node.id}/download_config/`],
      ["POST", `nodes/${alpha.node.id}/renew_cert/`],
      ["POST", `nodes/${beta.node.id}/checkin/`],
      ["GET", `nodes/${beta.node.id}/download_config/`],
      ["GET", "nodes/"],
    ];
    for (const [method = "", path = ""] of closed) {
      const answer = await server.send(method, `/api/org/acme/${path}`, {
        token,
        ...(method === "GET" ? {} : { body: {} }),
      });
      expect([method, path, answer.status, codeOf(answer)]).toEqual([method, path, 403, "node_token_scope"]);
    }
  });

  test("is stored as a hash and never shown again", async () => {
    const { api_token, node } = await register("alpha");
    const rows = await server.db.all("SELECT * FROM nodes");
    expect(JSON.stringify(rows)).not.toContain(api_token);
    expect((await get(`nodes/${node.id}/`, admin)).text).not.toContain(api_token);
    expect(server.log.join("")).not.toContain(api_token);
  });
});

describe("download_config", () => {
  test("is 304 for an unaffected node, with the version that it then reports", async () => {
    const { node, api_token } = await register("alpha");
    const path = `nodes/${node.id}/download_config/`;
    const first = await get(path, api_token);
    const etag = first.headers.get("ETag") ?? "";
    expect((await get(path, api_token, { "If-None-Match": etag })).status).toBe(304);
    // A lighthouse affects every node; groups of a node affect that node alone.
    const { node: beta } = await register("beta");
    await server.send("PATCH", `/api/org/acme/nodes/${beta.id}/`, { token: admin, body: { groups: ["x"] } });
    const unconcerned = await get(path, api_token, { "If-None-Match": etag });
    expect(unconcerned.status).toBe(304);
    expect(Number(unconcerned.headers.get("X-Config-Version"))).toBeGreaterThan(
      Number(first.headers.get("X-Config-Version")),
    );
    await register("hub", { is_lighthouse: true, public_ip: "192.0.2.7" });
    const concerned = await get(path, api_token, { "If-None-Match": etag });
    expect(concerned.status).toBe(200);
    expect(v.parse(DownloadAnswer, concerned.json).files["config.yml"]).toContain('"192.0.2.7:4242"');
  });

  test("config/ is 304 too, and both see a change at once in every format", async () => {
    const { node, api_token } = await register("alpha");
    const files = `nodes/${node.id}/download_config/`;
    const config = `nodes/${node.id}/config/`;
    const first = await get(config, admin);
    const etag = first.headers.get("ETag") ?? "";
    expect(etag).toBe((await get(files, api_token)).headers.get("ETag") ?? "none");
    expect((await get(config, admin, { "If-None-Match": etag })).status).toBe(304);
    await get(`${files}?format=tar`, api_token);
    const body = { config_overrides: { listen: { port: 4343 } } };
    await server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: admin, body });
    const changed = await get(config, admin, { "If-None-Match": etag });
    expect(changed.status).toBe(200);
    expect(changed.text).toContain("port: 4343");
    expect((await get(files, api_token)).text).toContain("port: 4343");
    const tar = await server.app.fetch(
      new Request(`https://control.example/api/org/acme/${files}?format=tar`, {
        headers: { Authorization: `Bearer ${api_token}` },
      }),
      { addressOf: () => "192.0.2.1" },
    );
    const packed = await new Bun.Archive(await tar.bytes()).files();
    expect(await packed.get("config.yml")?.text()).toContain("port: 4343");
  });

  test("is available as a tar archive of the same files", async () => {
    const { node, api_token } = await register("alpha");
    const answer = await server.app.fetch(
      new Request(`https://control.example/api/org/acme/nodes/${node.id}/download_config/?format=tar`, {
        headers: { Authorization: `Bearer ${api_token}` },
      }),
      { addressOf: () => "192.0.2.1" },
    );
    const files = await new Bun.Archive(await answer.bytes()).files();
    expect([...files.keys()].sort()).toEqual([
      "ca.crt",
      "config.yml",
      "host.crt",
      "node-config.json",
      "node.crt",
    ]);
  });
});

describe("revocation", () => {
  test("wakes the peers' polls at once, and adds the certificate to their blocklist", async () => {
    const alpha = await register("alpha");
    const beta = await register("beta");
    const [certificate] = decodeBundle(beta.config.files["host.crt"]);
    if (certificate === undefined) throw new Error("There is no host.crt");
    const poll = post(
      `nodes/${alpha.node.id}/checkin/`,
      checkinBody(alpha.config.config_version),
      alpha.api_token,
      { Prefer: "wait=50" },
    );
    await Bun.sleep(20);
    expect(
      (await server.send("DELETE", `/api/org/acme/nodes/${beta.node.id}/`, { token: admin })).status,
    ).toBe(204);
    expect(v.parse(CheckinAnswer, (await poll).json).config_changed).toBe(true);
    const files = v.parse(
      DownloadAnswer,
      (await get(`nodes/${alpha.node.id}/download_config/`, alpha.api_token)).json,
    ).files;
    expect(files["config.yml"]).toContain(fingerprint(certificate));
    expect((await get(`nodes/${beta.node.id}/`, admin)).json).toMatchObject({ state: "revoked" });
    expect((await get("revocations/", admin)).json).toMatchObject([{ node_id: beta.node.id, total: 1 }]);
  });

  test("sends the node a signed order, and only a restore brings it back", async () => {
    const { node, api_token, config, keys } = await register("alpha");
    await register("silent");
    await server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: admin });
    const told = await post(`nodes/${node.id}/checkin/`, checkinBody(), api_token);
    const { code, order = "" } = v.parse(ErrorBody, told.json);
    expect([told.status, code]).toEqual([403, "node_revoked"]);
    expect(await verifyOrder(order, config.order_key)).toMatchObject({
      org: "acme",
      node_id: node.id,
      action: "revoke",
    });
    expect((await get(`nodes/${node.id}/download_config/`, api_token)).status).toBe(403);
    // The same keys cannot register again under any name, and no certificate is renewed.
    for (const name of ["alpha", "gamma"]) {
      expect(codeOf(await post("nodes/register/", { name, ...keys }, admin))).toBe("node_revoked");
    }
    expect(codeOf(await post(`nodes/${node.id}/renew_cert/`, {}, admin))).toBe("node_revoked");
    expect((await server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: admin })).status).toBe(
      404,
    );
    // Its name is free, its address is held: its certificate has not expired.
    expect((await register("alpha")).node.ip_address).not.toBe(node.ip_address);
  });

  test("can be undone by a restore: new certificate, signed order, the old certificate stays blocked", async () => {
    const { node, api_token, config } = await register("alpha");
    const peer = await register("beta");
    const [old] = decodeBundle(config.files["host.crt"]);
    if (old === undefined) throw new Error("There is no host.crt");
    await server.send("DELETE", `/api/org/acme/nodes/${node.id}/`, { token: admin });
    server.clock.ms += 1000;
    expect((await post(`nodes/${node.id}/restore/`, {}, admin)).json).toMatchObject({
      state: "active",
      ip_address: node.ip_address,
    });
    const answer = v.parse(
      CheckinAnswer,
      (await post(`nodes/${node.id}/checkin/`, checkinBody(), api_token)).json,
    );
    expect(await verifyOrder(answer.order ?? "", config.order_key)).toMatchObject({ action: "restore" });
    const files = v.parse(
      DownloadAnswer,
      (await get(`nodes/${peer.node.id}/download_config/`, peer.api_token)).json,
    ).files;
    expect(files["config.yml"]).toContain(fingerprint(old));
    const own = v.parse(
      DownloadAnswer,
      (await get(`nodes/${node.id}/download_config/`, api_token)).json,
    ).files;
    const [fresh] = decodeBundle(own["host.crt"]);
    expect(fresh === undefined ? "" : fingerprint(fresh)).not.toBe(fingerprint(old));
  });
});

test("a check-in is stored within a second, and omitted fields keep their values", async () => {
  const { node, api_token } = await register("alpha");
  const answer = await post(
    `nodes/${node.id}/checkin/`,
    { ...checkinBody(1), overlay_state: "running", something_new: [1] },
    api_token,
  );
  expect(v.parse(CheckinAnswer, answer.json).config_version).toBe(node.config_version);
  await Bun.sleep(800);
  const shown = v.parse(Node, (await get(`nodes/${node.id}/`, admin)).json);
  expect(shown).toMatchObject({ online: true, agent_version: "1.0.0", applied_config_version: 1 });
  server.clock.ms += 151_000;
  expect((await get(`nodes/${node.id}/`, admin)).json).toMatchObject({ online: false });
});

test("the list is paged, counted and searched", async () => {
  for (const name of ["alpha", "beta", "gamma"]) await post("nodes/", { name }, admin);
  const page = await get("nodes/?page=2&page_size=2", admin);
  expect(page.json).toMatchObject([{ name: "gamma" }]);
  expect(page.headers.get("X-Total-Count")).toBe("3");
  expect(page.headers.get("Link")).toContain('rel="prev"');
  expect((await get("nodes/?search=ET", admin)).json).toMatchObject([{ name: "beta" }]);
});

test("an overlay address as public address is refused with its field", async () => {
  const lighthouse = { is_lighthouse: true, public_ip: "10.77.0.30" };
  const { node } = await register("hub", { is_lighthouse: true, public_ip: "192.0.2.1" });
  const answers = [
    await post("nodes/register/", { name: "evil", ...(await machine()), ...lighthouse }, admin),
    await post("nodes/", { name: "evil", ...lighthouse }, admin),
    await server.send("PATCH", `/api/org/acme/nodes/${node.id}/`, { token: admin, body: lighthouse }),
  ];
  for (const answer of answers) {
    expect([answer.status, codeOf(answer)]).toEqual([400, "validation_failed"]);
    expect(answer.text).toContain('"public_ip":["10.77.0.30 is in the overlay');
  }
});
