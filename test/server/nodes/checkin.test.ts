import { heapStats } from "bun:jsc";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../src/protocol.ts";
import { operator } from "../../../src/server/operation/events.ts";
import type { Organization } from "../../../src/server/policy/organizations.ts";
import { deleteOrganization } from "../../../src/server/policy/organizations.ts";
import { createServiceToken } from "../../../src/server/people/service-tokens.ts";
import { maxPollsPerNode } from "../../../src/server/config/changes.ts";
import { makeNumbered } from "../../support/people.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import {
  certificateOf,
  checkinOf,
  codeOf,
  confirm,
  downloadOf,
  nodeFrom,
  registerNode,
  type RegisteredNode,
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

const path = (node: RegisteredNode, rest = "") => `/api/org/${org.slug}/nodes/${node.id}/${rest}`;
const patch = (node: RegisteredNode, body: unknown) =>
  server.send("PATCH", path(node), { token: admin, body });
const show = async (node: RegisteredNode) => nodeFrom(await server.send("GET", path(node), { token: admin }));
const orgVersion = async () =>
  Number(
    (await server.db.get("SELECT config_version AS n FROM organizations WHERE id = $1", [org.id]))?.["n"],
  );
/** Until the poll is parked: the request has read everything that it reads before. */
const parked = async (node: RegisteredNode) => {
  while (!server.app.services.changes.isHeld(org.id, node.id)) await Bun.sleep(1);
  await Bun.sleep(5);
};

describe("a check-in", () => {
  test("says what the node should know, and is written within a second", async () => {
    const node = await registerNode(server, org, "web");
    const answer = checkinOf(
      await node.checkin({ config_version: 1, overlay_state: "running", future: { more: 1 } }),
    );
    expect(answer).toMatchObject({ config_version: await orgVersion(), config_changed: false });
    const certificate = certificateOf(node.answer.config, server.clock.ms);
    expect(Date.parse(answer.certificate_not_after)).toBe(certificate.notAfter * 1000);
    expect(await show(node)).toMatchObject({ online: true, state: "active" });
    await Bun.sleep(900);
    expect(await show(node)).toMatchObject({ agent_version: "1.0.0", applied_config_version: 1 });
    server.clock.ms += 151_000;
    expect(await show(node)).toMatchObject({ online: false });
  });

  test("a version that differs, in either direction, is a change", async () => {
    const node = await registerNode(server, org, "web");
    const now = await orgVersion();
    for (const [config_version, config_changed] of [
      [now, false],
      [now + 5, true],
      [0, true],
    ] as const)
      expect(checkinOf(await node.checkin({ config_version }))).toMatchObject({
        config_changed,
        config_version: now,
      });
  });

  test("is for admins and the node itself", async () => {
    const node = await registerNode(server, org, "web");
    const other = await registerNode(server, org, "other");
    const body = { version: "1", uptime: 1 };
    const send = async (token: string) =>
      (await server.send("POST", path(node, "checkin/"), { token, body })).status;
    expect(await send(admin)).toBe(200);
    expect(await send(other.token)).toBe(403);
    expect((await node.checkin({ uptime: -1 })).status).toBe(400);
  });

  test("is written once, the last of each field, also where the node changes before the writing", async () => {
    const node = await registerNode(server, org, "web");
    const written = async () =>
      server.db.get("SELECT * FROM sightings WHERE node_id = $1", [node.id]).then((row) => ({ ...row }));
    const isWritten = async () => {
      while (!sameTime((await written())["last_checkin_at"], server.clock.ms)) await Bun.sleep(20);
    };
    const sameTime = (value: unknown, ms: number) => Number(value) === ms;
    server.clock.ms += 1000;
    await node.checkin({ version: "1.0.1", uptime: 1, overlay_state: "running", config_version: 1 });
    expect((await patch(node, { name: "web-2" })).status).toBe(200);
    expect(await show(node)).toMatchObject({ agent_version: "1.0.1", applied_config_version: 1 });
    server.clock.ms += 1000;
    await node.checkin({ version: "1.0.2", uptime: 2 });
    await isWritten();
    const last = { reported_version: "1.0.2", overlay_state: "running" };
    expect(await written()).toMatchObject(last);
    expect(Number((await written())["uptime"])).toBe(2);
    expect(Number((await written())["applied_config_version"])).toBe(1);
    // Its files alone say nothing of it but that it has them.
    const { headers } = await node.download();
    server.clock.ms += 1000;
    const same = await node.download(headers.get("etag") ?? "");
    expect(same.status).toBe(304);
    await isWritten();
    expect(await written()).toMatchObject(last);
    const { applied_config_version: applied } = await written();
    expect(String(applied)).toBe(same.headers.get("x-config-version") ?? "");
  });

  test("is written where memory was emptied between two of one node, and what was said counts before that", async () => {
    const node = await registerNode(server, org, "web");
    const version = await orgVersion();
    const state = async () =>
      server.db.get("SELECT * FROM sightings WHERE node_id = $1", [node.id]).then((row) => ({ ...row }));
    server.clock.ms += 1000;
    await node.checkin({ uptime: 1, overlay_state: "running", config_version: version });
    // News of it alone, before anything is written: it has the version that it named, not the new one.
    await node.checkin({ overlay_version: "1.9.9" });
    const { config_version, config_changed } = checkinOf(await node.checkin({ overlay_version: "1.9.9" }));
    expect([config_version, config_changed]).toEqual([version + 1, true]);
    await server.db.write((tx) => tx.notify("auth", "organization 0"));
    await node.checkin({ uptime: 3, overlay_version: "1.9.9" });
    while (Number((await state())["uptime"]) !== 3) await Bun.sleep(20);
    expect(await state()).toMatchObject({ overlay_state: "running", reported_version: "1.0.0" });
    expect(Number((await state())["applied_config_version"])).toBe(version);
  });

  test("with a number that no database holds is refused: it would keep all other reports from being written", async () => {
    const node = await registerNode(server, org, "web");
    for (const field of ["uptime", "config_version", "confirmed_config_version"])
      expect([field, (await node.checkin({ [field]: 1e300 })).status]).toEqual([field, 400]);
    expect((await node.checkin({ uptime: Number.MAX_SAFE_INTEGER })).status).toBe(200);
  });
});

