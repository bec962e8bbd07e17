import { NewRegistrationToken } from "../../../src/api/tokens/registration-tokens.ts";
import { NewServiceToken } from "../../../src/api/tokens/service-tokens.ts";
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { symlinkSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeCaBundle, fingerprint } from "../../../src/pki/nebula.ts";
import { openSecret } from "../../../src/pki/secrets.ts";
import { authorityContext } from "../../../src/server/certificates/make-authorities.ts";
import { identityProviders } from "../../../src/server/store/tables/providers.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

let server: TestServer;
let staff = "";
let owner = "";

beforeEach(async () => {
  server = await makeTestServer();
  staff = await server.person("staff@example.org", { isStaff: true });
  owner = await server.person("owner@example.org");
  await server.join(await server.organization("acme"), "owner@example.org", "owner");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const create = (body: unknown, token = staff) => server.send("POST", "/api/org/", { token, body });

describe("creating an organization", () => {
  test("creates two sealed CAs, an order key and two rules; the creator is the owner", async () => {
    const answer = await create({
      slug: "beta",
      network: "10.9.0.0/16",
      network6: "fd77::/64",
      name: "Beta",
    });
    expect([answer.status, answer.json]).toEqual([
      201,
      expect.objectContaining({ slug: "beta", network6: "fd77::/64", role: "owner", config_version: 1 }),
    ]);
    const cas = await server.db.all("SELECT * FROM authorities WHERE org_id = 2 ORDER BY id");
    expect(cas.map((row) => [row["kind"], row["state"]])).toEqual([
      ["overlay", "active"],
      ["x509", "active"],
    ]);
    const [overlay] = cas;
    const [certificate] = decodeCaBundle(String(overlay?.["certificate"]));
    expect(certificate === undefined ? "" : fingerprint(certificate)).toBe(String(overlay?.["fingerprint"]));
    const { secretKey } = server.app.services;
    for (const row of cas) {
      const sealed = String(row["private_key_sealed"]);
      expect(sealed).not.toContain("PRIVATE KEY");
      const kind = row["kind"] === "x509" ? "x509" : "overlay";
      const context = authorityContext(kind, String(row["fingerprint"]));
      expect(openSecret(secretKey, sealed, context)).toContain("PRIVATE KEY");
      expect(() => openSecret(secretKey, sealed, authorityContext(kind, "00"))).toThrow();
    }
    const row = await server.db.get("SELECT order_public, order_key_sealed FROM organizations WHERE id = 2");
    expect(JSON.parse(String(row?.["order_public"]))).toEqual({
      kty: "OKP",
      crv: "Ed25519",
      x: expect.any(String),
      kid: expect.any(String),
    });
    expect(String(row?.["order_key_sealed"])).toStartWith("s1.");
    expect((await server.db.all("SELECT id FROM firewall_rules WHERE org_id = 2")).length).toBe(2);
  });

  test.each([
    [{ slug: "Beta", network: "10.9.0.0/16" }, "slug"],
    [{ slug: "../x", network: "10.9.0.0/16" }, "slug"],
    [{ slug: "b", network: "10.9.0.1/16" }, "network"],
    [{ slug: "b", network: "fd77::/64" }, "network"],
    [{ slug: "b", network: "10.9.0.0/31" }, "network"],
    [{ slug: "b", network: "10.9.0.0/16", network6: "10.8.0.0/16" }, "network6"],
    [{ slug: "b" }, "network"],
    [{ slug: "b", network: 7 }, "network"],
  ])("%j is refused by field %s", async (body, field) => {
    const answer = await create(body);
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ errors: { [field]: [expect.any(String)] } });
  });

  test("gets 409 for a taken slug, and is allowed for staff only", async () => {
    expect((await create({ slug: "acme", network: "10.9.0.0/16" })).status).toBe(409);
    expect((await create({ slug: "beta", network: "10.9.0.0/16" }, owner)).status).toBe(403);
  });
});

test("staff list all organizations, other users their own, with search and pages", async () => {
  for (const slug of ["b1", "b2", "c1"]) await create({ slug, network: "10.9.0.0/16" });
  const slugs = async (token: string, words = "") => {
    const answer = await server.send("GET", `/api/org/${words}`, { token });
    const list = v.parse(v.array(v.object({ slug: v.string() })), answer.json);
    return { slugs: list.map((each) => each.slug), headers: answer.headers };
  };
  expect((await slugs(owner)).slugs).toEqual(["acme"]);
  expect((await slugs(staff)).slugs).toEqual(["acme", "b1", "b2", "c1"]);
  expect((await slugs(staff, "?search=B")).slugs).toEqual(["b1", "b2"]);
  expect((await slugs(staff, "?search=%25")).slugs).toEqual([]);
  const second = await slugs(staff, "?page=2&page_size=1");
  expect(second.slugs).toEqual(["b1"]);
  expect(second.headers.get("x-total-count")).toBe("4");
  expect(second.headers.get("link")).toBe(
    [
      '<https://control.example/api/org/?page=3&page_size=1>; rel="next"',
      '<https://control.example/api/org/?page=1&page_size=1>; rel="prev"',
      '<https://control.example/api/org/?page=1&page_size=1>; rel="first"',
      '<https://control.example/api/org/?page=4&page_size=1>; rel="last"',
    ].join(", "),
  );
  for (const words of ["?page=0", "?page_size=1001", "?page=x", "?nonsense=1"]) {
    expect((await server.send("GET", `/api/org/${words}`, { token: staff })).status).toBe(400);
  }
});

