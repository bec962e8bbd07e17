// An application that regroups nodes signs nothing: each node gets its certificate when it comes, and what it has lost is blocked
// whether it comes or not.

import { beforeEach, expect, test } from "bun:test";
import { runDueUpkeep } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { decodeBundle } from "../../../src/pki/bundle.ts";
import { fingerprint } from "../../../src/pki/nebula.ts";
import { exportOrganization } from "../../../src/server/import-export/export.ts";
import {
  blocklistOf,
  certificateOf,
  checkinOf,
  confirm,
  countOf,
  downloadOf,
  registerNode,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let web: RegisteredNode;
let other: RegisteredNode;
const { call, callNode, signInAgain } = useNumbered((made) => ({ server, org } = made));
beforeEach(async () => {
  web = await registerNode(server, org, "web");
  other = await registerNode(server, org, "other");
});

const apply = async (members: string) => {
  const answer = await call("POST", "policy/apply/", {
    policy: `groups: {db: {members: [${members}]}}`,
    prune: true,
  });
  expect([answer.status, answer.text]).toEqual([200, answer.text]);
};
const files = async (node: RegisteredNode) => downloadOf(await node.download());
const groupsIn = async (node: RegisteredNode) => certificateOf(await files(node), server.clock.ms).groups;
const certificates = (state = "%") =>
  countOf(
    server,
    `SELECT count(*) AS n FROM certificates WHERE org_id = $1 AND kind = 'overlay' AND state LIKE '${state}'`,
    org.id,
  );

test("nodes get their certificates when they come", async () => {
  const before = await certificates();
  await apply("node:web");
  expect(await certificates()).toBe(before);
  expect(checkinOf(await web.checkin({ config_version: 1 })).config_changed).toBe(true);
  expect(await groupsIn(web)).toEqual(["db"]);
  expect(await certificates()).toBe(before + 1);
  await apply("");
  expect(await certificates()).toBe(before + 1);
  expect(await groupsIn(web)).toEqual([]);
  expect(await groupsIn(other)).toEqual([]);
});

test("a certificate with a lost group is blocked when its node has the next one", async () => {
  await apply("node:web");
  const lost = fingerprint(certificateOf(await files(web), server.clock.ms));
  await apply("");
  expect(blocklistOf(await files(other))).toEqual([]);
  await files(web);
  await confirm(web);
  const blocked = blocklistOf(await files(other));
  expect(blocked).toContain(lost);
  expect(blocked).not.toContain(fingerprint(certificateOf(await files(web), server.clock.ms)));
});

test("a certificate with a lost group is blocked after ten minutes if its node does not come", async () => {
  await apply("node:web");
  const lost = fingerprint(certificateOf(await files(web), server.clock.ms));
  await apply("");
  server.clock.ms += 9 * 60_000;
  await runDueUpkeep(server.app.services);
  expect(blocklistOf(await files(other))).toEqual([]);
  server.clock.ms += 60_000;
  await runDueUpkeep(server.app.services);
  expect(blocklistOf(await files(other))).toContain(lost);
  // It gets another one as soon as it is back.
  expect(checkinOf(await web.checkin()).certificate_not_after > "2020").toBe(true);
  expect(await groupsIn(web)).toEqual([]);
  expect(blocklistOf(await files(web))).toContain(lost);
});

test("a group that comes back before the node does is certified, and the former certificate is blocked all the same", async () => {
  await apply("node:web");
  const lost = fingerprint(certificateOf(await files(web), server.clock.ms));
  await apply("");
  await apply("node:web");
  const again = await files(web);
  expect(certificateOf(again, server.clock.ms).groups).toEqual(["db"]);
  await confirm(web);
  expect(blocklistOf(await files(other))).toContain(lost);
});

test("a node without its next certificate is shown, previewed and exported", async () => {
  await apply("node:web");
  await files(web);
  await apply("");
  server.clock.ms += 11 * 60_000;
  await signInAgain();
  await runDueUpkeep(server.app.services);
  expect((await callNode("GET", web)).status).toBe(200);
  expect((await callNode("GET", web, "diff/")).status).toBe(200);
  const exported = await exportOrganization(server.app.services, org);
  const crt = exported.find(({ path }) => path === "nodes/web/host.crt")?.content ?? "";
  expect(decodeBundle(crt).map(({ groups }) => groups)).toEqual([[]]);
  expect(await certificates("current")).toBe(2);
});

test("a revoked node loses its groups, and gets no certificate", async () => {
  await apply("node:web");
  await files(web);
  expect((await callNode("DELETE", web)).status).toBe(204);
  const before = await certificates();
  await apply("");
  expect([(await web.download()).status, await certificates()]).toEqual([403, before]);
});

test("of a thousand nodes each is told, and those that the change does not concern are not", async () => {
  const sql = `INSERT INTO nodes (org_id, name, ip, state, groups, created_at) VALUES ($1, $2, $3, 'active', '["db"]', 0)`;
  await server.db.writeFor({ org: org.id }, async (tx) => {
    for (let at = 0; at < 1000; at++)
      await tx.run(sql, [org.id, `many-${at}`, `10.77.${50 + (at >> 8)}.${at & 255}`]);
  });
  const many = Array.from({ length: 1000 }, (_, at) => `node:many-${at}`).join();
  await apply(`${many}, node:web`);
  const version = await confirm(web);
  await files(web);
  const others = await confirm(other);
  // From here on both are answered from memory.
  expect(checkinOf(await web.checkin({ config_version: await confirm(web) })).config_changed).toBe(false);
  await apply("");
  expect(checkinOf(await web.checkin({ config_version: version })).config_changed).toBe(true);
  expect(checkinOf(await other.checkin({ config_version: others })).config_changed).toBe(false);
  expect(await groupsIn(web)).toEqual([]);
  expect(
    await countOf(server, "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND groups <> '[]'", org.id),
  ).toBe(0);
});
