// Faults from published advisories of control planes and of the engine with certificates, enrolment and tokens, unless
// another test covers them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { NewRegistrationToken } from "../../src/api/tokens/registration-tokens.ts";
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { formatPem, parsePem } from "../../src/pki/pem.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import type { Organization } from "../../src/api/organizations.ts";
import { readSecretKeys } from "../../src/server/store/secret-keys.ts";
import { runSync } from "../support/debian.ts";
import { key as vectorKey } from "../pki/vectors.ts";
import { confirm, makeKeys, nodeFrom, registerNode, sendRegistration } from "../support/nodes.ts";
import { makeTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let acme: Organization;
let rival: Organization;
let owner = "";
let stranger = "";
let directory = "";

beforeEach(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme");
  rival = await server.organization("rival", "10.78.0.0/16");
  owner = await server.person("owner@example.org");
  stranger = await server.person("stranger@example.org");
  await server.join(acme, "owner@example.org", "owner");
  await server.join(rival, "stranger@example.org", "owner");
  directory = mkdtempSync(join(tmpdir(), "agent-enrolment-"));
});
afterEach(async () => {
  rmSync(directory, { recursive: true, force: true });
  await server[Symbol.asyncDispose]();
});

async function makeToken(slug: string, token: string, body: object = {}): Promise<string> {
  const made = await server.send("POST", `/api/org/${slug}/registration_tokens/`, { token, body });
  return v.parse(NewRegistrationToken, made.json).token;
}

/** A certificate request by openssl with forged content. */
function opensslRequest(...flags: string[]): string {
  const path = join(directory, "request.pem");
  const key = join(directory, "key.pem");
  const how = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-keyout",
    key,
    "-out",
    path,
  ];
  runSync(["openssl", "req", "-new", ...how, ...flags]);
  return readFileSync(path, "utf8");
}

