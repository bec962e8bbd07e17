// Importing a hand-made Nebula network: what is read from its files, what is refused, and how its machines register as
// their nodes.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { encryptCaKey, readCaKey } from "../../../src/pki/ca-key.ts";
import { makeHostKey, readHostPublicKey } from "../../../src/pki/keys.ts";
import { encodePem } from "../../../src/pki/bundle.ts";
import { fingerprint, makeCa } from "../../../src/pki/nebula.ts";
import { Node } from "../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { openAuthorities } from "../../../src/server/certificates/authorities.ts";
import { addMember } from "../../../src/server/users/members.ts";
import type { OwnerChoice } from "../../../src/server/users/ownership.ts";
import { importNetwork } from "../../../src/server/import-export/import.ts";
import { showAuthorities, startRotation } from "../../../src/server/rollout/rotation-commands.ts";
import { advanceRotations } from "../../../src/server/rollout/rotation-phases.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { blocklistOf, certificateOf, makeKeys, sendRegistration } from "../../support/nodes.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { day, handMade } from "../../support/hand-made.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { key, vector } from "../../pki/vectors.ts";

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

const nowS = () => Math.floor(server.clock.ms / 1000);
const { life, file, makeNetwork } = handMade(() => directory.path, nowS);

const bring = (more: { network?: string; passphrase?: string; isPlan?: boolean; owner?: OwnerChoice } = {}) =>
  importNetwork(server.app.services, "acme", directory.path, {
    network: more.network,
    owner: more.owner ?? { email: "owner@example.org" },
    passphrase: async () => more.passphrase ?? "",
    isPlan: more.isPlan ?? false,
  });
const refusal = (given: Promise<unknown>) => given.then(() => "done", String);
const nodes = async () =>
  v.parse(v.array(Node), (await server.send("GET", "/api/org/acme/nodes/", { token: owner })).json);
const register = async (name: string, more: Record<string, unknown> = {}, token?: string) =>
  sendRegistration(
    server,
    "acme",
    { name, ...(await makeKeys(name)), ...more },
    token === undefined ? {} : { token },
  );

test("a user that an invitation created becomes owner of an imported network only with its id", async () => {
  const { host } = makeNetwork();
  host("web.crt", { name: "web", networks: ["10.42.0.9/16"] });
  const other = await server.organization("other", "10.43.0.0/16");
  const email = "ceo@example.org";
  const by = { role: "owner", actor: operator } as const;
  const { link } = await addMember(server.app.services, other, { email, role: "member" }, by);
  const body = { secret: link?.split("#")[1] ?? "", password: "chosen by whoever had the link" };
  expect((await server.send("POST", "/api/join/", { body })).status).toBe(200);
  const id = Number((await server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]);
  for (const isPlan of [true, false]) {
    expect(await refusal(bring({ owner: { email }, isPlan }))).toContain(`user ${id} is ${email}`);
  }
  expect(await server.db.all("SELECT id FROM organizations WHERE slug = 'acme'")).toEqual([]);
  expect(await bring({ owner: { email, id } })).toMatchObject({ organization: { role: "owner" } });
});