test("changes for nodes raise config_version and wake polls; a new name does not", async () => {
  const patch = (body: unknown) => server.send("PATCH", "/api/org/acme/", { token: owner, body });
  const poll = server.app.services.changes.open(1, 1);
  expect((await patch({ name: "Acme & Sons" })).json).toMatchObject({
    name: "Acme & Sons",
    config_version: 1,
  });
  expect(await poll.wait(0)).toBe(false);
  expect((await patch({ alive_interval: 5 })).json).toMatchObject({ alive_interval: 5, config_version: 2 });
  expect(await poll.wait(0)).toBe(true);
  poll.close();
  expect((await patch({ config_overrides: { pki: { ca: "/tmp/x" } } })).status).toBe(400);
  expect((await patch({ alive_interval: 31 })).status).toBe(400);
  expect((await patch({})).json).toMatchObject({ config_version: 2 });
});

test("names cannot end in a public suffix, a single label, or a domain of hosts that nodes need", async () => {
  const set = async (name_suffix: unknown) => {
    const answer = await server.send("PATCH", "/api/org/acme/", { token: owner, body: { name_suffix } });
    return [answer.status, JSON.stringify(answer.json)].join(" ");
  };
  expect(await set("corp.example")).toStartWith("200");
  for (const wrong of ["corp", "Corp.example", "co.uk", "github.io", "x.internal", "10.77.0.1", "a..b", ""])
    expect(`${wrong}: ${await set(wrong)}`).toContain('400 {"error":');
  // The public address of this control plane, and of a lighthouse.
  expect(await set("control.example")).toContain("control.example, which is below it");
  await server.db.write((tx) =>
    tx.run(
      `INSERT INTO nodes (org_id, name, ip, state, mode, public_ip, created_at)
       VALUES (1, 'hub', '10.77.0.9', 'active', 'server', 'hub.nodes.example', 0)`,
    ),
  );
  expect(await set("nodes.example")).toContain("hub.nodes.example, which is below it");
  // A provider of identities that users need; one of another organization is not told of.
  const provider = { clientId: "x", secretSealed: "", scopes: "openid", groupsClaim: "groups", createdAt: 0 };
  const rules = { domains: [], requiredGroups: [], roles: [] };
  const other = await server.organization("other");
  await server.db.write(async (tx) => {
    const issuer = "https://login.shared.example/realm";
    await identityProviders.insert(tx, { ...provider, ...rules, name: "all", issuer });
    const own = { name: "theirs", issuer: "https://login.theirs.example/", orgId: other.id };
    await identityProviders.insert(tx, { ...provider, ...rules, ...own });
  });
  expect(await set("shared.example")).toContain("login.shared.example, which is below it");
  expect(await set("theirs.example")).toStartWith("200");
  expect(await set("corp.example")).toStartWith("200");
  const shown = await server.send("GET", "/api/org/acme/", { token: owner });
  expect(shown.json).toMatchObject({ name_suffix: "corp.example" });
  expect(await set(null)).toStartWith("200");
});

test("settings that make the engine refuse its configuration are refused", async () => {
  const overrides = async (config_overrides: unknown) =>
    (await server.send("PATCH", "/api/org/acme/", { token: owner, body: { config_overrides } })).status;
  const stats = { type: "prometheus", interval: "10s", listen: "127.0.0.1:9", path: "/metrics" };
  const allowed = { "10.0.0.0/08": true, "10.1.0.0/16": true };
  expect(await overrides({ stats, lighthouse: { remote_allow_list: allowed } })).toBe(200);
  expect(await overrides({ lighthouse: { remote_allow_list: { "0.0.0.0/0": false, ...allowed } } })).toBe(
    200,
  );
  const mixed = { "10.0.0.0/8": true, "10.1.0.0/16": false };
  for (const wrong of [
    { stats: { type: "prometheus", interval: "10s" } },
    { stats: { type: "graphite", interval: "10s" } },
    { stats: { ...stats, interval: "0s" } },
    { stats: { ...stats, listen: "127.0.0.1:70000" } },
    { lighthouse: { advertise_addrs: [":99999"] } },
    { lighthouse: { remote_allow_list: mixed } },
    { lighthouse: { local_allow_list: { "::/0": true, ...mixed } } },
  ]) {
    expect(`${JSON.stringify(wrong)} ${await overrides(wrong)}`).toEndWith(" 400");
  }
  expect(await overrides({})).toBe(200);
});

