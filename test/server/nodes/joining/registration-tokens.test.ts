// What a registration token permits, and what callers without one learn.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { makeHostKey } from "../../../../src/pki/keys.ts";
import { Node } from "../../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../../src/protocol/registration.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { TestServer } from "../../../support/server.ts";
import {
  certificateOf,
  codeOf,
  countNodes,
  countOf,
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

const count1 = (sql: string, id: number) => countOf(server, sql, id);
const nodesOf = (id: number) => countNodes(server, id);

describe("registration tokens", () => {
  test("200 at the same instant with a single-use token give exactly one node", async () => {
    const token = await registrationToken(server, org, { uses: 1 });
    const { node_csr } = await makeKeys();
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, at) =>
        sendRegistration(server, org.slug, {
          name: `n${at}`,
          node_csr,
          host_public_key: makeHostKey().publicPem,
          registration_token: token,
        }),
      ),
    );
    expect(answers.filter((answer) => answer.status === 201)).toHaveLength(1);
    expect(new Set(answers.filter((answer) => answer.status !== 201).map((answer) => answer.status))).toEqual(
      new Set([401]),
    );
    expect(await nodesOf(org.id)).toBe(1);
  }, 120_000);

  test("groups come from the token, never from the request", async () => {
    const token = await registrationToken(server, org, { groups: ["web"] });
    const node = await registerNode(server, org, "a", { registration_token: token });
    expect(certificateOf(node.answer.config, server.clock.ms).groups).toEqual(["web"]);
    const own = { name: "b", ...(await makeKeys()), registration_token: token, groups: ["admin"] };
    expect((await sendRegistration(server, org.slug, own)).status).toBe(400);
  });

  test("only a token with the right permits a lighthouse or a relay, and does not require it", async () => {
    const plain = await registrationToken(server, org);
    for (const wish of [{ is_lighthouse: true, public_ip: "203.0.113.1" }, { is_relay: true }]) {
      const body = { name: "hub", ...(await makeKeys()), ...wish, registration_token: plain };
      expect(codeOf(await sendRegistration(server, org.slug, body))).toEqual([403, "token_scope"]);
    }
    const right = await registrationToken(server, org, { is_lighthouse: true });
    const node = await registerNode(server, org, "leaf", { registration_token: right });
    expect(node.answer.node.is_lighthouse).toBe(false);
    expect(node.answer.unused_right).toBe("lighthouse");
    expect(await count1("SELECT sum(used) AS n FROM registration_tokens WHERE org_id = $1", org.id)).toBe(1);
  });

  test("a lighthouse without a public address gets the one it calls from, if others can use it", async () => {
    const register = async (name: string, address: string, more: object = {}) => {
      const body = {
        name,
        ...(await makeKeys()),
        is_lighthouse: true,
        ...more,
        registration_token: await registrationToken(server, org, { is_lighthouse: true }),
      };
      const { json } = await sendRegistration(server, org.slug, body, { address });
      return v.parse(RegisterAnswer, json);
    };
    const seen = await register("seen", "198.51.100.7");
    expect(seen.node.public_ip).toBe("198.51.100.7");
    expect(seen.unused_right).toBeUndefined();
    expect((await register("six", "2001:db8::7")).node.public_ip).toBe("2001:db8::7");
    const named = await register("named", "198.51.100.7", { public_ip: "hub.example.org" });
    expect(named.node.public_ip).toBe("hub.example.org");
    for (const [name, address] of [
      ["here", "127.0.0.1"],
      ["link", "169.254.7.7"],
      ["unknown", ""],
      ["inside", "10.77.3.4"],
    ] as const)
      expect((await register(name, address)).node.public_ip).toBeNull();
    const leaf = await register("leaf", "198.51.100.8", { is_lighthouse: false });
    expect(leaf.node.public_ip).toBeNull();
  });

  test("a new lighthouse is a relay unless it refuses, and not in an organization from before", async () => {
    const register = async (name: string, more: object = {}) => {
      const hub = { is_lighthouse: true, public_ip: "203.0.113.1", ...more };
      return (await registerNode(server, org, name, hub)).answer.node.is_relay;
    };
    const create = async (name: string, is_lighthouse: boolean) => {
      const body = { name, is_lighthouse, public_ip: "203.0.113.2" };
      const { json } = await server.send("POST", `/api/org/${org.slug}/nodes/`, { body, token: admin });
      return v.parse(Node, json).is_relay;
    };
    expect(await register("hub")).toBe(true);
    expect(await register("plain", { is_relay: false })).toBe(false);
    expect(await register("leaf", { is_lighthouse: false })).toBe(false);
    expect([await create("made", true), await create("made-leaf", false)]).toEqual([true, false]);
    await server.db.write((tx) =>
      tx.run("UPDATE organizations SET lighthouses_relay = 0 WHERE id = $1", [org.id]),
    );
    expect([await register("late"), await create("late-made", true)]).toEqual([false, false]);
    expect(await register("relay", { is_relay: true })).toBe(true);
  });

  test("expired, revoked, used up, foreign and invented tokens are refused; only an invented one counts as a guess", async () => {
    const expired = await registrationToken(server, org, { expires_in: "1m" });
    server.clock.ms += 61_000;
    const used = await registrationToken(server, org, { uses: 1 });
    await registerNode(server, org, "a", { registration_token: used });
    const foreign = await registrationToken(server, await server.organization(`foreign-${count}`));
    const address = "198.51.100.7";
    const attempt = async (registration_token: string) =>
      (
        await sendRegistration(
          server,
          org.slug,
          { name: "x", ...(await makeKeys()), registration_token },
          { address },
        )
      ).status;
    for (let at = 0; at < 12; at++) expect(await attempt(at % 2 === 0 ? expired : used)).toBe(401);
    expect(await attempt(foreign)).toBe(401);
    let status = 401;
    for (let at = 0; at < 12 && status === 401; at++) status = await attempt("A".repeat(43));
    expect(status).toBe(429);
    expect(await nodesOf(org.id)).toBe(1);
  });

  test("only the holder of a token learns why it is refused", async () => {
    const sentenceFor = async (registration_token: string, slug = org.slug) => {
      const body = { name: "x", ...(await makeKeys()), registration_token };
      const answer = await sendRegistration(server, slug, body);
      expect(codeOf(answer)).toEqual([401, "token_not_valid"]);
      return v.parse(v.object({ detail: v.string() }), answer.json).detail;
    };
    const revoke = async (id: number) =>
      expect(
        (await server.send("DELETE", `/api/org/${org.slug}/registration_tokens/${id}/`, { token: admin }))
          .status,
      ).toBe(204);
    const make = async (request: object) => {
      const path = `/api/org/${org.slug}/registration_tokens/`;
      const answer = await server.send("POST", path, { token: admin, body: request });
      return v.parse(v.object({ id: v.number(), token: v.string() }), answer.json);
    };
    const [short, single, revoked, usedAndRevoked] = [
      await make({ expires_in: "1m" }),
      await make({ uses: 1 }),
      await make({ uses: 5 }),
      await make({ uses: 1 }),
    ];
    await registerNode(server, org, "a", { registration_token: single.token });
    await registerNode(server, org, "b", { registration_token: usedAndRevoked.token });
    await revoke(revoked.id);
    await revoke(usedAndRevoked.id);
    server.clock.ms += 61_000;
    expect(await sentenceFor(short.token)).toBe("The registration token is expired.");
    expect(await sentenceFor(single.token)).toBe("The registration token is used up.");
    expect(await sentenceFor(revoked.token)).toBe("The registration token is revoked.");
    expect(await sentenceFor(usedAndRevoked.token)).toBe("The registration token is revoked.");
    const other = await server.organization(`other-${count}`);
    for (const slug of [other.slug, "nowhere"])
      for (const { token } of [short, single, revoked])
        expect(await sentenceFor(token, slug)).toBe("The registration token is not valid.");
    expect(await sentenceFor("A".repeat(43))).toBe("The registration token is not valid.");
  });

  test("a token of another organization does not count as a guess", async () => {
    const foreign = await registrationToken(server, await server.organization(`foreign-${count}`));
    const body = { name: "x", ...(await makeKeys()), registration_token: foreign };
    for (let at = 0; at < 12; at++) {
      const answer = await sendRegistration(server, org.slug, body, { address: "198.51.100.8" });
      expect(codeOf(answer)).toEqual([401, "token_not_valid"]);
    }
  });

  test("the event of a new token says everything that the token permits", async () => {
    await registrationToken(server, org, { groups: ["web"] });
    await registrationToken(server, org, { is_lighthouse: true, approved: true });
    await registrationToken(server, org, { ephemeral: true });
    await registrationToken(server, org, { node_name: "db", name: "for db" });
    const sql = "SELECT after FROM events WHERE org_id = $1 AND type = 'token.created' ORDER BY id";
    const after = (await server.db.all(sql, [org.id])).map((row): unknown =>
      JSON.parse(String(row["after"])),
    );
    const usual = { uses: expect.any(Number), groups: [], expires_at: expect.any(String) };
    expect(after).toEqual([
      { ...usual, groups: ["web"] },
      { ...usual, is_lighthouse: true, approved: true },
      { ...usual, ephemeral_silence_s: 600 },
      { ...usual, name: "for db", node_id: expect.any(Number) },
    ]);
  });

  test("a token bound to a pending node registers that node", async () => {
    const made = await server.send("POST", `/api/org/${org.slug}/nodes/`, {
      token: admin,
      body: {
        name: "planned",
        ip_address: "10.77.4.4",
        groups: ["db"],
        config_overrides: { tun: { mtu: 1400 } },
      },
    });
    expect(made.status).toBe(201);
    const { id } = v.parse(v.object({ id: v.number() }), made.json);
    const token = await registrationToken(server, org, { uses: 1, node_id: id });
    const node = await registerNode(server, org, "planned", { registration_token: token });
    expect(node.answer.node).toMatchObject({ id, ip_address: "10.77.4.4", state: "active", groups: ["db"] });
    expect(node.answer.config.files["config.yml"]).toContain("mtu: 1400");
    const second = { name: "planned", ...(await makeKeys()), registration_token: token };
    expect((await sendRegistration(server, org.slug, second)).status).toBe(401);
  });
});

