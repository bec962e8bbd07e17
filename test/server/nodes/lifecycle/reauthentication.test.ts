// Users who confirm every N days that their nodes are theirs: who is told when, what a confirmation changes, and what ends.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { NodeDue } from "../../../../src/api/enrollments.ts";
import { afterEach, beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { watchSilence } from "../../../../src/server/nodes/contact/silence.ts";
import { listDue, reauthenticate } from "../../../../src/server/nodes/lifecycle/reauthentication.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { confirmationIn } from "../../../../src/protocol/confirmation.ts";
import { signInBrowser } from "../../../support/browser-session.ts";
import { addApp } from "../../../support/factors.ts";
import { checkinOf, codeOf, downloadOf, registerNode, type RegisteredNode } from "../../../support/nodes.ts";
import { makeAcme } from "../../../support/people.ts";
import { makeTestServer, type TestServer } from "../../../support/server.ts";

const day = 86_400_000;
const ada = "ada@example.org";
let server: TestServer;
let acme: Organization;
let laptop: RegisteredNode;
let start = 0;

beforeEach(async () => {
  server = await makeTestServer({ accessLifetimeS: 400 * 86_400 });
  ({ acme } = await makeAcme(server));
  await server.person(ada);
  await server.join(acme, ada, "member");
  await registerNode(server, acme, "server");
  laptop = await ownedBy(ada, "laptop");
  start = server.clock.ms;
  await patch({ reauthenticate_days: 30 });
});
afterEach(() => server[Symbol.asyncDispose]());

const owner = () => signInBrowser(server);
const patch = async (body: object) => {
  const answer = await (await owner()).send("PATCH", "/api/org/acme/", { body });
  expect(answer.status).toBe(200);
};
async function ownedBy(email: string, name: string): Promise<RegisteredNode> {
  const node = await registerNode(server, acme, name);
  const path = `/api/org/acme/nodes/${node.id}/transfer/`;
  expect((await (await owner()).send("POST", path, { body: { owner: email } })).status).toBe(200);
  return node;
}
/** One turn of this loop, and of the one that notes that a server looked. */
const work = async () => {
  await reauthenticate(server.app.services);
  await watchSilence(server.app.services, server.clock.ms);
};
/** No server is up until then. */
const away = async (days: number) => {
  server.clock.ms = start + days * day;
  await work();
};
/** The server is up. */
const after = async (days: number) => {
  for (let at = (server.clock.ms - start) / day; at < days;) await away((at = Math.min(days, at + 0.9)));
};
const confirm = async (email = ada, { id }: { id: number } = laptop) =>
  (await signInBrowser(server, email)).send("POST", `/api/org/acme/nodes/${id}/reauthenticate/`);
const listed = async (email: string) => {
  const answer = await (await signInBrowser(server, email)).send("GET", "/api/org/acme/reauthentications/");
  return v.parse(v.array(NodeDue), answer.json);
};
const stateOf = async ({ id }: { id: number } = laptop) =>
  (await server.db.get("SELECT state FROM nodes WHERE id = $1", [id]))?.["state"];
const events = async () => {
  const sql = "SELECT type FROM events WHERE type LIKE 'node.reauth%' OR type = 'node.revoked' ORDER BY id";
  return (await server.db.all(sql)).map(({ type }) => type);
};

test("a user is told once, 7 days before the end; without a confirmation the node is cut off at the end", async () => {
  await after(22.9);
  expect([await events(), await listed(ada)]).toEqual([[], []]);
  await after(23);
  await after(23.1);
  expect(await events()).toEqual(["node.reauthentication_due"]);
  const due = { node_id: laptop.id, name: "laptop", until: new Date(start + 30 * day).toISOString() };
  expect(await listed(ada)).toMatchObject([
    { ...due, until: expect.stringContaining(due.until.slice(0, 16)) },
  ]);
  await after(29.9);
  expect(await stateOf()).toBe("active");
  await after(30);
  expect([await stateOf(), await events()]).toEqual([
    "revoked",
    ["node.reauthentication_due", "node.revoked"],
  ]);
  expect(codeOf(await laptop.checkin())).toEqual([403, "node_revoked"]);
  expect(await listed("owner@example.org")).toEqual([]);
});

test("a confirmation begins another period, and changes neither certificate nor configuration", async () => {
  await after(23);
  // The certificate may be due for renewal by now.
  await laptop.checkin();
  const { config_version: version } = checkinOf(await laptop.checkin());
  const before = downloadOf(await laptop.download());
  expect((await confirm()).status).toBe(204);
  expect(await listed(ada)).toEqual([]);
  expect(checkinOf(await laptop.checkin()).config_version).toBe(version);
  expect(downloadOf(await laptop.download()).files).toEqual(before.files);
  await after(45.9);
  expect(await events()).toEqual(["node.reauthentication_due", "node.reauthenticated"]);
  await after(46);
  await after(52.9);
  expect([await stateOf(), (await events()).at(-1)]).toEqual(["active", "node.reauthentication_due"]);
  await after(53);
  expect(await stateOf()).toBe("revoked");
});

test("nodes of the organization, and organizations without the setting, are left alone", async () => {
  const other = await server.organization("other", "10.78.0.0/16");
  const theirs = await registerNode(server, other, "theirs");
  await server.db.write((tx) => tx.run("UPDATE nodes SET owner_id = 1 WHERE id = $1", [theirs.id]));
  await after(400);
  await after(408);
  const live = await server.db.all("SELECT name FROM nodes WHERE state = 'active' ORDER BY name");
  expect(live.map(({ name }) => name)).toEqual(["server", "theirs"]);
});

test("nobody is cut off less than 7 days after being told: a server that was away, a shorter time, a new setting", async () => {
  await away(300);
  expect([await stateOf(), await events()]).toEqual(["active", ["node.reauthentication_due"]]);
  await after(306.9);
  expect(await stateOf()).toBe("active");
  const [due] = await listDue(server.app.services, acme, undefined);
  expect(Date.parse(due?.until ?? "")).toBeGreaterThanOrEqual(start + 307 * day - 1000);
  await confirm();
  await after(316);
  await patch({ reauthenticate_days: 8 });
  await after(316.9);
  expect((await events()).filter((type) => type === "node.reauthentication_due")).toHaveLength(1);
  await after(317);
  await after(323.9);
  expect(await stateOf()).toBe("active");
  await patch({ reauthenticate_days: null });
  await after(400);
  expect(await stateOf()).toBe("active");
});

test("a user who was told, and could not confirm because no server was up, is told again", async () => {
  await after(23);
  await away(31);
  await after(37.9);
  expect([await stateOf(), await events()]).toEqual([
    "active",
    ["node.reauthentication_due", "node.reauthentication_due"],
  ]);
  await after(38);
  expect(await stateOf()).toBe("revoked");
});

test("only the user confirms, in a browser: no administrator, no token, no former owner, no removed member", async () => {
  await after(23);
  expect(codeOf(await confirm("owner@example.org"))).toEqual([403, "permission_denied"]);
  const path = `/api/org/acme/nodes/${laptop.id}/reauthenticate/`;
  const token = await server.person("bob@example.org");
  await server.join(acme, "bob@example.org", "admin");
  expect(codeOf(await server.send("POST", path, { token }))).toEqual([403, "permission_denied"]);
  expect(codeOf(await server.send("POST", path, { token: laptop.token }))).toEqual([403, "node_token_scope"]);
  const by = await signInBrowser(server, ada);
  const foreign = await by.send("POST", path, { headers: { Origin: "https://evil.example" } });
  expect(codeOf(foreign)).toEqual([403, "cross_site"]);
  await server.db.write((tx) => tx.run("DELETE FROM memberships WHERE email = $1", [ada]));
  expect(codeOf(await confirm())).toEqual([404, "not_found"]);
  expect((await listed("bob@example.org")).map(({ name }) => name)).toEqual(["laptop"]);
});

test("a user with a second factor confirms with a fresh one", async () => {
  const { access } = await server.app.services.sessions.start(
    Number((await server.db.get("SELECT id FROM users WHERE email = $1", [ada]))?.["id"]),
  );
  const by = await signInBrowser(server, ada);
  const app = await addApp(server, access);
  const path = `/api/org/acme/nodes/${laptop.id}/reauthenticate/`;
  expect(codeOf(await by.send("POST", path))).toEqual([403, "step_up_required"]);
  await by.send("POST", "/api/user/step_up/", { body: { otp: app.code(1) } });
  expect((await by.send("POST", path)).status).toBe(204);
});

test("a node that is restored, or that gets another owner, has a whole period again", async () => {
  await after(23);
  await after(30);
  const path = `/api/org/acme/nodes/${laptop.id}/`;
  expect((await (await owner()).send("POST", `${path}restore/`, { body: {} })).status).toBe(200);
  await after(52.9);
  expect([await stateOf(), await listed(ada)]).toEqual(["active", []]);
  const body = { owner: "owner@example.org" };
  await (await owner()).send("POST", `${path}transfer/`, { body });
  await after(75);
  expect([await stateOf(), await listed("owner@example.org")]).toEqual(["active", []]);
  await after(75.9);
  expect((await listed("owner@example.org")).map(({ name }) => name)).toEqual(["laptop"]);
});

test("the machine of a told user is answered until when, and where to confirm it; nothing before and after", async () => {
  const asked = async () => {
    const answer = await laptop.checkin();
    return [answer.status, confirmationIn(checkinOf(answer))];
  };
  await after(22.9);
  expect(await asked()).toEqual([200, undefined]);
  await after(23);
  const [due] = await listed(ada);
  const url = "https://control.example/console/acme/";
  expect(await asked()).toEqual([200, { until: due?.until ?? "", url }]);
  // From memory, too.
  expect(await asked()).toEqual([200, { until: due?.until ?? "", url }]);
  await confirm();
  expect(await asked()).toEqual([200, undefined]);
});

test("another setting begins another period: machines forget the time, and users are told again before the end", async () => {
  await after(23);
  expect(confirmationIn(checkinOf(await laptop.checkin()))).toBeDefined();
  await after(25);
  await patch({ reauthenticate_days: 60 });
  expect(confirmationIn(checkinOf(await laptop.checkin()))).toBeUndefined();
  await after(85);
  expect([await stateOf(), await events()]).toEqual([
    "active",
    ["node.reauthentication_due", "node.reauthentication_due"],
  ]);
  await after(92);
  expect(await stateOf()).toBe("revoked");
});

test("the nodes of a user are told and cut off together", async () => {
  const others = await Promise.all(["a", "b", "c"].map((name) => ownedBy(ada, name)));
  await after(24);
  expect((await listed(ada)).map(({ name }) => name).toSorted()).toEqual(["a", "b", "c", "laptop"]);
  await confirm(ada, others[1]);
  await after(31);
  const live = await server.db.all("SELECT name FROM nodes WHERE state = 'active' ORDER BY name");
  expect(live.map(({ name }) => name)).toEqual(["b", "server"]);
});
