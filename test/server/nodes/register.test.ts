// Nodes that register: the node, its certificate and its address, what is refused, and a registration that comes again.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../src/pki/keys.ts";
import { ErrorBody, RegisterAnswer } from "../../../src/protocol.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { makeNumbered } from "../../support/people.ts";
import { makeTestServer, type Answer, type TestServer } from "../../support/server.ts";
import {
  certificateOf,
  codeOf,
  countNodes,
  countOf,
  downloadOf,
  makeKeys,
  nodeOf,
  registerNode,
  registrationToken,
  sendRegistration,
} from "../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let count = 0;

beforeAll(async () => {
  server = await makeTestServer();
});
beforeEach(async () => {
  ({ org, admin } = await makeNumbered(server, ++count));
});
afterAll(() => server[Symbol.asyncDispose]());

const registered = (answer: Answer) => v.parse(RegisterAnswer, answer.json);
const count1 = (sql: string, id: number) => countOf(server, sql, id);
const nodesOf = (id: number) => countNodes(server, id);

describe("a registration", () => {
  test("gives a node, a token that opens its own endpoints, and files that fit its keys", async () => {
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
  ])("%p is no name, and the answer shows no command line", async (name) => {
    const answer = await sendRegistration(
      server,
      org.slug,
      { name, ...(await makeKeys()) },
      { token: admin },
    );
    expect(codeOf(answer)).toEqual([400, "validation_failed"]);
    expect(answer.text).not.toContain("nebula");
  });

  test("an engine with a known hole is refused", async () => {
    const keys = await makeKeys();
    const body = { name: "old", ...keys, overlay_version: "1.9.5" };
    expect((await sendRegistration(server, org.slug, body, { token: admin })).status).toBe(400);
    const fixed = { ...body, overlay_version: "1.9.7" };
    expect((await sendRegistration(server, org.slug, fixed, { token: admin })).status).toBe(201);
  });

  test("a host key is the same key however its PEM is broken into lines", async () => {
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
  ])("%p is no address that others could look for", async (public_ip) => {
    const body = { name: "hub", ...(await makeKeys()), is_lighthouse: true, public_ip };
    const answer = await sendRegistration(server, org.slug, body, { token: admin });
    expect(v.parse(ErrorBody, answer.json).errors).toHaveProperty("public_ip");
  });

  test.each([["203.0.113.7"], ["2001:db8::7"], ["hub.example.org"], ["4u.example"], ["localhost"]])(
    "%p is one",
    async (public_ip) => {
      const body = { name: "hub", ...(await makeKeys()), is_lighthouse: true, public_ip };
      expect((await sendRegistration(server, org.slug, body, { token: admin })).status).toBe(201);
    },
  );

  test("a certificate request of another key is no proof", async () => {
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

  test("who may: an admin, a registration token; nobody else", async () => {
    const keys = await makeKeys();
    expect((await sendRegistration(server, org.slug, { name: "a", ...keys })).status).toBe(401);
    // Before any work is done for them.
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
  test("the next free address, or the wanted one; taken and impossible ones are refused", async () => {
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

  test("a full network says so, and leaves nothing behind", async () => {
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
      const keys = await makeKeys();
      const ips: string[] = [];
      const refused: unknown[] = [];
      let next = 0;
      const worker = async () => {
        for (let at = next++; at < all; at = next++) {
          const body = {
            name: `n${at}`,
            ...keys,
            host_public_key: makeHostKey().publicPem,
            registration_token: token,
          };
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
    60_000,
  );

  test("50 at once for one name: one has it", async () => {
    const body = async () => ({ name: "wanted", ...(await makeKeys()) });
    const bodies = await Promise.all(Array.from({ length: 50 }, body));
    const answers = await Promise.all(
      bodies.map((each) => sendRegistration(server, org.slug, each, { token: admin })),
    );
    expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
    expect(answers.filter((answer) => answer.status === 409)).toHaveLength(49);
  });
});

describe("again with the same keys", () => {
  test("is the same node with a new token, and consumes no second use", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = nodeOf(server, org, node.keys, registered(await sendRegistration(server, org.slug, body)));
    expect(again.id).toBe(node.id);
    expect(again.ip).toBe(node.ip);
    expect(again.token).not.toBe(node.token);
    expect((await node.checkin()).status).toBe(401);
    expect((await again.checkin()).status).toBe(200);
    expect(await nodesOf(org.id)).toBe(1);
    expect(await count1("SELECT used AS n FROM registration_tokens WHERE org_id = $1", org.id)).toBe(1);
  });

  test("a server that died between its two commits is taken up where it stopped", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    await server.db.write(async (tx) => {
      await tx.run("DELETE FROM certificates WHERE node_id = $1", [node.id]);
      await tx.run(
        "UPDATE nodes SET state = 'pending', token_hash = NULL, registered_at = NULL WHERE id = $1",
        [node.id],
      );
    });
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = registered(await sendRegistration(server, org.slug, body));
    expect(again.node).toMatchObject({ id: node.id, state: "active" });
  });

  test("has the certificates of the first time, until a renewal is due", async () => {
    const token = await registrationToken(server, org, { uses: 1, expires_in: "90d" });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const again = async () =>
      registered(
        await sendRegistration(server, org.slug, { name: "web", ...node.keys, registration_token: token }),
      ).config.files;
    const { "host.crt": host, "node.crt": x509 } = node.answer.config.files;
    for (let round = 0; round < 5; round++) {
      expect(await again()).toMatchObject({ "host.crt": host, "node.crt": x509 });
    }
    const signed = "SELECT count(*) AS n FROM certificates WHERE org_id = $1";
    expect(await count1(signed, org.id)).toBe(2);
    // The X.509 certificate lives for a week, the other one for 90 days.
    server.clock.ms += 6 * 86_400_000;
    const later = await again();
    expect(later["host.crt"]).toBe(host);
    expect(later["node.crt"]).not.toBe(x509);
    server.clock.ms += 59 * 86_400_000;
    expect((await again())["host.crt"]).not.toBe(host);
    await again();
    expect(await count1(signed, org.id)).toBe(5);
  });

  test("is signed for anew where the first try was not completed", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    // As a node of an imported network whose machine has just claimed it with another key.
    await server.db.write((tx) => tx.run("UPDATE nodes SET registered_at = NULL WHERE id = $1", [node.id]));
    const body = { name: "web", ...node.keys, registration_token: token };
    const again = registered(await sendRegistration(server, org.slug, body));
    expect(again.config.files["host.crt"]).not.toBe(node.answer.config.files["host.crt"]);
  });

  test("ends ten minutes after the token has expired", async () => {
    const token = await registrationToken(server, org, { uses: 1, expires_in: "1h" });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    server.clock.ms += 69 * 60_000;
    const again = nodeOf(server, org, node.keys, registered(await sendRegistration(server, org.slug, body)));
    server.clock.ms += 60_000;
    const late = await sendRegistration(server, org.slug, body);
    expect(codeOf(late)).toEqual([401, "token_not_valid"]);
    expect(late.text).toContain("The registration token is expired.");
    // The refusal changed nothing: the node's last token is still good.
    expect((await again.checkin()).status).toBe(200);
    expect(await count1("SELECT count(*) AS n FROM certificates WHERE org_id = $1", org.id)).toBe(2);
    // For a new registration the token ended with its expiry.
    const other = { name: "other", ...(await makeKeys()), registration_token: token };
    expect((await sendRegistration(server, org.slug, other)).status).toBe(401);
  });

  test("is a node's own budget: ten an hour, which others cannot use up", async () => {
    const token = await registrationToken(server, org, { uses: 2 });
    const node = await registerNode(server, org, "web", { registration_token: token });
    const other = await registerNode(server, org, "other", { registration_token: token });
    const body = { name: "web", ...node.keys, registration_token: token };
    const stranger = { ...body, node_csr: (await makeKeys()).node_csr };
    for (let round = 0; round < 12; round++) await sendRegistration(server, org.slug, stranger);
    for (let round = 0; round < 10; round++) {
      expect((await sendRegistration(server, org.slug, body)).status).toBe(201);
    }
    const refused = await sendRegistration(server, org.slug, body);
    expect(codeOf(refused)).toEqual([429, "throttled"]);
    expect(refused.headers.get("Retry-After")).toBe("3600");
    expect(refused.text).toContain("This node resumed its registration too often.");
    const others = { name: "other", ...other.keys, registration_token: token };
    expect((await sendRegistration(server, org.slug, others)).status).toBe(201);
    server.clock.ms += 3_600_000;
    expect((await sendRegistration(server, org.slug, body)).status).toBe(201);
  });

  test("the public key alone, which every peer sees, gets nothing", async () => {
    const node = await registerNode(server, org, "web");
    const token = await registrationToken(server, org);
    const thief = { ...(await makeKeys()), host_public_key: node.keys.host_public_key };
    for (const body of [thief, { host_public_key: node.keys.host_public_key }]) {
      const answer = await sendRegistration(server, org.slug, {
        name: "thief",
        ...body,
        registration_token: token,
      });
      expect(answer.status).toBe(409);
    }
    expect((await node.checkin()).status).toBe(200);
  });

  test("a token of somebody else's registration does not do", async () => {
    const node = await registerNode(server, org, "web");
    const spent = await registrationToken(server, org, { uses: 1 });
    await registerNode(server, org, "other", { registration_token: spent });
    const body = { name: "web", ...node.keys, registration_token: spent };
    expect((await sendRegistration(server, org.slug, body)).status).toBe(401);
  });

  test("a revoked node does not come back by it", async () => {
    const node = await registerNode(server, org, "web");
    await server.send("DELETE", `/api/org/${org.slug}/nodes/${node.id}/`, { token: admin });
    const token = await registrationToken(server, org);
    const body = { name: "web", ...node.keys };
    expect(codeOf(await sendRegistration(server, org.slug, body, { token: admin }))).toEqual([
      403,
      "node_revoked",
    ]);
    const byToken = await sendRegistration(server, org.slug, { ...body, registration_token: token });
    expect(codeOf(byToken)).toEqual([403, "node_revoked"]);
  });
});
