// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../../src/protocol/error-body.ts";
import { flowTimes, longestFlowMs } from "../../../../src/server/config/flow-timeout.ts";
import { blockAfterMs, runDueUpkeep } from "../../../../src/server/nodes/lifecycle/upkeep.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { Answer, TestServer } from "../../../support/server.ts";
import {
  codeOf,
  confirm,
  downloadOf,
  makeKeys,
  nodeFrom,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../../support/nodes.ts";

const day = 86_400_000;
let server: TestServer;
let org: Organization;
let admin: string;

const { call, signInAgain } = useNumbered((made) => ({ server, org, admin } = made));

const remove = async ({ id }: { id: number }) => {
  const answer = await call("DELETE", `nodes/${id}/`);
  expect(answer.status).toBe(204);
};
const createPending = async (name: string) => nodeFrom(await call("POST", "nodes/", { name }));
const allow = async (id: number) => {
  const fields = { direction: "inbound", protocol: "tcp", ports: "443", target: { any: true } };
  const answer = await call("POST", "firewall_rules/", { ...fields, peer: { node: id } });
  expect(answer.status).toBe(201);
};
/** With an ordinary token, without a node.crt by default. */
const tryName = async (name: string, fields: Record<string, unknown> = {}): Promise<Answer> => {
  const { host_public_key } = await makeKeys();
  const registration_token = await registrationToken(server, org);
  return sendRegistration(server, org.slug, { name, host_public_key, registration_token, ...fields });
};
/** A node without node.crt: a node.crt would hold its name for days. */
const register = (name: string) => registerNode(server, org, name, { node_csr: undefined });
const configOf = async (node: RegisteredNode) => downloadOf(await node.download()).files["config.yml"];
const detailOf = (answer: Answer) => v.parse(ErrorBody, answer.json).detail;
const held = [409, "name_held"];

describe("a rule about a node", () => {
  test("contains its name for other nodes only while it is active", async () => {
    const peer = await register("peer");
    const planned = await createPending("db");
    await allow(planned.id);
    expect(await configOf(peer)).not.toContain('host: "db"');
    const version = await confirm(peer);
    const registration_token = await registrationToken(server, org, { node_id: planned.id });
    const node = await registerNode(server, org, "db", { registration_token });
    expect(await confirm(peer)).toBeGreaterThan(version);
    expect(await configOf(peer)).toContain('host: "db"');
    await remove(node);
    expect(await configOf(peer)).not.toContain('host: "db"');
  });

  test("disappears with a new version even if the node's certificate has expired", async () => {
    const [node, peer] = [await register("db"), await register("peer")];
    await allow(node.id);
    server.clock.ms += 91 * day;
    await signInAgain();
    expect(await configOf(peer)).toContain('host: "db"');
    const version = await confirm(peer);
    await remove(node);
    expect(codeOf(await tryName("db"))).toEqual(held);
    expect(await configOf(peer)).not.toContain('host: "db"');
    expect(await confirm(peer)).toBeGreaterThan(version);
    expect((await tryName("db")).status).toBe(201);
    expect(await configOf(peer)).not.toContain('host: "db"');
  });

  test("holds the name of a deleted pending node, since an earlier release rendered it", async () => {
    const peer = await register("peer");
    const [one, two] = [await createPending("one"), await createPending("two")];
    await allow(one.id);
    await allow(two.id);
    await confirm(peer);
    await remove(one);
    expect((await call("PATCH", `nodes/${two.id}/`, { name: "three" })).status).toBe(200);
    for (const name of ["one", "two"]) expect(codeOf(await tryName(name))).toEqual(held);
    await confirm(peer);
    for (const name of ["one", "two"]) expect((await tryName(name)).status).toBe(201);
  });
});

describe("a name that becomes free", () => {
  test("waits for every active node, and the error names these nodes", async () => {
    const [node, a, b] = [await register("db"), await register("a"), await register("b")];
    await remove(node);
    const refused = await tryName("db");
    expect(codeOf(refused)).toEqual(held);
    expect(detailOf(refused)).toMatch(/these nodes have confirmed the change: (a, b|b, a)\.$/);
    await confirm(a);
    expect(detailOf(await tryName("db"))).toEndWith("these nodes have confirmed the change: b.");
    await confirm(b);
    expect((await tryName("db")).status).toBe(201);
  });

  test("names five nodes at most", async () => {
    const node = await register("db");
    for (let at = 0; at < 7; at++) await register(`n${at}`);
    await remove(node);
    expect(detailOf(await tryName("db"))).toMatch(/change: (n\d, ){5}others\.$/);
  });

  test("does not wait for a node whose own certificate has expired", async () => {
    const away = await register("away");
    server.clock.ms += 30 * day;
    const node = await register("db");
    const peer = await register("peer");
    await signInAgain();
    await remove(node);
    await confirm(peer);
    expect(detailOf(await tryName("db"))).toContain(away.name);
    server.clock.ms += 61 * day;
    expect((await tryName("db")).status).toBe(201);
  });

  test("waits until the last node.crt of that name expires, and the error shows the date", async () => {
    const [node, peer] = [await registerNode(server, org, "db"), await register("peer")];
    await remove(node);
    await confirm(peer);
    const refused = await tryName("db");
    expect(codeOf(refused)).toEqual(held);
    const until = Date.parse(/ends at (\S+Z)\.$/.exec(detailOf(refused))?.[1] ?? "");
    expect(until - server.clock.ms).toBeWithin(6 * day, 7 * day + 1);
    server.clock.ms = until;
    expect((await tryName("db")).status).toBe(201);
  });

  test("by a rename, waits until the former certificate is blocked and all nodes have confirmed", async () => {
    const [node, peer] = [await register("db"), await register("peer")];
    expect((await call("PATCH", `nodes/${node.id}/`, { name: "old-db" })).status).toBe(200);
    await confirm(peer);
    expect(detailOf(await tryName("db"))).toEndWith("is blocked within 10 minutes.");
    // No rule names the node: its confirmation must not change all configurations at once.
    const version = await confirm(peer);
    await confirm(node);
    expect(await confirm(peer)).toBe(version);
    server.clock.ms += blockAfterMs;
    await runDueUpkeep(server.app.services);
    expect(detailOf(await tryName("db"))).toContain("peer");
    await confirm(peer);
    await confirm(node);
    expect((await tryName("db")).status).toBe(201);
  });

  test("by a rename of a node that a rule names, waits until the node has confirmed it, not longer", async () => {
    const [node, peer] = [await register("db"), await register("peer")];
    await allow(node.id);
    await confirm(peer);
    const version = await confirm(node);
    expect((await call("PATCH", `nodes/${node.id}/`, { name: "old-db" })).status).toBe(200);
    expect(await confirm(node)).toBeGreaterThan(version);
    expect(detailOf(await tryName("db"))).toContain("peer");
    await confirm(peer);
    await confirm(node);
    expect((await tryName("db")).status).toBe(201);
  });

  test("and rights that are removed after a rename are blocked as soon as the node confirms", async () => {
    const [node, peer] = [await register("db"), await register("peer")];
    await call("PATCH", `nodes/${node.id}/`, { groups: ["staff"] });
    await call("PATCH", `nodes/${node.id}/`, { name: "old-db" });
    const before = await confirm(peer);
    await call("PATCH", `nodes/${node.id}/`, { groups: [] });
    await confirm(node);
    expect(await confirm(peer)).toBeGreaterThan(before);
    const blocked = await server.db.all(
      "SELECT id FROM certificates WHERE node_id = $1 AND kind = 'overlay' AND state <> 'current' AND state <> 'blocked'",
      [node.id],
    );
    expect(blocked).toEqual([]);
  });

  test("of a pending node without a rule, is free at once", async () => {
    await register("peer");
    await remove(await createPending("spare"));
    expect((await tryName("spare")).status).toBe(201);
  });

  test("stays held even if a pending node has had it since", async () => {
    const [node] = [await register("db"), await register("peer")];
    await remove(node);
    await remove(await createPending("db"));
    expect(codeOf(await tryName("db"))).toEqual(held);
  });

  test("consumes no use of the token when it is refused", async () => {
    const [node] = [await register("db"), await register("peer")];
    await remove(node);
    const registration_token = await registrationToken(server, org, { uses: 1 });
    expect(codeOf(await tryName("db", { registration_token }))).toEqual(held);
    expect((await tryName("other", { registration_token })).status).toBe(201);
  });
});

describe("a held name is assigned at once", () => {
  test("by an administrator: to a machine, a pending node, or a node that is renamed", async () => {
    await register("peer");
    for (const name of ["x", "y", "z"]) await remove(await register(name));
    const { host_public_key } = await makeKeys();
    const body = { name: "x", host_public_key };
    expect((await sendRegistration(server, org.slug, body, { token: admin })).status).toBe(201);
    expect((await createPending("y")).state).toBe("pending");
    const other = await register("other");
    expect((await call("PATCH", `nodes/${other.id}/`, { name: "z" })).status).toBe(200);
  });

  test("by a token that is bound to it, which creates the pending node once", async () => {
    await register("peer");
    await remove(await register("db"));
    const bodies = [{ node_name: "db" }, { node_name: "db" }];
    const made = await Promise.all(bodies.map((body) => call("POST", "registration_tokens/", body)));
    expect(made.map(({ status }) => status)).toEqual([201, 201]);
    const ids = made.map(
      ({ json }) => v.parse(v.object({ node_id: v.number(), uses: v.literal(1) }), json).node_id,
    );
    expect(new Set(ids).size).toBe(1);
    const { token } = v.parse(v.object({ token: v.string() }), made[0]?.json);
    const taken = await tryName("whatever", { registration_token: token });
    expect(taken.status).toBe(201);
    expect(taken.json).toMatchObject({ node: { id: ids[0], name: "db" } });
    const refused = await call("POST", "registration_tokens/", { node_name: "db" });
    expect(refused).toMatchObject({
      status: 400,
      json: {
        detail: expect.stringContaining("The node db is registered already"),
        hint: expect.stringMatching(/revoke the node.*`agent register --replace`/),
      },
    });
    const byId = await call("POST", "registration_tokens/", { node_id: ids[0] });
    expect([byId.status, byId.text]).toEqual([400, expect.stringContaining("db is registered already")]);
    const unknown = await call("POST", "registration_tokens/", { node_id: 999_999 });
    expect([unknown.status, unknown.text]).toEqual([400, expect.stringContaining("no node with this id")]);
    const both = await call("POST", "registration_tokens/", { node_name: "db", node_id: ids[0] });
    expect(both.status).toBe(400);
  });

  test("to its former node: renamed back or restored", async () => {
    const [node] = [await register("db"), await register("peer")];
    for (const name of ["other", "db"]) {
      expect((await call("PATCH", `nodes/${node.id}/`, { name })).status).toBe(200);
    }
    expect(codeOf(await tryName("db"))).toEqual([409, "name_taken"]);
    expect(codeOf(await tryName("other"))).toEqual(held);
    await remove(node);
    expect(codeOf(await tryName("db"))).toEqual(held);
    expect((await call("POST", `nodes/${node.id}/restore/`, {})).status).toBe(200);
    expect(nodeFrom(await call("GET", `nodes/${node.id}/`)).name).toBe("db");
  });
});

describe("an address that becomes free", () => {
  const wish = async (name: string, ip_address: string) => (await tryName(name, { ip_address })).status;
  const pass = async (ms: number) => {
    server.clock.ms += ms;
    await runDueUpkeep(server.app.services);
  };
  const timeoutOf = async (node: RegisteredNode) =>
    /default_timeout: "(.*)"/.exec(await configOf(node))?.[1] ?? "";

  test("is held while a flow may be open, by the longest timeout of any node", async () => {
    const [node, peer] = [await register("db"), await register("peer")];
    const conntrack = { tcp_timeout: "2h", udp_timeout: "1s" };
    const body = { config_overrides: { firewall: { conntrack } } };
    expect((await call("PATCH", `nodes/${peer.id}/`, body)).status).toBe(200);
    await remove(node);
    await confirm(peer);
    const untilClosed = longestFlowMs([flowTimes({}), flowTimes({ firewall: { conntrack } })]);
    expect(untilClosed).toBe(7_560_000);
    await pass(untilClosed - 1);
    expect(await timeoutOf(peer)).toBe("10m");
    await pass(1);
    expect(await wish("c", node.ip)).toBe(409);
    await confirm(peer);
    expect(await wish("c", node.ip)).toBe(201);
  });

  test("waits until all nodes have a firewall section that differs from the one before", async () => {
    const nodes = [await register("db"), await register("cache")];
    const [peer, other] = [await register("peer"), await register("other")];
    for (const [at, node] of nodes.entries()) {
      await remove(node);
      for (const each of [...nodes.slice(at + 1), other, peer]) await confirm(each);
      const [version, timeout] = [await confirm(peer), await timeoutOf(peer)];
      await pass(longestFlowMs([flowTimes({})]));
      expect(await timeoutOf(peer)).not.toBe(timeout);
      expect(await timeoutOf(peer)).toBe(`${600_001 + at}ms`);
      expect(await confirm(peer)).toBeGreaterThan(version);
      expect(await wish("c", node.ip)).toBe(409);
      for (const each of [...nodes.slice(at + 1), other]) await confirm(each);
      // One version is enough: nothing changes until the next address becomes free.
      const last = await confirm(peer);
      await pass(longestFlowMs([flowTimes({})]));
      expect(await confirm(peer)).toBe(last);
      await signInAgain();
    }
    expect(await wish("c", nodes[0]?.ip ?? "")).toBe(201);
    expect(await wish("d", nodes[1]?.ip ?? "")).toBe(201);
  });
});