test("a deleted organization disappears for its members, its tokens stop working, its slug is free", async () => {
  const made = await server.send("POST", "/api/org/acme/service_tokens/", {
    token: owner,
    body: { name: "ci", role: "member" },
  });
  const { token } = v.parse(NewServiceToken, made.json);
  expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(200);
  const admin = await server.person("admin@example.org");
  await server.send("POST", "/api/org/acme/members/", {
    token: owner,
    body: { email: "admin@example.org", role: "admin" },
  });
  expect((await server.send("DELETE", "/api/org/acme/", { token: admin })).status).toBe(403);
  expect((await server.send("DELETE", "/api/org/acme/", { token: owner })).status).toBe(204);
  expect((await server.send("GET", "/api/org/acme/", { token: owner })).status).toBe(404);
  expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(401);
  expect((await create({ slug: "acme", network: "10.9.0.0/16" })).status).toBe(201);
});

describe("registration tokens", () => {
  const path = "/api/org/acme/registration_tokens/";
  const make = (body: unknown) => server.send("POST", path, { token: owner, body });

  test("are shown once with a command line that passes them by standard input, and stored as a hash", async () => {
    const answer = await make({
      name: "rack 4",
      uses: 3,
      expires_in: "2h",
      groups: ["web"],
      is_lighthouse: true,
    });
    const made = v.parse(NewRegistrationToken, answer.json);
    expect(made).toMatchObject({
      uses: 3,
      used: 0,
      groups: ["web"],
      is_lighthouse: true,
      expires_at: "2026-11-21T02:00:00Z",
    });
    expect(made.command).toBe(
      `printf '%s\\n' '${made.token}' | agent register --api-base https://control.example --org-slug acme --is-lighthouse --is-relay --registration-token-file -`,
    );
    const list = await server.send("GET", path, { token: owner });
    expect(list.text).not.toContain(made.token);
    expect(list.json).toMatchObject([{ id: made.id, name: "rack 4" }]);
    const rows = await server.db.all("SELECT * FROM registration_tokens");
    expect(JSON.stringify(rows)).not.toContain(made.token);
    expect((await server.send("GET", "/api/org/acme/groups/web/", { token: owner })).status).toBe(200);
  });

  test("have defaults and limits", async () => {
    expect((await make({})).json).toMatchObject({ uses: 1, groups: [], is_lighthouse: false, node_id: null });
    for (const body of [
      { uses: 0 },
      { expires_in: "soon" },
      { groups: ["any"] },
      { node_id: 77 },
      { expires_in: "400d" },
    ]) {
      expect((await make(body)).status).toBe(400);
    }
  });

  test("disappear from the list when revoked", async () => {
    await make({});
    expect((await server.send("DELETE", `${path}1/`, { token: owner })).status).toBe(204);
    expect((await server.send("DELETE", `${path}1/`, { token: owner })).status).toBe(404);
    expect((await server.send("GET", path, { token: owner })).json).toEqual([]);
  });
});

test("a service token has its role in its organization, until it expires or is revoked", async () => {
  await create({ slug: "beta", network: "10.9.0.0/16" });
  const path = "/api/org/acme/service_tokens/";
  const made = await server.send("POST", path, {
    token: owner,
    body: { name: "ci", role: "admin", expires_in: "1h" },
  });
  const { token, id } = v.parse(NewServiceToken, made.json);
  const status = async (method: string, at: string, body?: unknown) =>
    (await server.send(method, at, { token, ...(body === undefined ? {} : { body }) })).status;
  expect(await status("GET", "/api/org/acme/")).toBe(200);
  expect(await status("POST", "/api/org/acme/groups/", { name: "by-a-program" })).toBe(201);
  expect(await status("DELETE", "/api/org/acme/")).toBe(403);
  expect(await status("GET", "/api/org/beta/")).toBe(404);
  expect(await status("GET", "/api/org/acme/members/")).toBe(403);
  expect(await status("POST", path, { name: "x", role: "admin" })).toBe(403);
  server.clock.ms += 3_600_001;
  expect(await status("GET", "/api/org/acme/")).toBe(401);
  server.clock.ms -= 3_600_001;
  expect(await status("GET", "/api/org/acme/")).toBe(200);
  await server.send("DELETE", `${path}${id}/`, { token: await freshOwner() });
  expect(await status("GET", "/api/org/acme/")).toBe(401);
});

