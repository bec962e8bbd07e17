// To whom nodes belong: by their registration and by transfer. What a member may do with their own nodes, and what happens
// to these when the member leaves.

import { beforeEach, expect, test } from "bun:test";
import * as v from "valibot";
import { Node } from "../../../src/protocol/node.ts";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { codeOf, makeKeys, registerNode, registrationToken, sendRegistration } from "../../support/nodes.ts";
import { useNumbered } from "../../support/numbered.ts";
import { membershipOf } from "../../support/people.ts";
import type { TestServer } from "../../support/server.ts";

let server: TestServer;
let org: Organization;
let admin = "";
let member = "";
let email = "";
useNumbered((made) => {
  ({ server, org, admin } = made);
  email = `member-${made.count}@example.org`;
});
beforeEach(async () => {
  member = await server.person(email);
  await server.join(org, email, "member");
});

const path = (more: string) => `/api/org/${org.slug}/${more}`;
const send = (method: string, more: string, token: string, body?: object) =>
  server.send(method, path(more), { token, ...(body === undefined ? {} : { body }) });
const transfer = (id: number, owner: string | null, token = admin) =>
  send("POST", `nodes/${id}/transfer/`, token, { owner });
const stateOf = async (id: number) =>
  (await server.db.get("SELECT state FROM nodes WHERE id = $1", [id]))?.["state"];
const ownerOf = async (id: number) =>
  v.parse(Node, (await send("GET", `nodes/${id}/`, admin)).json).owner_id ?? null;
const userId = async (address: string) =>
  Number((await server.db.get("SELECT id FROM users WHERE email = $1", [address]))?.["id"]);
const namesOf = (json: unknown) => v.parse(v.array(Node), json).map(({ name }) => name);

async function ownNode(name: string): Promise<number> {
  const { id } = await registerNode(server, org, name);
  expect((await transfer(id, email)).status).toBe(200);
  return id;
}

test("a registration token makes a node of the organization, a user's own sign-in one of this user", async () => {
  const registration_token = await registrationToken(server, org);
  const byToken = await registerNode(server, org, "server", { registration_token });
  expect(await ownerOf(byToken.id)).toBeNull();
  const answer = await sendRegistration(
    server,
    org.slug,
    { name: "mine", ...(await makeKeys()) },
    { token: admin },
  );
  const own = v.parse(RegisterAnswer, answer.json).node.id;
  expect(await ownerOf(own)).toBe(await userId(`admin-${org.slug.split("-")[1]}@example.org`));
});

test("an administrator gives a node to a member and back, and each change is an event", async () => {
  const { id } = await registerNode(server, org, "laptop");
  expect((await transfer(id, email)).status).toBe(200);
  expect(await ownerOf(id)).toBe(await userId(email));
  expect((await transfer(id, null)).status).toBe(200);
  expect(await ownerOf(id)).toBeNull();
  // Nothing changed, so nothing is recorded.
  expect((await transfer(id, null)).status).toBe(200);
  const events = await server.db.all(
    "SELECT after FROM events WHERE org_id = $1 AND type = 'node.transferred' ORDER BY id",
    [org.id],
  );
  expect(events.map((each) => JSON.parse(String(each["after"])))).toEqual([
    { owner_id: await userId(email) },
    { owner_id: null },
  ]);
});

test("a transfer is refused to strangers, invited and disabled users, by members, and of revoked nodes", async () => {
  const { id } = await registerNode(server, org, "laptop");
  await server.person(`stranger-${org.id}@example.org`);
  expect(codeOf(await transfer(id, `stranger-${org.id}@example.org`))).toEqual([400, "validation_failed"]);
  await send("POST", "members/", admin, { email: `guest-${org.id}@example.org` });
  expect(codeOf(await transfer(id, `guest-${org.id}@example.org`))).toEqual([400, "validation_failed"]);
  expect(codeOf(await transfer(id, email, member))).toEqual([403, "permission_denied"]);
  await setActive(server.app.services, email, false, operator);
  expect(codeOf(await transfer(id, email))).toEqual([400, "validation_failed"]);
  await setActive(server.app.services, email, true, operator);
  await send("DELETE", `nodes/${id}/`, admin);
  expect(codeOf(await transfer(id, email))).toEqual([404, "not_found"]);
});

