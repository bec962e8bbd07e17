// Long polls: check-ins that wait for a change, and the events that end them.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { heapStats } from "bun:jsc";
import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ErrorBody } from "../../../src/protocol/error-body.ts";
import { paths } from "../../support/paths.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { deleteOrganization } from "../../../src/server/organizations/organizations.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { createServiceToken } from "../../../src/server/users/service-tokens.ts";
import { maxPollsPerNode } from "../../../src/server/config/held-polls.ts";
import { useNumbered } from "../../support/numbered.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { checkinOf, codeOf, registerNode, type RegisteredNode } from "../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;

const { callNode, configVersion, parked, showNode } = useNumbered((made) => ({ server, org, admin } = made));

/** Set in the process that measures memory. */
const measuring = "TEST_MEASURING";

const patch = (node: RegisteredNode, body: unknown) => callNode("PATCH", node, "", body);

describe("a held check-in", () => {
  test("of a node that refused the newest version waits for a newer one", async () => {
    const node = await registerNode(server, org, "web");
    const hub = await registerNode(server, org, "hub");
    const change = (public_ip: string) => patch(hub, { is_lighthouse: true, public_ip });
    await change("192.0.2.6");
    const applied = await configVersion();
    await change("192.0.2.7");
    const refused = await configVersion();
    // An agent learns from the answer that it may ask so.
    const told = checkinOf(await node.checkin({ config_version: applied }, { wait: 55 }));
    expect(told).toMatchObject({ config_changed: true, config_version: refused, holds_refused: true });
    const poll = node.checkin({ config_version: applied, refused_config_version: refused }, { wait: 55 });
    expect(await Promise.race([poll, Bun.sleep(300).then(() => "held")])).toBe("held");
    await change("192.0.2.8");
    expect(checkinOf(await poll)).toMatchObject({ config_changed: true, config_version: refused + 1 });
  });

  test("does not wait for a client that has already disconnected", async () => {
    // Timers never end here, so a waiting poll would never be answered.
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
        "Content-Length": "51",
      },
      body: JSON.stringify({ version: "1", uptime: 1, config_version }),
    });
    Object.defineProperty(request, "signal", { value: AbortSignal.abort() });
    expect((await timeless.app.fetch(request, { addressOf: () => "" })).status).toBe(200);
  });

  test("ends at once with a change of the organization", async () => {
    const node = await registerNode(server, org, "web");
    const version = await configVersion();
    const poll = node.checkin({ config_version: version }, { wait: 55 });
    await parked(node);
    expect((await showNode(node)).online).toBe(true);
    await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    expect(checkinOf(await poll)).toMatchObject({ config_changed: true, config_version: version + 1 });
  });

  test("ends after its time without a change, and at once if the version already differs", async () => {
    const node = await registerNode(server, org, "web");
    const held = node.checkin({ config_version: await configVersion() }, { wait: 1 });
    expect(checkinOf(await held)).toMatchObject({ config_changed: false });
    expect(checkinOf(await node.checkin({ config_version: 0 }, { wait: 55 })).config_changed).toBe(true);
  });

  test.each([
    ["with news", () => registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" })],
    ["with a revocation", (node: RegisteredNode) => callNode("DELETE", node)],
  ])("that ends %s reveals nothing to a caller without rights", async (_, end) => {
    const node = await registerNode(server, org, "web");
    const config_version = await configVersion();
    const body = { version: "1.0.0", uptime: 7, config_version };
    const maker = { userId: null, actor: operator };
    const request = { name: "watch", role: "admin" } as const;
    const { id, token } = await createServiceToken(server.app.services, org, request, maker);
    const foreign = server.send("POST", paths.checkin(org.slug, node.id), {
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

  const inMemory = "keeps no request body in memory while it waits";
  test(inMemory, async () => {
    if (process.env[measuring] === "1") return measure();
    // What other tests left to be collected would count: a process of its own runs this one.
    const argv = [process.execPath, "test", "--timeout=60000", import.meta.path, "-t", inMemory];
    const child = Bun.spawn(argv, { env: { ...process.env, [measuring]: "1" }, stderr: "pipe" });
    const [output, status] = await Promise.all([new Response(child.stderr).text(), child.exited]);
    expect({ output, status }).toEqual({ output: expect.stringContaining(" 1 pass\n"), status: 0 });
  });

  async function measure(): Promise<void> {
    const node = await registerNode(server, org, "web");
    const config_version = await configVersion();
    const body = { config_version, more: `\u2026${"x".repeat(64_000)}` };
    // 128 KB as text; the copy that this test keeps has the same size.
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
  }

  test("a renewal wakes only its own node", async () => {
    const [node, other] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    const config_version = await configVersion();
    const poll = node.checkin({ config_version }, { wait: 55 });
    const foreign = other.checkin({ config_version }, { wait: 2 });
    await Promise.all([parked(node), parked(other)]);
    const renewed = await callNode("POST", node, "renew_cert/", {});
    expect(renewed.status).toBe(200);
    const answer = checkinOf(await poll);
    expect(answer.config_changed).toBe(true);
    expect(answer.config_version).toBeGreaterThan(config_version);
    expect(checkinOf(await foreign)).toMatchObject({ config_changed: false, config_version });
    // Later changes wake both.
    await registerNode(server, org, "hub", { is_relay: true });
    for (const each of [node, other])
      expect(checkinOf(await each.checkin({ config_version: answer.config_version })).config_changed).toBe(
        true,
      );
  });

  test("ends with the order when the node is revoked", async () => {
    const node = await registerNode(server, org, "web");
    const poll = node.checkin({ config_version: await configVersion() }, { wait: 55 });
    await parked(node);
    await callNode("DELETE", node);
    const answer = await poll;
    expect(answer.status).toBe(403);
    expect(v.parse(ErrorBody, answer.json)).toMatchObject({
      code: "node_revoked",
      order: expect.any(String),
    });
  });

  test("beyond 32 polls of one node the oldest is answered", async () => {
    const node = await registerNode(server, org, "web");
    const config_version = await configVersion();
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
    const poll = node.checkin({ config_version: await configVersion() }, { wait: 55 });
    await parked(node);
    await deleteOrganization(server.app.services, org, operator);
    const { code, order = "none" } = v.parse(ErrorBody, (await poll).json);
    expect([code, order.split(".").length]).toEqual(["node_revoked", 3]);
    expect(v.parse(ErrorBody, (await node.checkin()).json).order).toBe(order);
  });

  test("a change by another process wakes it within a second", async () => {
    // test/e2e/postgres.test.ts tests replicas on PostgreSQL with separate processes.
    if (server.db.dialect !== "sqlite") return;
    const node = await registerNode(server, org, "web");
    const config_version = await configVersion();
    const poll = node.checkin({ config_version }, { wait: 55 });
    await parked(node);
    const { openSqlite } = await import("../../../src/server/store/sqlite/sqlite.ts");
    const { raiseConfigVersion } = await import("../../../src/server/store/versions.ts");
    const list = await server.db.all("PRAGMA database_list");
    const visitor = await openSqlite({ path: String(list[0]?.["file"]), now: Date.now, role: "visitor" });
    await visitor.write((tx) => raiseConfigVersion(tx, org.id));
    await visitor.close();
    expect(checkinOf(await poll).config_changed).toBe(true);
  });
});