async function freshOwner(): Promise<string> {
  return (await server.app.services.sessions.start(2)).access;
}

test("a group in use by a node or a rule cannot be deleted; its name is not a pattern", async () => {
  const path = "/api/org/acme/groups/";
  for (const name of ["a_b", "axb"]) {
    expect((await server.send("POST", path, { token: owner, body: { name, description: "d" } })).status).toBe(
      201,
    );
  }
  expect((await server.send("POST", path, { token: owner, body: { name: "axb" } })).status).toBe(409);
  await server.db.write((tx) =>
    tx.run(
      `INSERT INTO nodes (org_id, name, ip, state, groups, created_at) VALUES (1, 'n', '10.77.0.9', 'active', '["axb"]', 0)`,
    ),
  );
  expect((await server.send("DELETE", `${path}axb/`, { token: owner })).status).toBe(409);
  expect((await server.send("DELETE", `${path}a_b/`, { token: owner })).status).toBe(204);
  const patched = await server.send("PATCH", `${path}axb/`, {
    token: owner,
    body: { description: "web servers" },
  });
  expect(patched.json).toMatchObject({ name: "axb", description: "web servers" });
});

test("every change is in the chained audit log with actor and address", async () => {
  await server.send("POST", "/api/org/acme/groups/", {
    token: owner,
    body: { name: "web" },
    address: "203.0.113.5",
  });
  const events = await server.db.all("SELECT * FROM events WHERE org_id = 1 ORDER BY id");
  expect(events.map((each) => each["type"])).toEqual([
    "organization.created",
    "member.created",
    "group.created",
  ]);
  expect(JSON.parse(String(events.at(-1)?.["actor"]))).toEqual({ kind: "person", id: 2, ip: "203.0.113.5" });
});

test("only the files of a mirrored release are served", async () => {
  using directory = temporaryDirectory();
  await Bun.write(join(directory.path, "pub/manifest.json"), "{}");
  await Bun.write(join(directory.path, "secret"), "no");
  symlinkSync(directory.path, join(directory.path, "pub/up"));
  await using mirror = await makeTestServer({ releasesDirectory: join(directory.path, "pub") });
  const found = await mirror.send("GET", "/releases/manifest.json");
  expect([found.status, found.text]).toEqual([200, "{}"]);
  for (const path of [
    "nothing",
    "..%2fsecret",
    "%2e%2e%2fsecret",
    "up",
    "up%2fsecret",
    ".hidden",
    "../secret",
  ]) {
    expect((await mirror.send("GET", `/releases/${path}`)).status).toBe(404);
  }
  expect((await server.send("GET", "/releases/manifest.json")).status).toBe(404);
});

test("networks with a special meaning are refused as overlay networks", async () => {
  const special4 = [
    "0.0.0.0/0",
    "128.0.0.0/1",
    "127.0.0.0/8",
    "127.5.0.0/16",
    "224.0.0.0/8",
    "169.254.0.0/16",
  ];
  const special6 = ["::/0", "ff00::/8", "fe80::/10", "fe80::/64", "::/64"];
  const refused = async (field: string, value: string) => {
    const body = { slug: "beta", network: "10.9.0.0/16", [field]: value };
    expect([value, await create(body)]).toMatchObject([
      value,
      { status: 400, json: { errors: { [field]: [expect.stringContaining("special meaning")] } } },
    ]);
  };
  for (const network of [...special4, "240.0.0.0/8"]) await refused("network", network);
  for (const network of special6) await refused("network6", network);
  const allowed = { slug: "beta", network: "100.64.0.0/10", network6: "2001:db8::/64" };
  expect((await create(allowed)).status).toBe(201);
});

test("keys that every object inherits are refused as unknown, at each level", async () => {
  for (const key of ["__proto__", "constructor", "prototype", "toString"]) {
    for (const [path, text] of [
      [`config_overrides.${key}`, `{"config_overrides":{"${key}":{"a":1}}}`],
      [`config_overrides.tun.${key}`, `{"config_overrides":{"tun":{"${key}":1}}}`],
      [
        `config_overrides.lighthouse.remote_allow_list.${key}`,
        `{"config_overrides":{"lighthouse":{"remote_allow_list":{"${key}":true}}}}`,
      ],
      [key, `{"${key}":{"name":"x"}}`],
    ] as const) {
      const body: unknown = JSON.parse(text);
      const answer = await server.send("PATCH", "/api/org/acme/", { token: owner, body });
      expect([path, answer.status]).toEqual([path, 400]);
      expect(answer.text).toContain(`"${path}":["This field is unknown."]`);
    }
  }
});
