// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import { AppError } from "../../../../src/base/errors.ts";
import { decodeBundle } from "../../../../src/pki/bundle.ts";
import { fingerprint } from "../../../../src/pki/nebula.ts";
import { verifyOrder } from "../../../../src/pki/signed-messages.ts";
import { ErrorBody } from "../../../../src/protocol/error-body.ts";
import { operator } from "../../../../src/server/audit/record.ts";
import { deleteOrganization } from "../../../../src/server/organizations/organizations.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { flowTimes, longestFlowMs } from "../../../../src/server/config/flow-timeout.ts";
import { restoreNode } from "../../../../src/server/nodes/lifecycle/restore.ts";
import { blockAfterMs, runDueUpkeep } from "../../../../src/server/nodes/lifecycle/upkeep.ts";
import { raiseConfigVersion } from "../../../../src/server/store/versions.ts";
import { failureOf } from "../../store/cases.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { TestServer } from "../../../support/server.ts";
import {
  blocklistOf,
  certificateOf,
  checkinOf,
  confirm,
  downloadOf,
  makeKeys,
  nodeFrom,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../../support/nodes.ts";

let server: TestServer;
let org: Organization;
let admin: string;
let count: number;

const { call, callNode, signInAgain } = useNumbered((made) => ({ server, org, admin, count } = made));

const revoke = (node: RegisteredNode) => callNode("DELETE", node);
const restore = (node: RegisteredNode) => callNode("POST", node, "restore/", {});
const errorOf = (answer: { json: unknown }) => v.parse(ErrorBody, answer.json);
const printOf = (node: RegisteredNode) =>
  decodeBundle(node.answer.config.files["host.crt"]).map(fingerprint).join();
/** Until open flows have ended, and these nodes have confirmed the version that makes engines check them again. */
const passFlows = async (...confirming: RegisteredNode[]) => {
  server.clock.ms += longestFlowMs([flowTimes({})]);
  await runDueUpkeep(server.app.services);
  for (const each of confirming) await confirm(each);
  await runDueUpkeep(server.app.services);
  // The administrator's access token has expired.
  await signInAgain();
};
const blockedBy = async (node: RegisteredNode) => blocklistOf(downloadOf(await node.download()));
const wish = async (name: string, ip_address: string) => {
  const registration_token = await registrationToken(server, org);
  const body = { name, ip_address, ...(await makeKeys()), registration_token };
  return (await sendRegistration(server, org.slug, body)).status;
};

describe("a revoked node", () => {
  test("is named as revoked to whoever revokes or changes it once more", async () => {
    const node = await registerNode(server, org, "laptop");
    expect((await revoke(node)).status).toBe(204);
    for (const answer of [await revoke(node), await callNode("PATCH", node, "", { name: "desk" })])
      expect(errorOf(answer)).toMatchObject({ code: "not_found", detail: "The node laptop is revoked." });
  });

  test("is cut off although the order key was changed by hand, and is told why no order comes", async () => {
    const node = await registerNode(server, org, "laptop");
    const change = (text: string) =>
      server.db.write((tx) =>
        tx.run("UPDATE organizations SET order_key_sealed = $1 WHERE id = $2", [text, org.id]),
      );
    const row = await server.db.get("SELECT order_key_sealed FROM organizations WHERE id = $1", [org.id]);
    await change("{}");
    expect((await revoke(node)).status).toBe(204);
    const blocked = "SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND state = 'blocked'";
    expect(await server.db.get(blocked, [node.id])).toEqual({ n: 1 });
    expect(errorOf(await node.checkin({}))).toMatchObject({
      code: "conflict",
      detail: expect.stringContaining("cannot be read"),
      hint: expect.anything(),
    });
    await change(String(row?.["order_key_sealed"]));
    expect(errorOf(await node.checkin({}))).toMatchObject({ code: "node_revoked", order: expect.anything() });
  });

  test("gets its order although the disk is full", async () => {
    const node = await registerNode(server, org, "laptop");
    expect((await revoke(node)).status).toBe(204);
    const { db } = server;
    const { writeFor } = db;
    db.writeFor = async () => {
      throw new AppError("storage_unavailable", "The disk is full");
    };
    const answer = errorOf(await node.checkin({}));
    db.writeFor = writeFor;
    expect(answer).toMatchObject({ code: "node_revoked", order: expect.anything() });
  });

  test("gets the order and no certificate if it is revoked while its new node.crt is signed", async () => {
    const node = await registerNode(server, org, "web");
    expect((await callNode("PATCH", node, "", { name: "renamed" })).status).toBe(200);
    const { db } = server;
    const { writeFor } = db;
    // The renewal writes first: the revocation is inserted before it.
    db.writeFor = async (concern, work) => {
      db.writeFor = writeFor;
      await revoke(node);
      return db.writeFor(concern, work);
    };
    const answer = await node.download();
    expect([answer.status, answer.json]).toEqual([403, expect.objectContaining({ code: "node_revoked" })]);
    expect(Object(answer.json).order).toEqual(expect.any(String));
    const issued = await db.all("SELECT id FROM certificates WHERE node_id = $1 AND kind = 'x509'", [
      node.id,
    ]);
    expect(issued).toHaveLength(1);
    expect(server.log.filter((line) => line.includes(`cannot be renewed node=${node.id} `))).toEqual([]);
  });

  test("gets its order even if its configuration is too large, which is logged once", async () => {
    const node = await registerNode(server, org, "web");
    await server.db.write(async (tx) => {
      const overrides = { preferred_ranges: Array<string>(210_000).fill("10.0.0.0/8") };
      await tx.run("UPDATE organizations SET config_overrides = $1 WHERE id = $2", [
        JSON.stringify(overrides),
        org.id,
      ]);
      await raiseConfigVersion(tx, org.id);
    });
    for (let round = 0; round < 2; round++) {
      const answer = await node.download();
      expect([answer.status, errorOf(answer).code]).toEqual([413, "payload_too_large"]);
      expect(errorOf(answer).detail).toStartWith("The configuration of web is too large: it has 210");
    }
    expect(server.log.filter((line) => line.includes("A configuration is too large"))).toHaveLength(1);
    expect(checkinOf(await node.checkin({ config_version: 1 })).config_changed).toBe(true);
    await revoke(node);
    const refused = errorOf(await node.checkin());
    const order = await verifyOrder(refused.order ?? "", node.answer.config.order_key);
    expect(order).toMatchObject({ action: "revoke", node_id: node.id });
  });

  test("is on the blocklist of every other node until no clock may accept its certificate", async () => {
    const [node, peer] = [await registerNode(server, org, "lost"), await registerNode(server, org, "peer")];
    expect((await revoke(node)).status).toBe(204);
    expect((await revoke(node)).status).toBe(404);
    expect(await blockedBy(peer)).toEqual([printOf(node)]);
    expect(await blockedBy(await registerNode(server, org, "later"))).toEqual([printOf(node)]);
    server.clock.ms += 90 * 86_400_000 + 230_000;
    await registerNode(server, org, "hub", { is_relay: true });
    expect(await blockedBy(peer)).toEqual([printOf(node)]);
    server.clock.ms += 20_000;
    await registerNode(server, org, "hub2", { is_relay: true });
    expect(await blockedBy(peer)).toEqual([]);
  });

  test("is blocked with all its unexpired certificates, former ones too", async () => {
    const [node, peer] = [await registerNode(server, org, "lost"), await registerNode(server, org, "peer")];
    await callNode("POST", node, "renew_cert/", {});
    const second = certificateOf(downloadOf(await node.download()), server.clock.ms);
    await revoke(node);
    expect((await blockedBy(peer)).toSorted()).toEqual([printOf(node), fingerprint(second)].toSorted());
  });

  test("gets a signed order from both of its endpoints, at any later time", async () => {
    const node = await registerNode(server, org, "lost");
    await revoke(node);
    server.clock.ms += 400 * 86_400_000;
    const key = node.answer.config.order_key;
    for (const answer of [await node.checkin(), await node.download()]) {
      expect(answer.status).toBe(403);
      const { code, order = "" } = errorOf(answer);
      expect(code).toBe("node_revoked");
      expect(await verifyOrder(order, key)).toMatchObject({
        action: "revoke",
        node_id: node.id,
        org: org.slug,
      });
    }
  });

  test("gets no certificate from any endpoint", async () => {
    const node = await registerNode(server, org, "lost");
    await revoke(node);
    const count = async () =>
      Number(
        (await server.db.get("SELECT count(*) AS n FROM certificates WHERE org_id = $1", [org.id]))?.["n"],
      );
    const before = await count();
    expect(errorOf(await callNode("POST", node, "renew_cert/", {})).code).toBe("node_revoked");
    expect((await callNode("PATCH", node, "", { groups: ["web"] })).status).toBe(404);
    expect((await callNode("GET", node, "config/")).status).toBe(403);
    server.clock.ms += 80 * 86_400_000;
    await node.download();
    await node.checkin();
    await sendRegistration(server, org.slug, { name: "lost", ...node.keys }, { token: admin });
    expect(await count()).toBe(before);
  });

  test("frees its name for a bound token at once, its address when every active node has confirmed", async () => {
    const node = await registerNode(server, org, "lost");
    const [a, b] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    await revoke(node);
    expect(await wish("lost", "10.77.0.99")).toBe(409);
    const registration_token = await registrationToken(server, org, { node_name: "lost" });
    const successor = await registerNode(server, org, "lost", { registration_token });
    expect(await wish("c", node.ip)).toBe(409);
    await confirm(a);
    expect(await wish("c", node.ip)).toBe(409);
    const seen = checkinOf(await b.checkin()).config_version;
    // It has the files, but its engine has not shown the reload.
    await b.checkin({ config_version: seen, overlay_state: "running" });
    expect(await wish("c", node.ip)).toBe(409);
    await b.checkin({ config_version: seen, overlay_state: "running", confirmed_config_version: seen });
    expect(await wish("c", node.ip)).toBe(409);
    // The node that took the name is not waited for: it started with the blocklist.
    await passFlows();
    expect(await wish("c", node.ip)).toBe(409);
    await passFlows(a, b);
    expect(await wish("c", node.ip)).toBe(409);
    await passFlows(successor);
    expect(await wish("c", node.ip)).toBe(201);
  });

  test("frees its address when its certificate expires, even if nodes are silent", async () => {
    const node = await registerNode(server, org, "lost");
    await registerNode(server, org, "silent");
    await revoke(node);
    server.clock.ms += 91 * 86_400_000;
    await runDueUpkeep(server.app.services);
    expect(await wish("c", node.ip)).toBe(409);
    await passFlows();
    expect(await wish("c", node.ip)).toBe(201);
  });

  test("is listed with the nodes that have confirmed it", async () => {
    const node = await registerNode(server, org, "lost");
    const [a, b] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
    await revoke(node);
    const list = async () => (await call("GET", "revocations/")).json;
    const common = { node_id: node.id, name: "lost", total: 2, by: `admin-${count}@example.org` };
    expect(await list()).toMatchObject([{ ...common, applied: 0, waiting_for: [a.id, b.id] }]);
    await confirm(b);
    expect(await list()).toMatchObject([{ ...common, applied: 1, waiting_for: [a.id] }]);
    await confirm(a);
    expect(await list()).toMatchObject([{ ...common, applied: 2, waiting_for: [] }]);
  });
});

test("revocations are paged, and name at most a hundred nodes that they wait for", async () => {
  const [first, second] = [await registerNode(server, org, "x1"), await registerNode(server, org, "x2")];
  await revoke(first);
  await revoke(second);
  await server.db.write((tx) =>
    tx.run(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120)
       INSERT INTO nodes (org_id, name, ip, state, created_at)
       SELECT $1, 'n' || i, '10.77.9.' || i, 'active', 0 FROM n`,
      [org.id],
    ),
  );
  const page = (query: string) => call("GET", `revocations/${query}`);
  const answer = await page("?page=2&page_size=1");
  expect([answer.status, answer.headers.get("X-Total-Count")]).toEqual([200, "2"]);
  expect(answer.headers.get("Link")).toContain('rel="prev"');
  expect(answer.json).toMatchObject([{ node_id: second.id, applied: 0, total: 120 }]);
  const named = v.parse(v.array(v.object({ waiting_for: v.array(v.number()) })), answer.json);
  expect(named.map((each) => each.waiting_for.length)).toEqual([100]);
  expect((await page("?search=X1")).json).toMatchObject([{ node_id: first.id }]);
});

describe("a restored node", () => {
  test("stays revoked for an administrator who was removed while the request waited", async () => {
    const node = await registerNode(server, org, "ours");
    await revoke(node);
    const removed = { kind: "person", id: 0, ip: null } as const;
    const restoring = restoreNode(server.app.services, org, node.id, removed);
    expect(await failureOf(restoring)).toMatchObject({ code: "permission_denied" });
    expect((await node.checkin()).status).toBe(403);
  });

  test("routes its subnet again, beside another router", async () => {
    const node = await registerNode(server, org, "router");
    const other = await registerNode(server, org, "other");
    const patch = async ({ id }: { id: number }, subnets: string[]) =>
      (await callNode("PATCH", { id }, "", { subnets })).status;
    expect(await patch(node, ["192.168.5.0/024"])).toBe(200);
    await revoke(node);
    expect(await patch(other, ["192.168.5.0/24"])).toBe(200);
    expect((await restore(node)).json).toMatchObject({ subnets: ["192.168.5.0/24"] });
  });

  test("gets a higher order and a new certificate, and the old one stays blocked", async () => {
    const [node, peer] = [await registerNode(server, org, "lost"), await registerNode(server, org, "peer")];
    const key = node.answer.config.order_key;
    await revoke(node);
    const revoked = await verifyOrder(errorOf(await node.checkin()).order ?? "", key);
    const answer = await restore(node);
    expect(nodeFrom(answer)).toMatchObject({
      id: node.id,
      state: "active",
      ip_address: node.ip,
      revoked_at: null,
    });
    const told = checkinOf(await node.checkin({ config_version: 1 }));
    const order = await verifyOrder(told.order ?? "", key);
    expect(order).toMatchObject({ action: "restore", node_id: node.id });
    expect(order.seq).toBeGreaterThan(revoked.seq);
    const certificate = certificateOf(downloadOf(await node.download()), server.clock.ms);
    // Issued in the same second as the blocked one, which would have the same fingerprint.
    expect(fingerprint(certificate)).not.toBe(printOf(node));
    expect(await blockedBy(peer)).toEqual([printOf(node)]);
    expect(await blockedBy(node)).toEqual([printOf(node)]);
    expect(checkinOf(await node.checkin({ config_version: told.config_version })).order).toBeUndefined();
  });

  test("gets a higher order each time even if the clock stands still", async () => {
    const node = await registerNode(server, org, "lost");
    const key = node.answer.config.order_key;
    const seqs: number[] = [];
    for (let round = 0; round < 3; round++) {
      await revoke(node);
      seqs.push((await verifyOrder(errorOf(await node.checkin()).order ?? "", key)).seq);
      await restore(node);
      seqs.push(
        (await verifyOrder(checkinOf(await node.checkin({ config_version: 1 })).order ?? "", key)).seq,
      );
    }
    expect(seqs).toEqual([...new Set(seqs)].toSorted((a, b) => a - b));
    expect(seqs[0]).toBeGreaterThanOrEqual(server.clock.ms);
  });

  test("is refused if its name or address is taken, or if it was not revoked", async () => {
    const node = await registerNode(server, org, "lost");
    expect((await restore(node)).status).toBe(409);
    await revoke(node);
    const registration_token = await registrationToken(server, org, { node_name: "lost" });
    const successor = await registerNode(server, org, "lost", { registration_token });
    expect((await restore(node)).status).toBe(409);
    await revoke(successor);
    await runDueUpkeep(server.app.services);
    await passFlows();
    expect(await wish("owner", node.ip)).toBe(201);
    expect((await restore(node)).status).toBe(409);
  });
});

describe("a right that a new certificate no longer grants", () => {
  const patch = (node: RegisteredNode, body: unknown) => callNode("PATCH", node, "", body);

  test("removing a group blocks the former certificate when the node has confirmed the new one", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await patch(node, { groups: ["web", "db"] });
    const wide = certificateOf(downloadOf(await node.download()), server.clock.ms);
    await confirm(node);
    expect(await blockedBy(peer)).toEqual([]);
    await patch(node, { groups: ["web"] });
    expect(await blockedBy(peer)).toEqual([]);
    await confirm(node);
    // The first certificate granted no group; it is blocked with the rest.
    expect((await blockedBy(peer)).toSorted()).toEqual([printOf(node), fingerprint(wide)].toSorted());
    expect(certificateOf(downloadOf(await node.download()), server.clock.ms).groups).toEqual(["web"]);
  });

  test("removing a group blocks it after ten minutes if the node stays silent", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await patch(node, { name: "renamed" });
    server.clock.ms += blockAfterMs - 1;
    await runDueUpkeep(server.app.services);
    expect(await blockedBy(peer)).toEqual([]);
    server.clock.ms += 1;
    await runDueUpkeep(server.app.services);
    expect(await blockedBy(peer)).toEqual([printOf(node)]);
  });

  test("further changes do not postpone the block of a certificate that waits for it", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await patch(node, { name: "renamed-0" });
    for (let round = 1; round <= 3; round++) {
      server.clock.ms += blockAfterMs / 3;
      await patch(node, { name: `renamed-${round}` });
    }
    await runDueUpkeep(server.app.services);
    expect(await blockedBy(peer)).toEqual([printOf(node)]);
  });

  test("adding a group, an override or a renewal blocks nothing", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await patch(node, { groups: ["web"] });
    await patch(node, { config_overrides: { tun: { mtu: 1400 } } });
    await callNode("POST", node, "renew_cert/", {});
    await confirm(node);
    server.clock.ms += blockAfterMs;
    await runDueUpkeep(server.app.services);
    expect(await blockedBy(peer)).toEqual([]);
  });

  test("a new address holds the former one until all nodes have confirmed", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    const answer = await patch(node, { ip_address: "10.77.9.9" });
    expect(nodeFrom(answer).ip_address).toBe("10.77.9.9");
    const files = downloadOf(await node.download());
    expect(certificateOf(files, server.clock.ms).networks).toEqual(["10.77.9.9/16"]);
    const { X509Certificate } = await import("node:crypto");
    expect(new X509Certificate(files.files["node.crt"] ?? "").checkIP("10.77.9.9")).toBe("10.77.9.9");
    expect(await wish("c", node.ip)).toBe(409);
    await confirm(node);
    expect(await wish("c", node.ip)).toBe(409);
    await confirm(peer);
    await confirm(node);
    expect(await wish("c", node.ip)).toBe(409);
    await passFlows(peer, node);
    expect(await wish("c", node.ip)).toBe(201);
  });
});

test("a restored node brings its groups back that were deleted meanwhile", async () => {
  const registration_token = await registrationToken(server, org, { groups: ["web"], uses: 1 });
  const node = await registerNode(server, org, "a", { registration_token });
  expect((await callNode("PATCH", node, "", { exit_groups: ["travel"] })).status).toBe(200);
  expect((await revoke(node)).status).toBe(204);
  const groups = async () =>
    v.parse(v.array(v.object({ name: v.string() })), (await call("GET", "groups/")).json);
  for (const name of ["web", "travel"]) expect((await call("DELETE", `groups/${name}/`)).status).toBe(204);
  expect(await groups()).toEqual([]);
  expect((await restore(node)).status).toBe(200);
  expect((await groups()).map(({ name }) => name).sort()).toEqual(["travel", "web"]);
});

test("after an organization is deleted, no node can register or be restored", async () => {
  const doomed = await Promise.all(
    Array.from({ length: 20 }, async (_, turns) => {
      const gone = await server.organization(`doomed-${turns}`);
      await server.join(gone, `admin-${count}@example.org`, "admin");
      const node = await registerNode(server, gone, "first");
      await server.send("DELETE", `/api/org/${gone.slug}/nodes/${node.id}/`, { token: admin });
      return { gone, node, keys: await makeKeys() };
    }),
  );
  for (const [turns, { gone, node, keys }] of doomed.entries()) {
    const coming = sendRegistration(server, gone.slug, { name: "late", ...keys }, { token: admin });
    const path = `/api/org/${gone.slug}/nodes/${node.id}/restore/`;
    const back = server.send("POST", path, { token: admin, body: {} });
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    await deleteOrganization(server.app.services, gone, operator);
    await Promise.all([coming, back]);
    const alive = "SELECT name FROM nodes WHERE org_id = $1 AND state <> 'revoked'";
    expect([turns, await server.db.all(alive, [gone.id])]).toEqual([turns, []]);
  }
});