describe("a hand-made network", () => {
  test("becomes nodes with their names, addresses, groups, routes and underlay addresses", async () => {
    const { host, sign } = makeNetwork();
    host("hub/host.crt", { name: "Hub.example", networks: ["10.42.0.1/16"] });
    const old = host("old/web.crt", { name: "web", networks: ["10.42.0.9/16"], notBefore: nowS() - 2 * day });
    symlinkSync("../hub", join(directory.path, "hub", "circle"));
    const web = host("zone/web.pem", {
      name: "web",
      networks: ["10.42.0.9/16"],
      groups: ["web", "eu"],
      unsafeNetworks: ["192.168.7.0/24", "0.0.0.0/0"],
    });
    file("gone.crt", encodePem(sign({ name: "gone", networks: ["10.42.0.3/16"], notAfter: nowS() - 1 })));
    file("notes.txt", "nothing of this is read: -----BEGIN PRIVATE KEY-----");
    file(
      "web.yml",
      'pki: {ca: ca.crt, cert: web.crt, key: web.key}\nstatic_host_map: {"10.42.0.1": ["hub.example:4300"]}\n' +
        'lighthouse: {hosts: ["10.42.0.1"]}\nrelay: {relays: ["10.42.0.1"]}\n' +
        "tun: {unsafe_routes: [{route: 192.168.7.0/24, via: 10.42.0.9}]}\n",
    );
    symlinkSync("zone/web.pem", join(directory.path, "web.crt"));
    symlinkSync("nowhere", join(directory.path, "dangling.crt"));
    file("values.yaml", "- just\n- a list\n");
    expect(await bring()).toMatchObject({
      plan: {
        notes: [
          '"dangling.crt" is a link to nothing; not read.',
          '"hub/circle" is a link to a directory; not read.',
          "values.yaml is not a configuration of an engine; not read.",
          expect.stringContaining('gone.crt: The certificate of "gone" is refused: it has expired'),
          'hub/host.crt: the node of "Hub.example" (10.42.0.1) is named hub-example.',
          "zone/web.pem: the certificate of web permits 0.0.0.0/0, but no configuration routes that; not imported.",
        ],
      },
    });
    const [hub, node, ...more] = await nodes();
    expect(more).toEqual([]);
    expect(hub).toMatchObject({
      name: "hub-example",
      ip_address: "10.42.0.1",
      is_lighthouse: true,
      is_relay: true,
      public_ip: "hub.example",
      external_port: 4300,
    });
    expect(node).toMatchObject({
      state: "active",
      online: false,
      ip_address: "10.42.0.9",
      groups: ["web", "eu"],
      subnets: ["192.168.7.0/24"],
      certificate: { fingerprint: fingerprint(web) },
    });
    const kept = await server.db.all("SELECT fingerprint, state FROM certificates ORDER BY id");
    expect(kept.slice(1)).toEqual([
      { fingerprint: fingerprint(web), state: "current" },
      { fingerprint: fingerprint(old), state: "former" },
    ]);
  });

  test("may have both certificate versions, any IPv6 address, and an encrypted key", async () => {
    const { ca, host, sign } = makeNetwork();
    const key = await readCaKey(ca.privateKeyPem);
    file("ca.key", await encryptCaKey(key, "a passphrase", { memory: 1024, passes: 1, parallelism: 1 }));
    const publicKey = readHostPublicKey(makeHostKey().publicPem);
    const one = { name: "one", publicKey };
    const first = sign({ ...one, networks: ["10.42.0.1/24"] });
    const second = sign({ ...one, version: 2, networks: ["10.42.0.1/24", "fd42::2/64"] });
    file("one.crt", encodePem(first) + encodePem(second));
    host("two.crt", { name: "two", version: 2, networks: ["10.42.0.7/24", "fd42::aaaa:0:0:7/64"] });
    expect(await refusal(bring({ passphrase: "another" }))).toContain("the passphrase is wrong");
    expect(await refusal(bring({ passphrase: "" }))).toContain("the passphrase is wrong");
    expect(await bring({ passphrase: "a passphrase" })).toMatchObject({
      organization: { certificate_version: "both", network: "10.42.0.0/24", network6: "fd42::/64" },
    });
    expect((await nodes()).map((node) => node.ip_address6)).toEqual(["fd42::2", "fd42::aaaa:0:0:7"]);
    // No other node gets one of their addresses, in either family.
    const made = await register("three", { overlay_version: "1.11.0" }, owner);
    expect(v.parse(RegisterAnswer, made.json).node).toMatchObject({
      ip_address: "10.42.0.3",
      ip_address6: "fd42::3",
    });
  });

  test("keeps its blocklist: a blocked host is revoked, an unknown fingerprint stays blocked", async () => {
    const { host } = makeNetwork();
    const bad = host("bad.crt", { name: "bad", networks: ["10.42.0.2/16"] });
    const good = { name: "good", networks: ["10.42.0.3/16"] };
    host("good.crt", good);
    // Signed again with other groups, and the old certificate blocked: the host itself stays active.
    const former = host("old/good.crt", { ...good, groups: ["admins"], notBefore: nowS() - 2 * day });
    const unknown = "ab".repeat(32);
    file(
      "config.yml",
      `pki: {blocklist: ["${fingerprint(bad).toUpperCase()}", "${fingerprint(former)}", "${unknown}"]}\n`,
    );
    await bring();
    expect((await nodes()).map((node) => node.name)).toEqual(["good"]);
    const made = v.parse(RegisterAnswer, (await register("new", {}, owner)).json);
    expect(blocklistOf(made.config).sort()).toEqual([fingerprint(bad), fingerprint(former), unknown].sort());
    // The configuration of the other machine, which has not registered yet, may contain a rule with its name.
    const token = await server.send("POST", "/api/org/acme/registration_tokens/", { token: owner, body: {} });
    const { token: registration_token } = v.parse(v.object({ token: v.string() }), token.json);
    const taken = await register("bad", { registration_token });
    expect([taken.status, taken.json]).toMatchObject([409, { code: "name_held" }]);
    // The unknown fingerprint belongs to no node that could be restored.
    const revoked = v.parse(
      v.array(v.object({ node_id: v.number(), name: v.string() })),
      (await server.send("GET", "/api/org/acme/revocations/", { token: owner })).json,
    );
    const nobody = revoked.find(({ name }) => name === "blocked-before-import")?.node_id ?? 0;
    const restored = await server.send("POST", `/api/org/acme/nodes/${nobody}/restore/`, {
      token: owner,
      body: {},
    });
    expect([restored.status, restored.json]).toMatchObject([409, { code: "conflict" }]);
  });

  test("is only read for a plan", async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.2/16"] });
    expect(await bring({ isPlan: true })).toMatchObject({
      network: "10.42.0.0/16",
      hosts: [{ name: "one" }],
    });
    expect(await server.db.all("SELECT id FROM organizations")).toEqual([]);
  });
});

