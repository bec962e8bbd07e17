// What a user can still use after being removed, disabled or demoted, and what was created with a revoked token. All of
// it is found, ended on request, and requests under way do not complete.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { RegisterAnswer } from "../../../src/protocol/registration.ts";
import { networksOfFlag } from "../../../src/server/http/edge.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { NewMember } from "../../../src/api/members.ts";
import { AccessReport, type AccessItem } from "../../../src/api/left-access.ts";
import { runDueUpkeep } from "../../../src/server/nodes/lifecycle/upkeep.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import {
  codeOf,
  makeKeys,
  nodeOf,
  registerNode,
  sendRegistration,
  type RegisteredNode,
} from "../../support/nodes.ts";
import { makeAcme, makeNumbered } from "../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner = "";
let ada = "";

beforeEach(async () => {
  const networks = networksOfFlag("", ["127.0.0.0/8"]);
  server = await makeTestServer({
    webhookNetworks: networks,
    network: { lookup: async () => ["127.0.0.1"] },
  });
  ({ acme, owner } = await makeAcme(server));
  ada = await server.person("ada@example.org");
  await server.join(acme, "ada@example.org", "admin");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const post = (path: string, token: string, body: object) =>
  server.send("POST", `/api/org/acme/${path}/`, { token, body });
const Made = v.object({ id: v.number(), token: v.string() });
const hook = { url: "http://hooks.example/" };
const secretOf = (answer: Answer) => v.parse(NewMember, answer.json).link?.split("#")[1] ?? "";
const join = (secret: string) => server.send("POST", "/api/join/", { body: { secret, password } });
const idOf = (answer: Answer) => v.parse(v.object({ id: v.number() }), answer.json).id;
const reportOf = (answer: Answer) => v.parse(AccessReport, answer.json);
const names = (items: readonly AccessItem[]) => items.map(({ kind, id }) => `${kind} ${id}`).sort();

async function registerAs(name: string, token: string): Promise<RegisteredNode> {
  const keys = await makeKeys(name);
  const answer = await sendRegistration(server, "acme", { name, ...keys }, { token });
  expect(answer.status).toBe(201);
  return nodeOf(server, acme, keys, v.parse(RegisterAnswer, answer.json));
}

/** The state after a crash in a registration: keys reserved, certificates not signed. */
async function breakOff(name: string, credential: { token: string } | { registration_token: string }) {
  const node = await ("token" in credential
    ? registerAs(name, credential.token)
    : registerNode(server, acme, name, credential));
  await server.db.write(async (tx) => {
    await tx.run(
      "UPDATE nodes SET state = 'pending', registered_at = NULL, token_hash = NULL WHERE id = $1",
      [node.id],
    );
  });
  return node;
}

/** Ada creates one of everything, and so does the owner, whose objects must stay. */
async function makeEverything() {
  const by = async (token: string, who: string) => {
    const registration = v.parse(Made, (await post("registration_tokens", token, { uses: 9 })).json);
    const service = v.parse(Made, (await post("service_tokens", token, { name: "ci", role: "admin" })).json);
    const invited = await post("members", token, { email: `guest-of-${who}@example.org` });
    const webhooks = [await post("webhooks", token, hook), await post("webhooks", service.token, hook)];
    const nodes = [
      await registerAs(`${who}-own`, token),
      await registerAs(`${who}-service`, service.token),
      await registerNode(server, acme, `${who}-token`, { registration_token: registration.token }),
    ];
    const flying = [
      await breakOff(`${who}-flying`, { token }),
      await breakOff(`${who}-flying-token`, { registration_token: registration.token }),
    ];
    const [own] = nodes;
    const kinds = {
      own: [`node ${own?.id}`],
      tokens: [`registration_token ${registration.id}`, `service_token ${service.id}`],
      invitation: [`invitation ${idOf(invited)}`],
      webhooks: webhooks.map((each) => `webhook ${idOf(each)}`),
      nodes: nodes.map(({ id }) => `node ${id}`),
      flying: flying.map(({ id }) => `registration ${id}`),
    };
    return { registration, service, secret: secretOf(invited), nodes, flying, kinds };
  };
  return { hers: await by(ada, "ada"), owners: await by(owner, "owner") };
}
const remove = (query = "") =>
  server.send("DELETE", `/api/org/acme/members/2/?report=true${query}`, { token: owner });
const statesOf = async (nodes: readonly RegisteredNode[]) =>
  Promise.all(
    nodes.map(
      async ({ id }) => (await server.db.get("SELECT state FROM nodes WHERE id = $1", [id]))?.["state"],
    ),
  );

test("before staff disable a user, they read what the user can use; nothing of it ends", async () => {
  const { hers } = await makeEverything();
  const id = Number((await server.db.get("SELECT id FROM users WHERE email = 'ada@example.org'"))?.["id"]);
  const staff = await server.person("root@example.org", { isStaff: true });
  for (const _ of [1, 2]) {
    const report = reportOf(await server.send("GET", `/api/users/${id}/`, { token: staff }));
    const { tokens, invitation, webhooks, nodes, flying } = hers.kinds;
    expect(names(report.access_left)).toEqual([tokens, invitation, webhooks, nodes, flying].flat().sort());
    expect([report.access_left_total, report.access_revoked_total]).toEqual([10, 0]);
  }
  expect(await statesOf(hers.nodes)).toEqual(["active", "active", "active"]);
});

describe("a removed administrator", () => {
  test("keeps no access with both flags, and the answer lists what ended", async () => {
    const { hers, owners } = await makeEverything();
    const answer = await remove("&revoke_nodes=true&revoke_tokens=true");
    const report = reportOf(answer);
    const { tokens, invitation, webhooks, nodes, flying } = hers.kinds;
    expect(names(report.access_revoked)).toEqual([tokens, invitation, webhooks, nodes, flying].flat().sort());
    expect([report.access_left, report.access_left_total]).toEqual([[], 0]);
    expect(report.access_revoked_total).toBe(10);

    for (const node of hers.nodes) {
      const refused = await node.checkin();
      expect(codeOf(refused)).toEqual([403, "node_revoked"]);
      // The order is signed when the node asks.
      expect(refused.json).toMatchObject({ order: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/) });
    }
    expect((await join(hers.secret)).status).toBe(404);
    const read = (token: string) => server.send("GET", "/api/org/acme/nodes/", { token });
    expect((await read(hers.service.token)).status).toBe(401);
    const listed = await server.send("GET", "/api/org/acme/webhooks/", { token: owner });
    const ids = v.parse(v.array(v.object({ id: v.number() })), listed.json).map(({ id }) => `webhook ${id}`);
    expect(ids).toEqual(owners.kinds.webhooks);

    for (const node of owners.nodes) expect((await node.checkin()).status).toBe(200);
    expect((await read(owners.service.token)).status).toBe(200);
    expect((await join(owners.secret)).status).toBe(200);
    const event = await server.db.get(
      "SELECT after FROM events WHERE subject = 'member/ada@example.org' ORDER BY id DESC LIMIT 1",
    );
    expect(JSON.parse(String(event?.["after"]))).toMatchObject({
      access_revoked: { invitation: 1, node: 3, registration: 2, webhook: 2 },
    });
  });

  test("without the flags, tokens, nodes and webhooks stay and are listed; links and own registrations end", async () => {
    const { hers } = await makeEverything();
    const report = reportOf(await remove());
    const { tokens, invitation, webhooks, nodes, flying } = hers.kinds;
    const [begun, byToken] = flying;
    expect(names(report.access_left)).toEqual([tokens, webhooks, nodes, byToken ?? ""].flat().sort());
    expect(names(report.access_revoked)).toEqual([...invitation, begun ?? ""].sort());
    expect((await join(hers.secret)).status).toBe(404);
    expect(await statesOf(hers.flying)).toEqual(["revoked", "pending"]);
    expect(await statesOf(hers.nodes)).toEqual(["active", "active", "active"]);
    // The token keeps working and resumes the registration.
    const [, broken] = hers.flying;
    const again = { name: "ada-flying-token", ...broken?.keys, registration_token: hers.registration.token };
    expect((await sendRegistration(server, "acme", again)).status).toBe(201);
  });

  test("with one flag, or where nodes of leavers are revoked, keeps machines that came by tokens, and they are listed", async () => {
    const { hers } = await makeEverything();
    await server.db.write((tx) => tx.run("UPDATE organizations SET revoke_leaver_nodes = 1"));
    const report = reportOf(await remove("&revoke_nodes=true"));
    const [own, ...ofTokens] = hers.kinds.nodes;
    const nodesIn = (items: readonly { kind: string; id: number }[]) =>
      items.filter(({ kind }) => kind === "node").map(({ kind, id }) => `${kind} ${id}`);
    expect([nodesIn(report.access_revoked), nodesIn(report.access_left)]).toEqual([[own ?? ""], ofTokens]);
    expect(await statesOf(hers.nodes)).toEqual(["revoked", "active", "active"]);
  });

  test("who was given to another member, or to the organization by transfer, is not among them", async () => {
    const { hers } = await makeEverything();
    const [own, , byToken] = hers.nodes;
    const give = (node: RegisteredNode | undefined, to: string | null) =>
      server.send("POST", `/api/org/acme/nodes/${node?.id}/transfer/`, { token: owner, body: { owner: to } });
    expect([(await give(own, null)).status, (await give(byToken, "owner@example.org")).status]).toEqual([
      200, 200,
    ]);
    const report = reportOf(await remove("&revoke_nodes=true&revoke_tokens=true"));
    const [, byService] = hers.kinds.nodes;
    expect(names(report.access_revoked).filter((name) => name.startsWith("node "))).toEqual([
      byService ?? "",
    ]);
    expect(await statesOf(hers.nodes)).toEqual(["active", "revoked", "active"]);
  });

  test("is found by its events where an older version recorded no creator", async () => {
    const { hers } = await makeEverything();
    await server.db.write(async (tx) => {
      await tx.run("DELETE FROM registrants");
      await tx.run("UPDATE memberships SET invited_by = NULL");
      await tx.run("UPDATE webhooks SET created_by = NULL");
      await tx.run("UPDATE nodes SET owner_id = NULL, owner_known = 0");
    });
    const report = reportOf(await remove("&revoke_nodes=true&revoke_tokens=true"));
    const { tokens, invitation, webhooks, nodes, flying } = hers.kinds;
    expect(names(report.access_revoked)).toEqual([tokens, invitation, webhooks, nodes, flying].flat().sort());
  });

  test("gives 204 without a body unless the report is requested", async () => {
    await makeEverything();
    const path = "/api/org/acme/members/2/?revoke_nodes=true&revoke_tokens=true";
    const answer = await server.send("DELETE", path, { token: owner });
    expect([answer.status, answer.text]).toEqual([204, ""]);
  });
});

test("a demoted administrator's invitations end, and the answer lists the rest", async () => {
  const { hers } = await makeEverything();
  const answer = await server.send("PATCH", "/api/org/acme/members/2/", {
    token: owner,
    body: { role: "member" },
  });
  expect(answer.json).toMatchObject({ role: "member", access_revoked_total: 2, access_left_total: 8 });
  expect((await join(hers.secret)).status).toBe(404);
});

test("after a demotion, addresses and names of the registrations that ended are released as far as they can be", async () => {
  const flying = await breakOff("flying", { token: ada });
  const demoted = await server.send("PATCH", "/api/org/acme/members/2/", {
    token: owner,
    body: { role: "member" },
  });
  expect(names(reportOf(demoted).access_revoked)).toEqual([`registration ${flying.id}`]);
  const holds = async () => [
    await server.db.all("SELECT * FROM held_names"),
    await server.db.all("SELECT * FROM addresses WHERE held_until IS NOT NULL"),
  ];
  const found = await holds();
  await runDueUpkeep(server.app.services, acme.id);
  expect(await holds()).toEqual(found);
});

test("an owner who becomes administrator cannot become owner again with a link", async () => {
  const change = (role: string) =>
    server.send("PATCH", "/api/org/acme/members/2/", { token: owner, body: { role } });
  expect((await change("owner")).status).toBe(200);
  const asOwner = await post("members", ada, { email: "puppet@example.org", role: "owner" });
  const asMember = await post("members", ada, { email: "colleague@example.org" });
  expect((await change("admin")).status).toBe(200);
  expect((await join(secretOf(asOwner))).status).toBe(404);
  expect((await join(secretOf(asMember))).status).toBe(200);
});

test("a disabled user's access and invitations end in every organization", async () => {
  const { hers } = await makeEverything();
  const { admin } = await makeNumbered(server, 2);
  const invited = await server.send("POST", "/api/org/org-2/members/", {
    token: admin,
    body: { email: "ada@example.org" },
  });
  const ends = { revokeTokens: true, revokeNodes: true };
  const { left, revoked } = await setActive(server.app.services, "ada@example.org", false, operator, ends);
  expect(left).toEqual([]);
  const { tokens, invitation, webhooks, nodes, flying } = hers.kinds;
  const ended = [tokens, invitation, webhooks, nodes, flying, `invitation ${idOf(invited)}`].flat();
  expect(names(revoked)).toEqual(ended.sort());
  await setActive(server.app.services, "ada@example.org", true, operator);
  expect((await join(secretOf(invited))).status).toBe(404);
});

describe("a revoked token", () => {
  const revoke = (path: string, query = "") =>
    server.send("DELETE", `/api/org/acme/${path}/?report=true${query}`, { token: owner });

  test("also ends what was created with it on request, else lists it", async () => {
    const { hers } = await makeEverything();
    const [, webhook = ""] = hers.kinds.webhooks;
    const [, node = "", byToken = ""] = hers.kinds.nodes;
    const service = reportOf(await revoke(`service_tokens/${hers.service.id}`, "&revoke_nodes=true"));
    expect([names(service.access_revoked), names(service.access_left)]).toEqual([[node], [webhook]]);
    const registration = reportOf(await revoke(`registration_tokens/${hers.registration.id}`));
    // It could not complete.
    expect(names(registration.access_revoked)).toEqual([hers.kinds.flying[1] ?? ""]);
    expect(names(registration.access_left)).toEqual([byToken]);
    const again = v.parse(Made, (await post("service_tokens", ada, { name: "ci", role: "admin" })).json);
    const made = await post("webhooks", again.token, hook);
    const ended = reportOf(await revoke(`service_tokens/${again.id}`, "&revoke_webhooks=true"));
    expect(names(ended.access_revoked)).toEqual([`webhook ${idOf(made)}`]);
  });

  test("with ?revoke_nodes=true ends registrations in flight", async () => {
    for (let round = 0; round < 12; round++) {
      const body = { uses: 50 };
      const { id, token } = v.parse(Made, (await post("registration_tokens", owner, body)).json);
      const keys = await Promise.all(Array.from({ length: 8 }, () => makeKeys()));
      const registrations = keys.map((each, at) =>
        sendRegistration(server, "acme", { name: `r${round}-${at}`, ...each, registration_token: token }),
      );
      await Bun.sleep(round);
      const revoked = await server.send(
        "DELETE",
        `/api/org/acme/registration_tokens/${id}/?revoke_nodes=true`,
        { token: owner },
      );
      expect(revoked.status).toBe(204);
      for (const answer of await Promise.all(registrations)) expect([201, 401, 403]).toContain(answer.status);
      const survivors = await server.db.all(
        "SELECT name FROM nodes WHERE registered_with = $1 AND state <> 'revoked'",
        [id],
      );
      expect(survivors).toEqual([]);
    }
  });
});

test("a user removed during a request cannot complete it", async () => {
  for (let round = 0; round < 12; round++) {
    const email = `leaver-${round}@example.org`;
    const token = await server.person(email);
    const { id } = v.parse(NewMember, (await post("members", owner, { email, role: "admin" })).json);
    const keys = await Promise.all(Array.from({ length: 4 }, () => makeKeys()));
    const onTheWay = [
      ...keys.map((each, at) =>
        sendRegistration(server, "acme", { name: `p${round}-${at}`, ...each }, { token }),
      ),
      ...Array.from({ length: 3 }, (_, at) => [
        post("registration_tokens", token, {}),
        post("service_tokens", token, { name: "ci", role: "admin" }),
        post("members", token, { email: `friend-${round}-${at}@example.org`, role: "admin" }),
      ]).flat(),
      ...(round < 6 ? [post("webhooks", token, hook)] : []),
    ];
    await Bun.sleep(round / 2);
    const path = `/api/org/acme/members/${id}/?revoke_nodes=true&revoke_tokens=true`;
    expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
    await Promise.all(onTheWay);
    const { left, revoked } = await setActive(server.app.services, email, false, operator, {});
    expect([names(left), names(revoked)]).toEqual([[], []]);
  }
});

test("a hand-made node cannot be claimed by a credential that ends before the certificates are signed", async () => {
  for (const how of ["token", "person"] as const) {
    const name = `by-hand-${how}`;
    const node = idOf(await post("nodes", owner, { name }));
    await server.db.write((tx) => tx.run("UPDATE nodes SET state = 'active' WHERE id = $1", [node]));
    const { id, token } = v.parse(Made, (await post("registration_tokens", owner, { node_id: node })).json);
    const writeFor = server.db.writeFor.bind(server.db);
    // Between the two commits of the registration.
    server.db.writeFor = async (concern, work) => {
      const done = await writeFor(concern, work);
      server.db.writeFor = writeFor;
      const path = how === "token" ? `registration_tokens/${id}` : "members/2";
      expect((await server.send("DELETE", `/api/org/acme/${path}/`, { token: owner })).status).toBe(204);
      return done;
    };
    const keys = await makeKeys(name);
    const answer =
      how === "token"
        ? await sendRegistration(server, "acme", { name, ...keys, registration_token: token })
        : await sendRegistration(server, "acme", { name, ...keys }, { token: ada });
    expect(answer.status).toBe(how === "token" ? 401 : 403);
    const row = await server.db.get("SELECT state, registered_at, token_hash FROM nodes WHERE id = $1", [
      node,
    ]);
    expect(row).toEqual({ state: "active", registered_at: null, token_hash: null });
  }
});

test("a registration whose node is revoked just after it was stored says so", async () => {
  const name = "revoked-at-once";
  const writeFor = server.db.writeFor.bind(server.db);
  let writes = 0;
  server.db.writeFor = async (concern, work) => {
    const done = await writeFor(concern, work);
    if (++writes < 2) return done;
    server.db.writeFor = writeFor;
    const row = await server.db.get("SELECT id FROM nodes WHERE name = $1", [name]);
    const path = `/api/org/acme/nodes/${Number(row?.["id"])}/`;
    expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
    return done;
  };
  const answer = await sendRegistration(
    server,
    "acme",
    { name, ...(await makeKeys(name)) },
    { token: owner },
  );
  expect([answer.status, answer.json]).toEqual([403, expect.objectContaining({ code: "node_revoked" })]);
});
