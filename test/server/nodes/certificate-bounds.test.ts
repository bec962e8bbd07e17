// Limits of certificates per node and of the blocklist: what is refused, what is never refused, and which events announce it.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { clocksMayDifferMs } from "../../../src/protocol/finding-kinds.ts";
import { blocklistLimit, blocklistWarning } from "../../../src/protocol/download.ts";
import { limitCertificates, readBlocklist } from "../../../src/server/certificates/blocklist.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { writeMetrics } from "../../../src/server/metrics/metrics.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import type { Reader } from "../../../src/server/store/database.ts";
import { revokeNode } from "../../../src/server/nodes/lifecycle/revoke.ts";
import {
  blocklistOf,
  checkinOf,
  codeOf,
  confirm,
  countNodes,
  countOf,
  downloadOf,
  makeKeys,
  registerNode,
  registrationToken,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { addCertificates } from "../../support/many-certificates.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

// The tests write tens of thousands of rows.
setDefaultTimeout(120_000);

const day = 86_400_000;
let server: TestServer;
let org: Organization;

const { call, callNode } = useNumbered((made) => ({ server, org } = made));

const renew = (node: RegisteredNode) => callNode("POST", node, "renew_cert/", {});
const printOf = (node: RegisteredNode) =>
  decodeBundle(node.answer.config.files["host.crt"]).map(fingerprint).join();
const overlayOf = (node: RegisteredNode) =>
  countOf(server, "SELECT count(*) AS n FROM certificates WHERE node_id = $1 AND kind = 'overlay'", node.id);
const blockedBy = async (node: RegisteredNode) => blocklistOf(downloadOf(await node.download()));
const warnings = async () =>
  (
    await server.db.all(
      "SELECT after FROM events WHERE org_id = $1 AND type = 'blocklist.filling' ORDER BY id",
      [org.id],
    )
  ).map((row): unknown => JSON.parse(String(row["after"])));

describe("two hundred certificates of one node", () => {
  test("are the maximum for renewals on request, changes and restores", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await addCertificates(server, node, 198, "former");
    expect((await callNode("PATCH", node, "", { groups: ["a", "b"] })).status).toBe(200);
    for (const refused of [
      await renew(node),
      await callNode("PATCH", node, "", { groups: ["a", "b", "c"] }),
    ]) {
      expect(codeOf(refused)).toEqual([409, "too_many_certificates"]);
      expect(refused.text).toContain(`admin ca rotate ${org.slug}`);
    }
    expect(await overlayOf(node)).toBe(200);
    // Other nodes, and changes that sign nothing, still work.
    expect((await renew(peer)).status).toBe(200);
    expect((await callNode("PATCH", node, "", { public_ip: "203.0.113.7" })).status).toBe(200);
    // Rights can be removed, and the node can be revoked with all its certificates.
    expect((await callNode("PATCH", node, "", { groups: ["b"] })).status).toBe(200);
    expect((await callNode("DELETE", node)).status).toBe(204);
    expect(await blockedBy(peer)).toHaveLength(201);
    expect(codeOf(await callNode("POST", node, "restore/", {}))).toEqual([409, "too_many_certificates"]);
  });

  test("are counted beside a blocklist whose rows no certificate reads", async () => {
    const [node, peer] = [await registerNode(server, org, "web"), await registerNode(server, org, "peer")];
    await addCertificates(server, peer, 500, "blocked");
    const asked: string[] = [];
    const get: Reader["get"] = (sql, params) => (asked.push(sql), server.db.get(sql, params));
    await limitCertificates({ ...server.db, get }, org, { id: node.id, name: "web" }, server.clock.ms);
    const ofList = asked.filter((sql) => sql.includes("state = 'blocked'"));
    // Columns of the index certificates_blocked alone, and no other table.
    expect(ofList).toEqual([
      "SELECT count(*) AS n FROM certificates WHERE org_id = $1 AND state = 'blocked' AND not_after > $2",
    ]);
  });

  test("stop an organization from migrating between certificate versions repeatedly", async () => {
    const node = await registerNode(server, org, "web", { overlay_version: "1.11.0" });
    const move = (certificate_version: 1 | "both") => call("PATCH", "", { certificate_version });
    await confirm(node);
    await addCertificates(server, node, 198, "former");
    expect((await move("both")).status).toBe(200);
    // The certificates are signed when the node fetches its files.
    await node.download();
    await confirm(node);
    expect(await overlayOf(node)).toBe(201);
    expect(codeOf(await move(1))).toEqual([409, "too_many_certificates"]);
  });

  test("do not stop the server from renewing in time", async () => {
    const node = await registerNode(server, org, "web");
    await addCertificates(server, node, 300, "former");
    server.clock.ms += 65 * day;
    await node.checkin();
    const [renewed] = decodeBundle(downloadOf(await node.download()).files["host.crt"]);
    expect(renewed?.notAfter).toBe(server.clock.ms / 1000 + 90 * 86_400);
  });

  test("count until they expire", async () => {
    const node = await registerNode(server, org, "web");
    await addCertificates(server, node, 199, "former", server.clock.ms + 60_000);
    expect(codeOf(await renew(node))).toEqual([409, "too_many_certificates"]);
    server.clock.ms += 60_000 + clocksMayDifferMs;
    expect((await renew(node)).status).toBe(200);
  });

  test("do not count once their CA has left the bundle", async () => {
    const node = await registerNode(server, org, "web");
    await addCertificates(server, node, 200, "former");
    const other = await server.db.get(
      "SELECT id FROM authorities WHERE org_id = $1 AND kind = 'x509' LIMIT 1",
      [org.id],
    );
    await server.db.write(async (tx) => {
      const id = Number(other?.["id"]);
      await tx.run("UPDATE certificates SET authority_id = $2 WHERE node_id = $1 AND state = 'former'", [
        node.id,
        id,
      ]);
      await tx.run("UPDATE authorities SET private_key_sealed = '', retired_at = $2 WHERE id = $1", [
        id,
        server.clock.ms,
      ]);
      await tx.run("UPDATE nodes SET csr = NULL WHERE id = $1", [node.id]);
    });
    expect((await renew(node)).status).toBe(200);
  });
});