describe("is refused without storing anything", () => {
  const cases: [string, RegExp, () => void][] = [
    [
      "without the CA's key",
      /no valid CA certificate with its private key/,
      () => {
        makeNetwork();
        file("ca.key", makeCa({ version: 1, name: "other", ...life() }).privateKeyPem);
      },
    ],
    [
      "with an expired CA",
      /no valid CA certificate/,
      () => {
        const ca = makeCa({ version: 1, name: "old", notBefore: nowS() - 2 * day, notAfter: nowS() - day });
        file("ca.crt", encodePem(ca.certificate));
        file("ca.key", ca.privateKeyPem);
      },
    ],
    [
      "with a CA of the curve P-256",
      /Curve25519/,
      () => {
        const name = "v1p256.crt";
        file("ca.crt", vector(name).pem);
        file("ca.key", key("v1p256.key"));
      },
    ],
    [
      "if two hosts have the same address",
      /10\.42\.0\.2 is in the certificates of "(one|two)" \((one|two)\.crt\) and "(one|two)" /,
      () => {
        const { host } = makeNetwork();
        host("one.crt", { name: "one", networks: ["10.42.0.2/16"] });
        host("two.crt", { name: "two", networks: ["10.42.0.2/16"] });
      },
    ],
    [
      "if hosts are in several networks",
      /several networks: 10\.42\.0\.0\/16 and 10\.43\.0\.0\/16/,
      () => {
        const { host } = makeNetwork();
        host("one.crt", { name: "one", networks: ["10.42.0.2/16"] });
        host("two.crt", { name: "two", networks: ["10.43.0.2/16"] });
      },
    ],
    ["without a host", /no host certificate/, () => void makeNetwork()],
    [
      "if a file is truncated",
      /Cannot read .*one\.crt/,
      () => {
        const { sign } = makeNetwork();
        file("one.crt", encodePem(sign({ name: "one", networks: ["10.42.0.2/16"] })).slice(0, -20));
      },
    ],
  ];
  test.each(cases)("%s", async (_, why, prepare) => {
    prepare();
    expect(await refusal(bring())).toMatch(why);
    expect(await server.db.all("SELECT id FROM organizations")).toEqual([]);
    expect(await server.db.all("SELECT id FROM nodes")).toEqual([]);
  });

  test("if the slug is taken, also as a plan", async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.2/16"] });
    await server.organization("acme");
    for (const isPlan of [true, false])
      expect(await refusal(bring({ isPlan }))).toContain("an organization acme already");
    expect(await server.db.all("SELECT id FROM nodes")).toEqual([]);
  });

  test("if another organization has the CA, even one that was deleted, with the same hosts or without any", async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.2/16"] });
    await bring();
    await server.db.write((tx) => tx.run("UPDATE organizations SET slug = 'other'"));
    const refused = async (which: string) => {
      for (const isPlan of [true, false])
        expect(await refusal(bring({ isPlan, network: "10.42.0.0/16" }))).toContain(
          `The CA "By hand" belongs to another organization here: ${which}`,
        );
    };
    await refused("other.");
    rmSync(join(directory.path, "one.crt"));
    await refused("other.");
    await server.db.write((tx) => tx.run("UPDATE organizations SET deleted_at = 1"));
    await refused("other, which was deleted.");
    expect(await server.db.all("SELECT slug FROM organizations")).toEqual([{ slug: "other" }]);
  });
});

