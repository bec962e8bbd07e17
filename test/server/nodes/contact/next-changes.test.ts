// What the next configuration of a node changes: its present files are those that it was sent and said it had applied.

import { NextChanges } from "../../../../src/api/nodes.ts";
import { expect, test } from "bun:test";
import * as v from "valibot";
import { deleteEnded } from "../../../../src/server/retention/ended-records.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { checkinOf, codeOf, downloadOf, registerNode, type RegisteredNode } from "../../../support/nodes.ts";
import { useNumbered } from "../../../support/numbered.ts";
import type { TestServer } from "../../../support/server.ts";

let server: TestServer;
let org: Organization;
const { call, callNode, configVersion } = useNumbered((made) => ({ server, org } = made));

const diffOf = async (node: { id: number }) =>
  v.parse(NextChanges, (await callNode("GET", node, "diff/")).json);
async function addRule(port: number, target: unknown = { any: true }): Promise<void> {
  const rule = { direction: "inbound", protocol: "tcp", ports: String(port), peer: { any: true } };
  expect((await call("POST", "firewall_rules/", { ...rule, target })).status).toBe(201);
}
/** Downloads as the agent does. */
const download = async (node: RegisteredNode) => downloadOf(await node.download());
/** Downloads, and reports that the version is applied. */
async function apply(node: RegisteredNode): Promise<void> {
  const { config_version } = await download(node);
  checkinOf(await node.checkin({ config_version }));
}
const countConfigs = async () =>
  Number((await server.db.get("SELECT count(*) AS n FROM sent_configs WHERE org_id = $1", [org.id]))?.["n"]);

test("a node that is up to date gets no changes, and one that was away gets the added rule", async () => {
  const node = await registerNode(server, org, "web");
  await node.checkin({ config_version: node.answer.config.config_version });
  expect(await diffOf(node)).toMatchObject({ name: "web", is_known: true, changes: [] });
  await addRule(8443);
  const found = await diffOf(node);
  expect(found).toMatchObject({
    is_known: true,
    is_renewal_due: false,
    applied_config_version: node.answer.config.config_version,
    config_version: await configVersion(),
  });
  expect(found.changes.map(({ file }) => file)).toEqual(["config.yml"]);
  const lines = (found.changes[0]?.diff ?? "").split("\n");
  expect(lines.filter((line) => line.startsWith("+"))).toEqual(
    expect.arrayContaining([expect.stringContaining("8443")]),
  );
  expect(lines.filter((line) => line.startsWith("-"))).toEqual([]);
  await apply(node);
  expect(await diffOf(node)).toMatchObject({ is_known: true, changes: [] });
});

test("a change that leaves the files alone changes nothing, whatever the version", async () => {
  const node = await registerNode(server, org, "web");
  await node.checkin({ config_version: node.answer.config.config_version });
  await call("POST", "groups/", { name: "others" });
  await addRule(8443, { group: "others" });
  const found = await diffOf(node);
  expect(found.config_version).toBeGreaterThan(found.applied_config_version ?? 0);
  expect(found).toMatchObject({ is_known: true, changes: [] });
});

test("a node that downloaded files and did not apply them is compared with what it had before", async () => {
  const node = await registerNode(server, org, "web");
  const { config_version: first } = node.answer.config;
  await node.checkin({ config_version: first });
  await addRule(8443);
  await download(node);
  await addRule(9443);
  const since = new Date(Math.trunc(server.clock.ms / 1000) * 1000).toISOString();
  server.clock.ms += 60_000;
  // It refused the last files: it still says the first version, also when it asks for the next ones.
  await node.checkin({ config_version: first });
  await download(node);
  const { changes, not_applied_since } = await diffOf(node);
  expect(Date.parse(not_applied_since ?? "")).toBe(Date.parse(since));
  for (const port of [8443, 9443]) expect(changes[0]?.diff).toMatch(new RegExp(`^\\+.*${port}`, "m"));
  await apply(node);
  expect(await diffOf(node)).toMatchObject({ changes: [], not_applied_since: null });
});

test("a node that kept its files, because the control plane has them again, is not taken to have those between", async () => {
  const node = await registerNode(server, org, "web");
  const { config_version: first } = node.answer.config;
  const etag = (await node.download()).headers.get("etag") ?? "";
  await node.checkin({ config_version: first });
  await addRule(8443);
  await download(node);
  // It refused them.
  await node.checkin({ config_version: first });
  const rules = v.parse(v.array(v.object({ id: v.number() })), (await call("GET", "firewall_rules/")).json);
  const id = rules.at(-1)?.id;
  expect((await call("DELETE", `firewall_rules/${id}/`)).status).toBe(204);
  expect((await node.download(etag)).status).toBe(304);
  await addRule(9443);
  const lines = ((await diffOf(node)).changes[0]?.diff ?? "").split("\n");
  expect(lines.filter((line) => /^[-+].*443/.test(line))).toEqual([expect.stringMatching(/^\+.*9443/)]);
  await download(node);
  expect((await diffOf(node)).changes[0]?.diff).not.toContain("8443");
});