test("an anonymous caller cannot tell whether an organization exists", async () => {
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET certificate_version = '2' WHERE id = $1", [org.id]),
  );
  const deleted = await server.organization(`deleted-${count}`);
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET deleted_at = 1 WHERE id = $1", [deleted.id]),
  );
  const issued = await registrationToken(server, await server.organization(`elsewhere-${count}`));
  const good = { name: "a", ...(await makeKeys()), registration_token: "A".repeat(43) };
  const bodies = [
    good,
    { ...good, overlay_version: "1.9.5" },
    { ...good, overlay_version: "1.9.0" },
    { ...good, registration_token: issued },
    { ...good, registration_token: undefined },
    { ...good, host_public_key: "nonsense" },
    { ...good, node_csr: "nonsense" },
    { ...good, name: "no name" },
    {},
  ];
  const answersOf = async (slug: string, address: string) => {
    const answers = [];
    for (const body of bodies) answers.push(await sendRegistration(server, slug, body, { address }));
    const path = `/api/org/${slug}/nodes/register/`;
    answers.push(await server.send("POST", path, { raw: "{", address }));
    for (const method of ["GET", "DELETE"]) answers.push(await server.send(method, path, { address }));
    for (let at = 0; at < 8; at++) answers.push(await sendRegistration(server, slug, good, { address }));
    return answers.map(({ status, text }) => [status, text]);
  };
  const known = await answersOf(org.slug, "198.51.100.21");
  expect(await answersOf(`unknown-${count}`, "198.51.100.22")).toEqual(known);
  expect(await answersOf(deleted.slug, "198.51.100.23")).toEqual(known);
  expect(known.map(([status]) => status).join(" ")).toBe(
    "401 401 401 401 401 401 401 400 400 400 405 405 401 401 401 401 401 429 429 429",
  );
  // A signed-in user learns that it does not exist.
  const keys = await makeKeys();
  const answer = await sendRegistration(server, `unknown-${count}`, { name: "a", ...keys }, { token: admin });
  expect(codeOf(answer)).toEqual([404, "not_found"]);
});