describe("a held check-in", () => {
  test("is not held for who has hung up before it", async () => {
    // Nothing ends by itself: a poll that is held is never answered.
    const sleep = (_ms: number, signal?: AbortSignal) =>
      new Promise<void>((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
    await using timeless = await makeTestServer({ network: { sleep } });
    const node = await registerNode(timeless, await timeless.organization("acme"), "web");
    const { config_version } = checkinOf(await node.checkin());
    const request = new Request(`https://control.example/api/org/acme/nodes/${node.id}/checkin/`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${node.token}`,
        "Content-Type": "application/json",
        Prefer: "wait=55",
      },
      body: JSON.stringify({ version: "1", uptime: 1, config_version }),
    });
    Object.defineProperty(request, "signal", { value: AbortSignal.abort() });
    expect((await timeless.app.fetch(request, { addressOf: () => "" })).status).toBe(200);
  });

  test("ends with the change of the organization, in the same second", async () => {
    const node = await registerNode(server, org, "web");
    const version = await orgVersion();
    const poll = node.checkin({ config_version: version }, { wait: 55 });
    await parked(node);
    expect((await show(node)).online).toBe(true);
    await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    expect(checkinOf(await poll)).toMatchObject({ config_changed: true, config_version: version + 1 });
  });

  test("ends by itself without news, and at once where the version differs already", async () => {
    const node = await registerNode(server, org, "web");
    const held = node.checkin({ config_version: await orgVersion() }, { wait: 1 });
    expect(checkinOf(await held)).toMatchObject({ config_changed: false });
    expect(checkinOf(await node.checkin({ config_version: 0 }, { wait: 55 })).config_changed).toBe(true);
  });

  test.each([
    ["with news", () => registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" })],
    ["with a revocation", (node: RegisteredNode) => server.send("DELETE", path(node), { token: admin })],
  ])("that ends %s tells nothing to who may not ask any more", async (_, end) => {
    const node = await registerNode(server, org, "web");
    const config_version = await orgVersion();
    const body = { version: "1.0.0", uptime: 7, config_version };
    const maker = { userId: null, actor: operator };
    const request = { name: "watch", role: "admin" } as const;
    const { id, token } = await createServiceToken(server.app.services, org, request, maker);
    const foreign = server.send("POST", path(node, "checkin/"), {
      token,
      body,
      headers: { Prefer: "wait=55" },
    });
    await parked(node);
    const own = node.checkin({ config_version }, { wait: 55 });
    const tokens = `/api/org/${org.slug}/service_tokens/`;
    expect((await server.send("DELETE", `${tokens}${id}/`, { token: admin })).status).toBe(204);
    await end(node);
    expect(codeOf(await foreign)).toEqual([401, "token_not_valid"]);
    expect([200, 403]).toContain((await own).status);
  });

  test("keeps no body while it is held", async () => {
    const node = await registerNode(server, org, "web");
    const config_version = await orgVersion();
    const body = { config_version, more: `\u2026${"x".repeat(64_000)}` };
    // As text it has 128 KB; what was sent is kept by this test, and has as much.
    const used = () => {
      Bun.gc(true);
      return heapStats().heapSize;
    };
    const before = used();
    const polls = Array.from({ length: 32 }, () => node.checkin(body, { wait: 55 }));
    await parked(node);
    await Bun.sleep(50);
    const grown = used() - before;
    await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    await Promise.all(polls);
    expect(grown).toBeLessThan(32 * 200_000);
  });

  test("a renewal wakes its own node alone", async () => {
    const [node, other] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const config_version = await orgVersion();
    const poll = node.checkin({ config_version }, { wait: 55 });
    const foreign = other.checkin({ config_version }, { wait: 2 });
    await Promise.all([parked(node), parked(other)]);
    const renewed = await server.send("POST", path(node, "renew_cert/"), { token: admin, body: {} });
    expect(renewed.status).toBe(200);
    const answer = checkinOf(await poll);
    expect(answer.config_changed).toBe(true);
    expect(answer.config_version).toBeGreaterThan(config_version);
    expect(checkinOf(await foreign)).toMatchObject({ config_changed: false, config_version });
    // Later changes are news for both.
    await registerNode(server, org, "hub", { is_relay: true });
    for (const each of [node, other])
      expect(checkinOf(await each.checkin({ config_version: answer.config_version })).config_changed).toBe(
        true,
      );
  });

  test("ends with the order when the node is revoked", async () => {
    const node = await registerNode(server, org, "web");
    const poll = node.checkin({ config_version: await orgVersion() }, { wait: 55 });
    await parked(node);
    await server.send("DELETE", path(node), { token: admin });
    const answer = await poll;
    expect(answer.status).toBe(403);
    expect(v.parse(ErrorBody, answer.json)).toMatchObject({
      code: "node_revoked",
      order: expect.any(String),
    });
  });

  test("beyond 32 polls of a node the oldest is answered", async () => {
    const node = await registerNode(server, org, "web");
    const config_version = await orgVersion();
    const first = node.checkin({ config_version }, { wait: 55 });
    await parked(node);
    const more = Array.from({ length: maxPollsPerNode }, () =>
      node.checkin({ config_version }, { wait: 55 }),
    );
    expect(checkinOf(await first).config_changed).toBe(false);
    await server.app.services.db.write((tx) => tx.notify("organization", String(org.id)));
    await patch(node, { groups: ["woken"] });
    for (const each of await Promise.all(more)) expect(checkinOf(each).config_changed).toBe(true);
  });

  test("ends when the organization is deleted, with a signed order", async () => {
    const node = await registerNode(server, org, "web");
    const poll = node.checkin({ config_version: await orgVersion() }, { wait: 55 });
    await parked(node);
    await deleteOrganization(server.app.services, org, operator);
    const { code, order = "none" } = v.parse(ErrorBody, (await poll).json);
    expect([code, order.split(".").length]).toEqual(["node_revoked", 3]);
    expect(v.parse(ErrorBody, (await node.checkin()).json).order).toBe(order);
  });

  test("what another process changed in the database wakes it within a second", async () => {
    // Replicas on PostgreSQL have a test of their own, with processes of their own (test/e2e/postgres.test.ts).
    if (server.db.dialect !== "sqlite") return;
    const node = await registerNode(server, org, "web");
    const config_version = await orgVersion();
    const poll = node.checkin({ config_version }, { wait: 55 });
    await parked(node);
    const { openSqlite } = await import("../../../src/server/store/sqlite.ts");
    const { raiseConfigVersion } = await import("../../../src/server/config/versions.ts");
    const list = await server.db.all("PRAGMA database_list");
    const visitor = await openSqlite({ path: String(list[0]?.["file"]), now: Date.now, role: "visitor" });
    await visitor.write((tx) => raiseConfigVersion(tx, org.id));
    await visitor.close();
    expect(checkinOf(await poll).config_changed).toBe(true);
  });
});

describe("download_config", () => {
  test("304 for whom nothing changed, with the version that it has now", async () => {
    const node = await registerNode(server, org, "web");
    const first = await node.download();
    const etag = first.headers.get("etag") ?? "";
    const { config_version } = downloadOf(first);
    // A rule about another node raises the version for all.
    const other = await registerNode(server, org, "other");
    await server.db.write(async (tx) => {
      await tx.run(
        `INSERT INTO firewall_rules (org_id, direction, protocol, ports, peer, target, created_at)
         VALUES ($1, 'inbound', 'tcp', '22', '{"any":true}', $2, 0)`,
        [org.id, JSON.stringify({ node: other.id })],
      );
      const { raiseConfigVersion } = await import("../../../src/server/config/versions.ts");
      await raiseConfigVersion(tx, org.id);
    });
    for (const tag of [etag, `W/${etag}`, `"x", ${etag}`]) {
      const same = await node.download(tag);
      expect([same.status, same.text]).toEqual([304, ""]);
      expect(same.headers.get("x-config-version")).toBe(String(config_version + 1));
    }
    expect((await other.download(etag)).status).toBe(200);
    expect(downloadOf(await other.download()).files["config.yml"]).toContain('port: "22"');
  });

  test("as an archive it holds the same files", async () => {
    const node = await registerNode(server, org, "web");
    const request = new Request(`https://control.example${path(node, "download_config/?format=tar")}`, {
      headers: { Authorization: `Bearer ${node.token}` },
    });
    const response = await server.app.fetch(request, { addressOf: () => "192.0.2.1" });
    const archive = new Bun.Archive(await response.bytes());
    const files = await archive.files();
    const { files: expected } = downloadOf(await node.download());
    expect([...files.keys()].toSorted()).toEqual(Object.keys(expected).toSorted());
    expect(await files.get("config.yml")?.text()).toBe(expected["config.yml"]);
  });

  test("a new engine gets other keys, and only that node is told", async () => {
    const [node, other] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const config_version = await orgVersion();
    expect(checkinOf(await node.checkin({ config_version, overlay_version: "1.6.1" })).config_changed).toBe(
      false,
    );
    expect(checkinOf(await node.checkin({ config_version, overlay_version: "1.11.0" })).config_changed).toBe(
      true,
    );
    expect(downloadOf(await node.download()).files["config.yml"]).toContain("tunnels:");
    expect(checkinOf(await other.checkin({ config_version })).config_changed).toBe(false);
    expect(downloadOf(await other.download()).files["config.yml"]).not.toContain("tunnels:");
  });
});

describe("renewal", () => {
  const days = (n: number) => n * 86_400_000;

  test("happens by itself at two thirds of life, and blocks nothing", async () => {
    const node = await registerNode(server, org, "web");
    const before = certificateOf(node.answer.config, server.clock.ms);
    let version = await confirm(node);
    server.clock.ms += days(57);
    // node.crt lives a week: it is renewed, the overlay's is not.
    version = checkinOf(await node.checkin({ config_version: version })).config_version;
    expect(certificateOf(downloadOf(await node.download()), server.clock.ms).notAfter).toBe(before.notAfter);
    server.clock.ms += days(6);
    expect(checkinOf(await node.checkin({ config_version: version })).config_changed).toBe(true);
    const after = certificateOf(downloadOf(await node.download()), server.clock.ms);
    expect(after.notAfter).toBeGreaterThan(before.notAfter);
    expect(after.publicKey).toEqual(before.publicKey);
    const blocked = await server.db.all(
      "SELECT id FROM certificates WHERE org_id = $1 AND state = 'blocked'",
      [org.id],
    );
    expect(blocked).toEqual([]);
  });

  test("a node that comes back after its certificate's end gets a new one with its token alone", async () => {
    const node = await registerNode(server, org, "web");
    server.clock.ms += days(200);
    const fresh = certificateOf(downloadOf(await node.download()), server.clock.ms);
    expect(fresh.notAfter * 1000).toBeGreaterThan(server.clock.ms + days(80));
    const late = await registerNode(server, org, "late");
    server.clock.ms += days(100);
    const answer = checkinOf(await late.checkin({ config_version: 1 }));
    expect(Date.parse(answer.certificate_not_after)).toBeGreaterThan(server.clock.ms + days(80));
  });

  test("no certificate outlives its CA", async () => {
    server.clock.ms += days(600);
    const fresh = await server.organization(`fresh-${count}`);
    server.clock.ms += days(700);
    const node = await registerNode(server, fresh, "web");
    const ca = await server.db.get("SELECT max(not_after) AS n FROM authorities WHERE org_id = $1", [
      fresh.id,
    ]);
    expect(certificateOf(node.answer.config, server.clock.ms).notAfter * 1000).toBe(Number(ca?.["n"]));
  });

  test("two that ask at once get one renewal", async () => {
    const node = await registerNode(server, org, "web");
    server.clock.ms += days(80);
    await Promise.all([node.download(), node.download(), node.checkin(), node.checkin()]);
    const row = await server.db.get(
      "SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND kind = 'overlay'",
      [node.id],
    );
    expect(Number(row?.["n"])).toBe(2);
  });
});

test("a probe to an address that nothing can be sent to does not keep the check-in from its answer", async () => {
  const node = await registerNode(server, org, "web");
  const probe = { port: 4242, nonce: "nonce" };
  expect((await node.checkin({ probe }, { address: "255.255.255.255" })).status).toBe(200);
});

test("a probe is one datagram to where the request came from, six a minute", async () => {
  const got: string[] = [];
  const socket = await Bun.udpSocket({
    hostname: "127.0.0.1",
    socket: { data: (_socket, data) => void got.push(data.toString()) },
  });
  const node = await registerNode(server, org, "web");
  for (let at = 0; at < 9; at++) {
    const probe = { port: socket.port, nonce: `nonce-${at}` };
    expect((await node.checkin({ probe }, { address: "127.0.0.1" })).status).toBe(200);
  }
  const tooLong = { port: socket.port, nonce: "x".repeat(33) };
  expect((await node.checkin({ probe: tooLong }, { address: "127.0.0.1" })).status).toBe(400);
  await Bun.sleep(50);
  socket.close();
  expect(got).toEqual(Array.from({ length: 6 }, (_, at) => `nonce-${at}`));
});