test("new certificates and blocked ones are shown without their text", async () => {
  const [node, lost] = [await registerNode(server, org, "web"), await registerNode(server, org, "lost")];
  await apply(node);
  await callNode("PATCH", node, "", { groups: ["blue"] });
  await callNode("DELETE", lost);
  const { changes } = await diffOf(node);
  expect(changes.map(({ file }) => file)).toEqual(["config.yml", "other files"]);
  expect(changes[0]?.diff).toContain("-  # blocklist: 0 certificates");
  expect(changes[0]?.diff).toContain("+  # blocklist: 1 certificates");
  expect(changes[1]?.diff).toMatch(/^-host\.crt: version 1, fingerprint [0-9a-f]{64}/m);
  expect(changes[1]?.diff).toMatch(/^\+host\.crt: version 1, fingerprint [0-9a-f]{64}/m);
  expect(JSON.stringify(changes)).not.toContain("BEGIN");
});

test("it is not guessed what a node has: after a restore, or before the first report", async () => {
  const node = await registerNode(server, org, "web");
  expect(await diffOf(node)).toMatchObject({ is_known: false, applied_config_version: null, changes: [] });
  await apply(node);
  await server.db.write((tx) => tx.run("DELETE FROM sent_files WHERE node_id = $1", [node.id]));
  expect(await diffOf(node)).toMatchObject({ is_known: true, changes: [] });
  await addRule(8443);
  expect(await diffOf(node)).toMatchObject({ is_known: false, changes: [] });
});

test("a download by an administrator does not count as the node's", async () => {
  const node = await registerNode(server, org, "web");
  await apply(node);
  await addRule(8443);
  const sentAt = async () =>
    (await server.db.get("SELECT version FROM sent_files WHERE node_id = $1", [node.id]))?.["version"];
  const before = await sentAt();
  expect((await callNode("GET", node, "download_config/")).status).toBe(200);
  expect(await sentAt()).toBe(before);
  await node.checkin({ config_version: (await configVersion()) - 1 });
  expect((await diffOf(node)).changes[0]?.diff).toContain("8443");
});

test("a download waits for its own note alone, so that notes of many nodes share a commit", async () => {
  const [first, other] = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
  const { sentFiles } = server.app.services;
  const { note } = sentFiles;
  const released = Promise.withResolvers<undefined>();
  const began = Promise.withResolvers<undefined>();
  sentFiles.note = async (node, files) => {
    if (node.id === first.id) began.resolve(undefined);
    if (node.id === first.id) await released.promise;
    return note(node, files);
  };
  const waiting = download(first);
  await began.promise;
  await download(other);
  released.resolve(undefined);
  await waiting;
  sentFiles.note = note;
});

test("a configuration that is too long to keep is named without a diff", async () => {
  const node = await registerNode(server, org, "web");
  await apply(node);
  const config_version = await configVersion();
  const outline = { configDigest: "long", config: async () => "x".repeat(300_000), others: "" };
  const sent = { id: node.id, orgId: org.id, appliedConfigVersion: config_version };
  await server.app.services.sentFiles.note(sent, { configVersion: config_version, outline });
  await addRule(8443);
  expect((await diffOf(node)).changes).toContainEqual({ file: "config.yml", diff: null });
  await apply(node);
  expect(await diffOf(node)).toMatchObject({ changes: [] });
});

test("nodes of the same kind share a configuration, and unused ones are deleted after a day", async () => {
  const nodes = [await registerNode(server, org, "a"), await registerNode(server, org, "b")];
  for (const node of nodes) await apply(node);
  expect(await countConfigs()).toBe(1);
  for (const port of [8443, 9443]) {
    await addRule(port);
    for (const node of nodes) await apply(node);
  }
  expect(await countConfigs()).toBe(3);
  await deleteEnded(server.app.services, 1000, () => false);
  expect(await countConfigs()).toBe(3);
  server.clock.ms += 2 * 86_400_000;
  await deleteEnded(server.app.services, 1000, () => false);
  // The present one, and the one before it, to which a node goes back if it refuses the present one.
  expect(await countConfigs()).toBe(2);
});

test("nodes that are not registered or revoked are refused with their codes", async () => {
  const made = await call("POST", "nodes/", { name: "later" });
  expect(codeOf(await callNode("GET", made.json as { id: number }, "diff/"))).toEqual([409, "conflict"]);
  const node = await registerNode(server, org, "web");
  await callNode("DELETE", node);
  expect(codeOf(await callNode("GET", node, "diff/"))).toEqual([403, "node_revoked"]);
  expect(codeOf(await callNode("GET", { id: 999_999 }, "diff/"))).toEqual([404, "not_found"]);
});
