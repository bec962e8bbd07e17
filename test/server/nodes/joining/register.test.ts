// Registration: the node, its certificate and its address, and refusals.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../../src/pki/keys.ts";
import { ErrorBody } from "../../../../src/protocol/error-body.ts";
import { RegisterAnswer } from "../../../../src/protocol/registration.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { Answer, TestServer } from "../../../support/server.ts";
import {
  certificateOf,
  codeOf,
  countNodes,
  countOf,
  downloadOf,
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let count: number;

useNumbered((made) => ({ server, org, admin, count } = made));

const registered = (answer: Answer) => v.parse(RegisterAnswer, answer.json);
const count1 = (sql: string, id: number) => countOf(server, sql, id);
const nodesOf = (id: number) => countNodes(server, id);

describe("a registration", () => {
  test("returns a node, a token for its own endpoints, and files for its keys", async () => {
    const node = await registerNode(server, org, "web", { mode: "server", platform: "linux-x64" });
    expect(node.answer.node).toMatchObject({
      name: "web",
      ip_address: "10.77.0.1",
      state: "active",
      mode: "server",
    });
    expect(node.token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    const certificate = certificateOf(node.answer.config, server.clock.ms);
    expect(certificate).toMatchObject({ name: "web", networks: ["10.77.0.1/16"], isCa: false });
    const day = 86_400;
    expect(certificate.notBefore).toBe(server.clock.ms / 1000 - 300);
    expect(certificate.notAfter).toBe(server.clock.ms / 1000 + 90 * day);
    expect((await node.checkin()).status).toBe(200);
    expect(downloadOf(await node.download()).files["node.crt"]).toContain("BEGIN CERTIFICATE");
  });

  test("certificates are never valid before their CA", async () => {
    const node = await registerNode(server, org, "first");
    const row = await server.db.get(
      "SELECT min(c.not_before - a.not_before) AS n FROM certificates c JOIN authorities a ON a.id = c.authority_id WHERE c.node_id = $1",
      [node.id],
    );
    expect(Number(row?.["n"])).toBeGreaterThanOrEqual(0);
  });

  test("no private key is stored, sent or accepted in any field", async () => {
    const { privatePem } = makeHostKey();
    const keys = await makeKeys();
    for (const field of ["host_public_key", "node_csr", "platform", "overlay_version"]) {
      const body = { name: "leak", ...keys, [field]: privatePem.slice(0, 60) };
      const answer = await sendRegistration(server, org.slug, body, { token: admin });
      expect(answer.status).toBe(400);
      expect(v.parse(ErrorBody, answer.json).errors).toHaveProperty(field);
      expect(answer.text).not.toContain(privatePem.split("\n")[1] ?? "");
    }
    expect(await nodesOf(org.id)).toBe(0);
    const node = await registerNode(server, org, "clean");
    expect(JSON.stringify(node.answer)).not.toContain("PRIVATE");
  });

  test.each([
    ["../../../tmp/x"],
    ["any"],
    ["UPPER"],
    ["a b"],
    ["-a"],
    ["a".repeat(64)],
    ["x;rm -rf /"],
    ["a\nb"],
  ])("%p is refused as a name, and the error shows no command line", async (name) => {
    const answer = await sendRegistration(
      server,
      org.slug,
      { name, ...(await makeKeys()) },
      { token: admin },
    );
    expect(codeOf(answer)).toEqual([400, "validation_failed"]);
    expect(answer.text).not.toContain("nebula");
  });

  test("an engine with a known vulnerability is refused", async () => {
    const keys = await makeKeys();
    const body = { name: "old", ...keys, overlay_version: "1.9.5" };
    expect((await sendRegistration(server, org.slug, body, { token: admin })).status).toBe(400);
    const fixed = { ...body, overlay_version: "1.9.7" };
    expect((await sendRegistration(server, org.slug, fixed, { token: admin })).status).toBe(201);
  });

  test("a host key is recognized in any line format of its PEM", async () => {
    const node = await registerNode(server, org, "first");
    const [banner = "", body = "", end = ""] = node.keys.host_public_key.split("\n");
    const wrapped = `${banner}\r\n${body.slice(0, 20)}\r\n${body.slice(20)}\r\n${end}\r\n`;
    const anew = { ...(await makeKeys()), host_public_key: wrapped };
    const asSecond = await sendRegistration(server, org.slug, { name: "second", ...anew }, { token: admin });
    expect(codeOf(asSecond)).toEqual([409, "conflict"]);
    await server.send("DELETE", `/api/org/${org.slug}/nodes/${node.id}/`, { token: admin });
    const back = { name: "third", ...node.keys, host_public_key: wrapped };
    expect(codeOf(await sendRegistration(server, org.slug, back, { token: admin }))).toEqual([
      403,
      "node_revoked",
    ]);
  });

  test.each([
    [":"],
    [":::"],
    ["1::2::3"],
    ["fe80::1%eth0"],
    ["999.1.1.1"],
    ["1.2.3"],
    ["a..b"],
    ["-a.example"],
    ["127.0.0.1"],
    ["127.8.9.10"],
    ["0.0.0.0"],
    ["169.254.169.254"],
    ["224.0.0.251"],
    ["255.255.255.255"],
    ["::1"],
    ["::"],
    ["fe80::1"],
    ["ff02::1"],
    ["localhost"],
    ["LocalHost"],
    ["a.localhost"],
  ])("%p is refused as a public address", async (public_ip) => {
    const body = { name: "hub", ...(await makeKeys()), is_lighthouse: true, public_ip };
    const answer = await sendRegistration(server, org.slug, body, { token: admin });
    expect(v.parse(ErrorBody, answer.json).errors).toHaveProperty("public_ip");
  });

  test.each([["203.0.113.7"], ["2001:db8::7"], ["hub.example.org"], ["4u.example"], ["hub"]])(
    "%p is one",
    async (public_ip) => {
      const body = { name: "hub", ...(await makeKeys()), is_lighthouse: true, public_ip };
      expect((await sendRegistration(server, org.slug, body, { token: admin })).status).toBe(201);
    },
  );

  test("a certificate request signed by another key is refused", async () => {
    const keys = await makeKeys();
    const broken = keys.node_csr.replace(/[A-Za-z](?=[^\n]*\n-----END)/, (char) =>
      char === "A" ? "B" : "A",
    );
    const answer = await sendRegistration(
      server,
      org.slug,
      { name: "web", ...keys, node_csr: broken },
      { token: admin },
    );
    expect(answer.status).toBe(400);
  });

  test("is allowed for an administrator or a registration token only", async () => {
    const keys = await makeKeys();
    expect((await sendRegistration(server, org.slug, { name: "a", ...keys })).status).toBe(401);
    // Refused before any expensive work.
    const nonsense = { name: "a", host_public_key: "nonsense" };
    expect((await sendRegistration(server, org.slug, nonsense)).status).toBe(401);
    const guess = { ...nonsense, registration_token: "guess" };
    const address = "198.51.100.77";
    for (let at = 0; at < 10; at++)
      await sendRegistration(server, org.slug, { ...guess, ...keys }, { address });
    expect((await sendRegistration(server, org.slug, guess, { address })).status).toBe(429);
    const member = await server.person(`member-${count}@example.org`);
    await server.join(org, `member-${count}@example.org`, "member");
    expect((await sendRegistration(server, org.slug, { name: "a", ...keys }, { token: member })).status).toBe(
      403,
    );
    const node = await registerNode(server, org, "b");
    const answer = await sendRegistration(server, org.slug, { name: "a", ...keys }, { token: node.token });
    expect(codeOf(answer)).toEqual([403, "node_token_scope"]);
  });
});

describe("names and addresses", () => {
  test("the next free or the requested address is assigned; taken and invalid ones are refused", async () => {
    expect((await registerNode(server, org, "a")).ip).toBe("10.77.0.1");
    expect((await registerNode(server, org, "b", { ip_address: "10.77.0.2" })).ip).toBe("10.77.0.2");
    expect((await registerNode(server, org, "c")).ip).toBe("10.77.0.3");
    const wanting = async (ip_address: string) =>
      codeOf(
        await sendRegistration(
          server,
          org.slug,
          { name: "d", ...(await makeKeys()), ip_address },
          { token: admin },
        ),
      );
    expect(await wanting("10.77.0.2")).toEqual([409, "address_taken"]);
    for (const each of ["10.78.0.1", "10.77.0.0", "10.77.255.255", "10.77.0.9/16", "fd00::1", "nonsense"])
      expect(await wanting(each)).toEqual([400, "validation_failed"]);
    const name = await sendRegistration(
      server,
      org.slug,
      { name: "a", ...(await makeKeys()) },
      { token: admin },
    );
    expect(codeOf(name)).toEqual([409, "name_taken"]);
    expect((await registerNode(server, org, "d")).ip).toBe("10.77.0.4");
  });

  test("a full network is reported, and the refused registration stores nothing", async () => {
    const small = await server.organization(`small-${count}`, "10.90.0.0/29");
    const token = await registrationToken(server, small, { uses: 100 });
    for (const name of ["a", "b", "c", "d", "e", "f"])
      await registerNode(server, small, name, { registration_token: token });
    const answer = await sendRegistration(server, small.slug, {
      name: "g",
      ...(await makeKeys()),
      registration_token: token,
    });
    expect(codeOf(answer)).toEqual([409, "network_full"]);
    expect(await nodesOf(small.id)).toBe(6);
    expect(await count1("SELECT used AS n FROM registration_tokens WHERE org_id = $1", small.id)).toBe(6);
  });

  test.each([
    [300, 8, 300],
    [500, 32, 450],
  ])(
    "%i registrations %i at a time, a token for %i: no address twice, no use too many",
    async (all, atOnce, uses) => {
      const token = await registrationToken(server, org, { uses });
      const ips: string[] = [];
      const refused: unknown[] = [];
      let next = 0;
      const worker = async () => {
        for (let at = next++; at < all; at = next++) {
          // Without a node.crt, whose signature takes most of the time.
          const host_public_key = makeHostKey().publicPem;
          const body = { name: `n${at}`, host_public_key, registration_token: token };
          const answer = await sendRegistration(server, org.slug, body);
          if (answer.status === 201) ips.push(registered(answer).node.ip_address);
          else refused.push(codeOf(answer));
        }
      };
      await Promise.all(Array.from({ length: atOnce }, worker));
      expect([ips.length, new Set(ips).size]).toEqual([uses, uses]);
      expect(refused).toEqual(Array.from({ length: all - uses }, () => [401, "token_not_valid"]));
      const held = await count1(
        "SELECT count(DISTINCT host) AS n FROM addresses WHERE org_id = $1 AND node_id IS NOT NULL",
        org.id,
      );
      expect([held, await nodesOf(org.id)]).toEqual([uses, uses]);
    },
    120_000,
  );

  test("of 50 concurrent registrations with one name, one succeeds", async () => {
    const body = async () => ({ name: "wanted", ...(await makeKeys()) });
    const bodies = await Promise.all(Array.from({ length: 50 }, body));
    const answers = await Promise.all(
      bodies.map((each) => sendRegistration(server, org.slug, each, { token: admin })),
    );
    expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
    expect(answers.filter((answer) => answer.status === 409)).toHaveLength(49);
  });
});