test("a CA that expires soon or has expired signs nothing at each check-in", async () => {
  const node = await registerNode(server, org, "web");
  await server.db.write((tx) => tx.run("UPDATE organizations SET rotation_auto = 0 WHERE id = $1", [org.id]));
  const row = await server.db.get(
    "SELECT not_after FROM authorities WHERE org_id = $1 AND kind = 'overlay'",
    [org.id],
  );
  const end = Number(row?.["not_after"]);
  server.clock.ms = end - 60 * day;
  await node.checkin();
  const signed = await overlayOf(node);
  for (const at of [end - 60_000, end - 30_000, end + 60_000, end + day]) {
    server.clock.ms = at;
    await node.checkin();
    await node.checkin();
  }
  expect(await overlayOf(node)).toBe(signed);
});

describe("a long blocklist", () => {
  test("is announced once at half of the limit, and again only after it was shorter", async () => {
    const names = ["old", "a", "b", "c", "d"] as const;
    const nodes = [];
    for (const name of names) nodes.push(await registerNode(server, org, name));
    const [old, a, b, c, d] = nodes as [
      RegisteredNode,
      RegisteredNode,
      RegisteredNode,
      RegisteredNode,
      RegisteredNode,
    ];
    const revoke = (node: RegisteredNode) => revokeNode(server.app.services, org, node.id, operator);
    await addCertificates(server, old, blocklistWarning - 2, "blocked", server.clock.ms + day);
    await revoke(a);
    expect(await warnings()).toEqual([]);
    await revoke(b);
    await revoke(c);
    expect(await warnings()).toEqual([{ entries: 50_000, mark: 50_000, limit: 100_000 }]);
    const metrics = (await writeMetrics(server.app.services)).split("\n");
    expect(metrics).toContain(`overlay_agent_blocklist_entries{organization="${org.slug}"} 50001`);
    expect(metrics).toContain("overlay_agent_blocklist_limit 100000");
    const authorities = await call("GET", "ca/");
    expect(authorities.json).toMatchObject({ blocklist: { entries: 50_001, limit: 100_000 } });
    // Entries that no clock may accept leave the list.
    server.clock.ms += day + clocksMayDifferMs;
    await revoke(d);
    expect(await blockedBy(old)).toHaveLength(4);
    const last = await registerNode(server, org, "last");
    await addCertificates(server, old, blocklistWarning, "blocked");
    await revoke(last);
    expect(await warnings()).toHaveLength(2);
  });

  test("stops registrations and changes, but never revocations", async () => {
    const [old, node] = [await registerNode(server, org, "old"), await registerNode(server, org, "node")];
    await addCertificates(server, old, 75_000, "blocked");
    const token = await registrationToken(server, org, { uses: 1 });
    const body = { name: "new", ...(await makeKeys()), registration_token: token };
    const nodes = await countNodes(server, org.id);
    expect(codeOf(await sendRegistration(server, org.slug, body))).toEqual([409, "too_many_certificates"]);
    expect(await countNodes(server, org.id)).toBe(nodes);
    expect(codeOf(await renew(node))).toEqual([409, "too_many_certificates"]);
    expect((await callNode("DELETE", node)).status).toBe(204);
    expect(await blockedBy(old)).toContain(printOf(node));
    // The refusal did not consume the token's only use.
    await server.db.write((tx) =>
      tx.run("DELETE FROM certificates WHERE node_id = $1 AND state = 'blocked'", [old.id]),
    );
    expect((await sendRegistration(server, org.slug, body)).status).toBe(201);
  });

  test("stops a migration between certificate versions, which renews all nodes", async () => {
    const node = await registerNode(server, org, "web", { overlay_version: "1.11.0" });
    await confirm(node);
    const old = await registerNode(server, org, "old");
    await addCertificates(server, old, 75_000, "blocked");
    expect((await callNode("DELETE", old)).status).toBe(204);
    const answer = await call("PATCH", "", { certificate_version: "both" });
    expect(codeOf(answer)).toEqual([409, "too_many_certificates"]);
    expect(answer.text).toContain("has 75000 entries or more");
  });

  test("is truncated at the limit, so that nodes still get a configuration that they can load", async () => {
    const [old, node] = [await registerNode(server, org, "old"), await registerNode(server, org, "node")];
    await addCertificates(server, old, blocklistLimit, "blocked");
    expect((await callNode("DELETE", node)).status).toBe(204);
    const answer = downloadOf(await old.download());
    expect(blocklistOf(answer)).toHaveLength(blocklistLimit);
    // A new revocation displaces entries of a node that is not revoked.
    expect(blocklistOf(answer)).toContain(printOf(node));
    expect(answer.files["config.yml"].length).toBeLessThan(8 * 1024 * 1024);
    expect((await warnings()).at(-1)).toEqual({ entries: 100_001, mark: 100_000, limit: 100_000 });
    expect(checkinOf(await old.checkin()).config_version).toBe(answer.config_version);
  });

  test("keeps revoked nodes longest, and of these the certificates that expire last", async () => {
    const [member, gone] = [
      await registerNode(server, org, "member"),
      await registerNode(server, org, "gone"),
    ];
    const now = server.clock.ms;
    await addCertificates(server, member, 2, "blocked", now + 80 * day);
    await addCertificates(server, gone, 1, "blocked", now + 10 * day);
    await addCertificates(server, gone, 1, "blocked", now + 5 * day);
    await addCertificates(server, gone, 1, "blocked", now + 20 * day);
    expect((await callNode("DELETE", gone)).status).toBe(204);
    const list = (warning: number, limit: number) =>
      readBlocklist(server.db, org.id, now, { warning, limit });
    const all = await list(6, 6);
    expect(all).toHaveLength(6);
    const [present = "", , , tenDays = "", fiveDays = "", twentyDays = ""] = all;
    expect(present).toBe(printOf(gone));
    expect(await list(1, 4)).toEqual([present, tenDays, fiveDays, twentyDays]);
    expect(await list(1, 3)).toEqual([present, tenDays, twentyDays]);
    expect(await list(1, 2)).toEqual([present, twentyDays]);
    expect(await list(1, 1)).toEqual([present]);
  });

  test("omits certificates of CAs that have left the bundle once it is long", async () => {
    const [gone, node] = [await registerNode(server, org, "gone"), await registerNode(server, org, "node")];
    expect((await callNode("DELETE", gone)).status).toBe(204);
    await server.db.write((tx) =>
      tx.run("UPDATE authorities SET private_key_sealed = '', retired_at = $2 WHERE org_id = $1", [
        org.id,
        server.clock.ms,
      ]),
    );
    const list = (warning: number) =>
      readBlocklist(server.db, org.id, server.clock.ms, { warning, limit: 100 });
    expect(await list(2)).toEqual([printOf(gone)]);
    expect(await list(1)).toEqual([]);
    expect(node.id).toBeGreaterThan(gone.id);
  });
});