describe("a certificate request", () => {
  test("for a CA, another node or a user gets only what the server grants", async () => {
    const wishes = [
      "basicConstraints=critical,CA:TRUE",
      "keyUsage=keyCertSign,cRLSign",
      "extendedKeyUsage=codeSigning,emailProtection",
      "subjectAltName=DNS:db.acme.internal,DNS:*.example.org,IP:10.77.0.99,email:a@example.org",
    ];
    const flags = wishes.flatMap((wish) => ["-addext", wish]);
    const node_csr = opensslRequest("-subj", "/CN=root/O=Somebody else", ...flags);
    const registration_token = await makeToken("acme", owner);
    const { host_public_key } = await makeKeys();
    const answer = await sendRegistration(server, "acme", {
      name: "one",
      host_public_key,
      node_csr,
      registration_token,
    });
    const { config } = v.parse(RegisterAnswer, answer.json);
    const [leaf = ""] = (config.files["node.crt"] ?? "").split(/(?<=-----END CERTIFICATE-----\n)/);
    const crt = new X509Certificate(leaf);
    expect(crt.ca).toBe(false);
    expect(crt.subject).toBe("CN=one");
    expect(crt.subjectAltName).toBe(
      "DNS:one.acme.internal, IP Address:10.77.0.1, URI:spiffe://acme.internal/node/1",
    );
    // TLS server and client authentication (RFC 5280, 4.2.1.12).
    expect(crt.keyUsage).toEqual(["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]);
  });

  test("truncated, extended or changed at any byte is refused or proves the same key, and never crashes the server", async () => {
    const [block] = parsePem(opensslRequest("-subj", "/CN=x", "-addext", "subjectAltName=DNS:x"));
    if (block === undefined) throw new Error("openssl wrote no request");
    const { host_public_key } = await makeKeys();
    const registration_token = await makeToken("acme", owner, { uses: 1_000_000 });
    const met = new Map<number, number>();
    const keys = new Set<string>();
    const send = async (bytes: Uint8Array) => {
      const node_csr = formatPem("CERTIFICATE REQUEST", bytes);
      const body = { name: "x", host_public_key, node_csr, registration_token };
      const { status, json } = await sendRegistration(server, "acme", body);
      met.set(status, (met.get(status) ?? 0) + 1);
      if (status !== 201) return;
      const crt = new X509Certificate(v.parse(RegisterAnswer, json).config.files["node.crt"] ?? "");
      keys.add(crt.publicKey.export({ format: "der", type: "spki" }).toString("hex"));
    };
    for (let at = 0; at < block.bytes.length; at += 3) {
      const changed = block.bytes.slice();
      // Among them is an empty element, which once crashed a CA.
      changed[at] = at % 2 === 0 ? 0 : (changed[at] ?? 0) ^ 0x80;
      await send(changed);
      await send(block.bytes.subarray(0, at));
    }
    await send(Buffer.concat([block.bytes, Buffer.from([5, 0])]));
    // The library accepts some loose lengths; the signed content is the same.
    expect([...met.keys()].filter((status) => status !== 400 && status !== 201)).toEqual([]);
    const pem = runSync(["openssl", "pkey", "-in", join(directory, "key.pem"), "-pubout"]);
    expect([...keys]).toEqual([Buffer.from(parsePem(pem)[0]?.bytes ?? []).toString("hex")]);
    expect(met.get(400)).toBeGreaterThan(100);
    expect(server.log.join("\n")).not.toMatch(/unforeseen|TypeError|RangeError/);
  });

  test.each(["rsa", "secp384r1", "secp256k1", "ed25519"])("with a key of %s is refused", async (kind) => {
    const curve = ["ec", "-pkeyopt", `ec_paramgen_curve:${kind}`];
    const newkey = kind === "rsa" ? ["rsa:2048"] : kind === "ed25519" ? ["ed25519"] : curve;
    const path = join(directory, "other.pem");
    const out = ["-nodes", "-keyout", join(directory, "other.key"), "-out", path, "-subj", "/CN=x"];
    runSync(["openssl", "req", "-new", "-newkey", ...newkey, ...out]);
    const { host_public_key } = await makeKeys();
    const registration_token = await makeToken("acme", owner);
    const node_csr = readFileSync(path, "utf8");
    const answer = await sendRegistration(server, "acme", {
      name: "x",
      host_public_key,
      node_csr,
      registration_token,
    });
    expect([answer.status, answer.text]).toEqual([400, expect.stringContaining("node_csr")]);
  });
});

test("a host key of P-256, whose signatures have two forms, is refused", async () => {
  const registration_token = await makeToken("acme", owner);
  const body = { name: "x", host_public_key: vectorKey("hp.pub"), registration_token };
  const answer = await sendRegistration(server, "acme", body);
  expect([answer.status, answer.text]).toEqual([400, expect.stringContaining("host_public_key")]);
});

describe("organizations are isolated", () => {
  test("a token works only in its own organization, and can be bound only to its nodes", async () => {
    const node = await registerNode(server, acme, "one");
    const foreign = await makeToken("rival", stranger);
    const answer = await sendRegistration(server, "acme", {
      name: "x",
      ...(await makeKeys()),
      registration_token: foreign,
    });
    expect(answer.status).toBe(401);
    const pending = nodeFrom(
      await server.send("POST", "/api/org/acme/nodes/", { token: owner, body: { name: "later" } }),
    );
    for (const node_id of [node.id, pending.id]) {
      const bound = await server.send("POST", "/api/org/rival/registration_tokens/", {
        token: stranger,
        body: { node_id },
      });
      expect([bound.status, bound.text]).toEqual([400, expect.stringContaining("node_id")]);
    }
    // One machine in two organizations is two nodes; its key grants nothing in the other one.
    const twice = await sendRegistration(server, "rival", {
      name: "one",
      ...node.keys,
      registration_token: foreign,
    });
    expect(v.parse(RegisterAnswer, twice.json).node.id).not.toBe(node.id);
  });

  test("ids of one are unknown in the other, and a deletion affects nothing else", async () => {
    const paths: Record<string, [create: object, table: string]> = {
      registration_tokens: [{}, "registration_tokens"],
      service_tokens: [{ name: "ci", role: "member" }, "service_tokens"],
      nodes: [{ name: "later" }, "nodes"],
      firewall_rules: [
        { direction: "inbound", protocol: "tcp", ports: "22", peer: { any: true }, target: { any: true } },
        "firewall_rules",
      ],
    };
    const live = async (table: string) => {
      const gone = { nodes: "state = 'revoked'", firewall_rules: "1 = 0" }[table] ?? "revoked_at IS NOT NULL";
      return (await server.db.all(`SELECT id FROM ${table} WHERE NOT (${gone}) ORDER BY id`)).map(
        (row) => row["id"],
      );
    };
    for (const [path, [body, table]] of Object.entries(paths)) {
      const make = async (slug: string, token: string) => {
        const made = await server.send("POST", `/api/org/${slug}/${path}/`, { token, body });
        return v.parse(v.object({ id: v.number() }), made.json).id;
      };
      const own = await make("acme", owner);
      const theirs = await make("rival", stranger);
      const before = await live(table);
      for (const method of ["GET", "PATCH", "DELETE"]) {
        const answer = await server.send(method, `/api/org/rival/${path}/${own}/`, {
          token: stranger,
          ...(method === "PATCH" ? { body: {} } : {}),
        });
        expect(`${method} ${path} ${answer.status}`).toMatch(/ 40[45]$/);
      }
      expect(await live(table)).toEqual(before);
      const deleted = await server.send("DELETE", `/api/org/acme/${path}/${own}/`, { token: owner });
      expect(`${path} ${deleted.status}`).toBe(`${path} 204`);
      expect(await live(table)).toEqual(before.filter((id) => id !== own));
      expect(before).toContain(theirs);
    }
  });

  test("removing a member keeps the tokens of others", async () => {
    const admin = await server.person("admin@example.org");
    await server.join(acme, "admin@example.org", "admin");
    const tokens = [
      await makeToken("acme", owner),
      await makeToken("acme", admin),
      await makeToken("rival", stranger),
    ];
    const members = await server.send("GET", "/api/org/acme/members/", { token: owner });
    const list = v.parse(v.array(v.object({ id: v.number(), email: v.string() })), members.json);
    const id = list.find(({ email }) => email === "admin@example.org")?.id ?? 0;
    expect((await server.send("DELETE", `/api/org/acme/members/${id}/`, { token: owner })).status).toBe(204);
    for (const [at, registration_token] of tokens.entries()) {
      const slug = at === 2 ? "rival" : "acme";
      const answer = await sendRegistration(server, slug, {
        name: `n${at}`,
        ...(await makeKeys()),
        registration_token,
      });
      expect(answer.status).toBe(201);
    }
  });
});

test("a token bound to a node does not restore the revoked node", async () => {
  const pending = nodeFrom(
    await server.send("POST", "/api/org/acme/nodes/", { token: owner, body: { name: "later" } }),
  );
  const bound = await makeToken("acme", owner, { node_id: pending.id });
  expect((await server.send("DELETE", `/api/org/acme/nodes/${pending.id}/`, { token: owner })).status).toBe(
    204,
  );
  const answer = await sendRegistration(server, "acme", {
    name: "later",
    ...(await makeKeys()),
    registration_token: bound,
  });
  expect(answer.status).toBe(409);
  expect(await server.db.all("SELECT id FROM certificates")).toEqual([]);
});

test("no answer of any route contains a private key, for any caller", async () => {
  const node = await registerNode(server, acme, "one");
  await confirm(node);
  const staff = await server.person("staff@example.org", { isStaff: true });
  const answers = [JSON.stringify(node.answer), (await node.download()).text];
  const document = await server.send("GET", "/api/schema/", { token: staff });
  const { paths } = v.parse(
    v.object({ paths: v.record(v.string(), v.record(v.string(), v.unknown())) }),
    document.json,
  );
  const gets = Object.entries(paths).filter(([, methods]) => "get" in methods);
  for (const [path] of gets) {
    const real = path.replace("{slug}", "acme").replace(/\{\w+\}/g, "1");
    for (const token of [owner, staff, node.token])
      answers.push((await server.send("GET", real, { token })).text);
  }
  expect(gets.length).toBeGreaterThan(15);
  for (const text of answers)
    expect(text).not.toMatch(/PRIVATE KEY|private_key|_sealed|"d":|s1\.[0-9a-f]{16}\./);
});

test("a well-known secret key is refused", () => {
  const path = join(directory, "secret.key");
  for (const byte of [0, 0x41, 255]) {
    writeFileSync(path, `${Buffer.alloc(32, byte).toString("base64url")}\n`, { mode: 0o600 });
    expect(() => readSecretKeys(path)).toThrow("is not secret");
  }
});