test("a member lists and revokes their own nodes, and no others", async () => {
  const own = await ownNode("own");
  const { id: other } = await registerNode(server, org, "other");
  expect(namesOf((await send("GET", "nodes/?owner=me", member)).json)).toEqual(["own"]);
  expect(namesOf((await send("GET", "nodes/?owner=me&search=oth", member)).json)).toEqual([]);
  expect(codeOf(await send("DELETE", `nodes/${other}/`, member))).toEqual([403, "permission_denied"]);
  // One that does not exist is no different: who may not delete a node learns nothing by it.
  const staff = await server.person(`visitor-${org.id}@example.org`, { isStaff: true });
  for (const token of [member, staff])
    expect(codeOf(await send("DELETE", "nodes/987654/", token))).toEqual([403, "permission_denied"]);
  expect(codeOf(await send("DELETE", "nodes/987654/", admin))).toEqual([404, "not_found"]);
  expect(codeOf(await send("PATCH", `nodes/${own}/`, member, { groups: ["admins"] }))[0]).toBe(403);
  expect(codeOf(await send("POST", `nodes/${own}/restore/`, member, {}))[0]).toBe(403);
  expect((await send("DELETE", `nodes/${own}/`, member)).status).toBe(204);
  expect([await stateOf(own), await stateOf(other)]).toEqual(["revoked", "active"]);
});

test("a program and staff who visit have no nodes of their own", async () => {
  const own = await ownNode("own");
  const made = await send("POST", "service_tokens/", admin, { name: "ci", role: "member" });
  const { token } = v.parse(v.object({ token: v.string() }), made.json);
  expect(codeOf(await send("GET", "nodes/?owner=me", token))).toEqual([400, "validation_failed"]);
  expect(codeOf(await send("DELETE", `nodes/${own}/`, token))).toEqual([403, "token_scope"]);
  const staff = await server.person(`staff-${org.id}@example.org`, { isStaff: true });
  expect(codeOf(await send("DELETE", `nodes/${own}/`, staff))).toEqual([403, "permission_denied"]);
  expect(await stateOf(own)).toBe("active");
});

test("a former member whose token still works revokes nothing", async () => {
  const own = await ownNode("own");
  const membership = await membershipOf(server.db, org, email);
  expect((await send("DELETE", `members/${membership}/`, admin)).status).toBe(204);
  expect(codeOf(await send("DELETE", `nodes/${own}/`, member))).toEqual([404, "not_found"]);
  expect(await stateOf(own)).toBe("active");
});

test("the nodes of a user who leaves are revoked only where the organization is so set", async () => {
  const own = await ownNode("own");
  const { id: other } = await registerNode(server, org, "other");
  const second = await server.organization(`keeps-${org.id}`);
  await server.join(second, email, "member");
  const kept = await registerNode(server, second, "kept");
  const ownerId = await userId(email);
  await server.db.write((tx) =>
    tx.run("UPDATE nodes SET owner_id = $1, owner_known = 1 WHERE id = $2", [ownerId, kept.id]),
  );
  expect((await send("PATCH", "", admin, { revoke_leaver_nodes: true })).status).toBe(200);
  const access = await setActive(server.app.services, email, false, operator);
  expect(access.revoked.map(({ kind, id }) => [kind, id])).toEqual([["node", own]]);
  expect(access.left.map(({ kind, id }) => [kind, id])).toEqual([["node", kept.id]]);
  expect([await stateOf(own), await stateOf(other), await stateOf(kept.id)]).toEqual([
    "revoked",
    "active",
    "active",
  ]);
});

test("a demoted administrator keeps their nodes, also where leavers lose them", async () => {
  const boss = `boss-${org.id}@example.org`;
  const token = await server.person(boss);
  await server.join(org, boss, "admin");
  const answer = await sendRegistration(server, org.slug, { name: "mine", ...(await makeKeys()) }, { token });
  const { id } = v.parse(RegisterAnswer, answer.json).node;
  await server.db.write((tx) =>
    tx.run("UPDATE organizations SET revoke_leaver_nodes = 1 WHERE id = $1", [org.id]),
  );
  const membership = await membershipOf(server.db, org, boss);
  expect((await send("PATCH", `members/${membership}/`, admin, { role: "member" })).status).toBe(200);
  expect(await stateOf(id)).toBe("active");
  const gone = await send("DELETE", `members/${membership}/?report=true`, admin);
  expect(gone.json).toMatchObject({ access_revoked: [{ kind: "node", id }] });
});