describe("a machine of an imported network", () => {
  beforeEach(async () => {
    const { host } = makeNetwork();
    host("one.crt", { name: "one", networks: ["10.42.0.2/16"], groups: ["web"] });
    host("two.crt", { name: "two", networks: ["10.42.0.3/16"] });
    await bring();
  });
  const token = async (body: object) => {
    const made = await server.send("POST", "/api/org/acme/registration_tokens/", { token: owner, body });
    return v.parse(v.object({ token: v.string() }), made.json).token;
  };

  test("registers as its node with an administrator's token, once", async () => {
    const answer = await register("one", { overlay_version: "1.6.1" }, owner);
    const { node, config } = v.parse(RegisterAnswer, answer.json);
    expect(node).toMatchObject({ id: 1, ip_address: "10.42.0.2", groups: ["web"], state: "active" });
    expect(certificateOf(config, server.clock.ms)).toMatchObject({
      networks: ["10.42.0.2/16"],
      groups: ["web"],
    });
    // The machine may still use its old certificate, which must stay valid.
    expect(blocklistOf(config)).toEqual([]);
    const again = await register("one", {}, owner);
    expect(again.status).toBe(409);
  });

  test("registers only with a token that is bound to its node", async () => {
    const loose = await register("one", { registration_token: await token({}) });
    expect([loose.status, loose.json]).toEqual([
      409,
      expect.objectContaining({ code: "name_taken", detail: expect.stringContaining("made for this node") }),
    ]);
    const bound = await token({ node_id: 1 });
    const answer = await register("any-name", { registration_token: bound });
    expect(v.parse(RegisterAnswer, answer.json).node).toMatchObject({ id: 1, name: "one" });
    const other = await server.send("POST", "/api/org/acme/registration_tokens/", {
      token: owner,
      body: { node_id: 1 },
    });
    expect(other.status).toBe(400);
  });

  test("holds up a CA rotation until it registers", async () => {
    const { services } = server.app;
    await startRotation(services, { id: 1, slug: "acme" }, operator);
    const store = { ...services, authorities: openAuthorities(services) };
    for (let look = 0; look < 3; look++) await advanceRotations(store);
    const { rotation } = await showAuthorities(server.db, { id: 1 }, server.clock.ms);
    expect(rotation).toMatchObject({ phase: "trust", waiting_for: [1, 2] });
  });

  test("prevents version 2 while its engine is unknown", async () => {
    const to = (certificate_version: unknown) =>
      server.send("PATCH", "/api/org/acme/", { token: owner, body: { certificate_version } });
    expect((await to("both")).status).toBe(200);
    const answer = await to(2);
    expect([answer.status, answer.text]).toEqual([409, expect.stringContaining("one (unknown engine)")]);
  });

  test("is revoked like any other node: its certificate is blocked", async () => {
    const [before] = await nodes();
    expect((await server.send("DELETE", "/api/org/acme/nodes/1/", { token: owner })).status).toBe(204);
    const made = v.parse(RegisterAnswer, (await register("new", {}, owner)).json);
    expect(blocklistOf(made.config)).toEqual([before?.certificate?.fingerprint ?? ""]);
    // Its address is not given away while an unregistered machine may still trust it.
    expect(made.node.ip_address).not.toBe("10.42.0.2");
    const back = await register("one", {}, owner);
    expect(v.parse(RegisterAnswer, back.json).node.id).not.toBe(1);
  });
});
