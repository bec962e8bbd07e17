// Sessions of browsers and command lines are one list, which users, administrators and staff end; a session on the machine of a
// revoked node ends with it.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { sessionProof } from "../../../../src/pki/session-proof.ts";
import { deleteEnded } from "../../../../src/server/retention/ended-records.ts";
import type { Organization } from "../../../../src/api/organizations.ts";
import { signInBrowser } from "../../../support/browser-session.ts";
import { registerNode } from "../../../support/nodes.ts";
import { makeAcme, membershipOf, pair } from "../../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../../support/server.ts";

const ada = "ada@example.org";
let server: TestServer;
let acme: Organization;
let owner: string;

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
  await server.person(ada);
  await server.db.write((tx) => tx.run("DELETE FROM browser_sessions"));
  await server.join(acme, ada, "member");
});
afterEach(() => server[Symbol.asyncDispose]());

const signIn = async (email = ada, agent = "agent on laptop") =>
  pair(
    await server.send("POST", "/api/token/", {
      body: { email, password },
      headers: { "User-Agent": agent },
      address: "192.0.2.7",
    }),
  );
const refresh = (token: string) => server.send("POST", "/api/token/refresh/", { body: { refresh: token } });
const codeOf = ({ status, json }: Answer) => [status, (json as { code?: string } | undefined)?.code];
const works = async (token: string) => (await server.send("GET", "/api/user/", { token })).status;
const Listed = v.array(
  v.object({
    id: v.number(),
    kind: v.string(),
    device: v.string(),
    is_current: v.boolean(),
    nodes: v.array(v.object({ org_slug: v.string(), id: v.number(), name: v.string() })),
  }),
);
const list = async (token: string, path = "/api/user/sessions/") =>
  v.parse(Listed, (await server.send("GET", path, { token })).json);
const familyOf = (access: string) =>
  v.parse(
    v.object({ family: v.string() }),
    JSON.parse(Buffer.from(access.split(".")[1] ?? "", "base64url").toString()),
  ).family;
const prove = (token: string, nodes: object[]) =>
  server.send("POST", "/api/user/sessions/nodes/", { token, body: { nodes } });

describe("the list", () => {
  test("has browsers and command lines; each ends at once, with its access and refresh tokens", async () => {
    const browser = await signInBrowser(server, ada, { "User-Agent": "Firefox" });
    const [one, two] = [await signIn(), await signIn(ada, "agent on server")];
    const listed = await list(one.access);
    expect(listed.map(({ kind, device, is_current }) => [kind, device, is_current])).toEqual([
      ["browser", "Firefox", false],
      ["command_line", "agent on laptop", true],
      ["command_line", "agent on server", false],
    ]);
    const end = (id: number | undefined) =>
      server.send("DELETE", `/api/user/sessions/${id}/`, { token: one.access });
    expect((await end(listed[2]?.id)).status).toBe(204);
    expect([await works(two.access), await works(one.access)]).toEqual([401, 200]);
    expect(codeOf(await refresh(two.refresh))).toEqual([401, "token_not_valid"]);
    expect((await end(listed[0]?.id)).status).toBe(204);
    expect((await browser.send("GET", "/api/user/")).status).toBe(401);
    expect((await list(one.access)).map(({ kind }) => kind)).toEqual(["command_line"]);
    expect(codeOf(await end(987_654))).toEqual([404, "not_found"]);
    // Not that of another user.
    const others = await list((await signIn("owner@example.org")).access);
    expect(codeOf(await end(others[0]?.id))).toEqual([404, "not_found"]);
  });

  test("follows a command line through its refreshes, also one that an earlier release began", async () => {
    const begun = await signIn();
    const [before] = await list(begun.access);
    server.clock.ms += 60_000;
    const next = pair(await refresh(begun.refresh));
    expect((await list(next.access)).map(({ id }) => id)).toEqual([before?.id ?? 0]);
    await server.db.write((tx) => tx.run("DELETE FROM browser_sessions"));
    const last = pair(await refresh(next.refresh));
    expect((await list(last.access)).map(({ kind }) => kind)).toEqual(["command_line"]);
    // A token that is used twice ends the session, with the access tokens that are left.
    await refresh(next.refresh);
    expect(await works(last.access)).toBe(401);
  });

  test("loses a session at its end, a sign-out and a new password; a cookie is none of a command line", async () => {
    const one = await signIn();
    const row = await server.db.get("SELECT token_hash, family FROM browser_sessions");
    for (const cookie of [String(row?.["token_hash"]), String(row?.["family"]), one.access])
      expect(
        (await server.send("GET", "/api/user/", { headers: { Cookie: `__Host-session=${cookie}` } })).status,
      ).toBe(401);
    await server.send("POST", "/api/token/revoke/", { body: { refresh: one.refresh } });
    expect(await works(one.access)).toBe(401);
    const two = await signIn();
    expect((await list(two.access)).length).toBe(1);
    server.clock.ms += 86_400_000;
    const three = await signIn();
    expect((await list(three.access)).length).toBe(1);
    await deleteEnded(server.app.services, 0, () => false);
    expect((await server.db.all("SELECT 1 FROM browser_sessions")).length).toBe(1);
  });
});

test("staff see and end the sessions of a user without an organization, one or all; nobody else does", async () => {
  await server.person("eve@example.org");
  await server.person("staff@example.org");
  await server.db.write((tx) =>
    tx.run("UPDATE users SET is_staff = 1 WHERE email = $1", ["staff@example.org"]),
  );
  await server.db.write((tx) => tx.run("DELETE FROM browser_sessions"));
  const [one, two] = [await signIn("eve@example.org"), await signIn("eve@example.org")];
  const staff = (await signIn("staff@example.org")).access;
  const user = await server.db.get("SELECT id FROM users WHERE email = 'eve@example.org'");
  const path = `/api/users/${String(user?.["id"])}/sessions/`;
  const end = (token: string, id = "") => server.send("DELETE", `${path}${id}`, { token });
  const listed = await list(staff, path);
  expect(listed.map(({ kind, is_current }) => [kind, is_current])).toEqual([
    ["command_line", false],
    ["command_line", false],
  ]);
  expect(codeOf(await server.send("GET", path, { token: owner }))).toEqual([403, "permission_denied"]);
  expect(codeOf(await end(owner))).toEqual([403, "permission_denied"]);
  expect([await works(one.access), await works(two.access)]).toEqual([200, 200]);
  expect((await end(staff, `${listed[0]?.id}/`)).status).toBe(204);
  expect([await works(one.access), await works(two.access)]).toEqual([401, 200]);
  expect(codeOf(await end(staff, `${listed[0]?.id}/`))).toEqual([404, "not_found"]);
  expect((await end(staff)).status).toBe(204);
  expect([await works(two.access), await works(staff)]).toEqual([401, 200]);
  expect(codeOf(await refresh(two.refresh))).toEqual([401, "token_not_valid"]);
  expect(codeOf(await server.send("DELETE", "/api/users/987654/sessions/", { token: staff }))).toEqual([
    404,
    "not_found",
  ]);
  const events = await server.db.all(
    "SELECT org_id, subject, after FROM events WHERE type = 'user.signed_out' ORDER BY id",
  );
  expect(events.map((each) => [each["org_id"], each["subject"], JSON.parse(String(each["after"]))])).toEqual([
    [null, "user/eve@example.org", { session: listed[0]?.id }],
    [null, "user/eve@example.org", { session: "all" }],
  ]);
});

describe("an administrator", () => {
  test("sees and ends the sessions of members, one or all, and each time there is an event", async () => {
    const admin = (await signIn("owner@example.org")).access;
    const [one, two] = [await signIn(), await signIn()];
    const browser = await signInBrowser(server, ada);
    const path = `/api/org/acme/members/${await membershipOf(server.db, acme, ada)}/sessions/`;
    const listed = await list(admin, path);
    expect(listed.map(({ kind }) => kind)).toEqual(["command_line", "command_line", "browser"]);
    const end = (id: number | "" | undefined) =>
      server.send("DELETE", `${path}${id === "" ? "" : `${id}/`}`, { token: admin });
    expect((await end(listed[0]?.id)).status).toBe(204);
    expect([await works(one.access), await works(two.access)]).toEqual([401, 200]);
    expect((await end("")).status).toBe(204);
    expect([await works(two.access), (await browser.send("GET", "/api/user/")).status]).toEqual([401, 401]);
    expect(codeOf(await refresh(two.refresh))).toEqual([401, "token_not_valid"]);
    const events = await server.db.all("SELECT subject, after FROM events WHERE type = 'member.signed_out'");
    expect(events.map((each) => [each["subject"], JSON.parse(String(each["after"]))])).toEqual([
      [`member/${ada}`, { session: listed[0]?.id }],
      [`member/${ada}`, { session: "all" }],
    ]);
  });

  test("ends none of an owner, of another organization's member, or of an invitation", async () => {
    await server.join(acme, await named("boss@example.org"), "admin");
    const admin = (await signIn("boss@example.org")).access;
    const other = await server.organization("other", "10.78.0.0/16");
    await server.join(other, await named("eve@example.org"), "member");
    const eve = await signIn("eve@example.org");
    const [session] = await list(eve.access);
    const end = (member: number, id = "") =>
      server.send("DELETE", `/api/org/acme/members/${member}/sessions/${id}`, { token: admin });
    const ownerId = await membershipOf(server.db, acme, "owner@example.org");
    expect(codeOf(await end(ownerId))).toEqual([403, "permission_denied"]);
    expect(codeOf(await end(await membershipOf(server.db, other, "eve@example.org")))).toEqual([
      404,
      "not_found",
    ]);
    const adaId = await membershipOf(server.db, acme, ada);
    expect(codeOf(await end(adaId, `${session?.id}/`))).toEqual([404, "not_found"]);
    const body = { email: "new@example.org" };
    const invited = await server.send("POST", "/api/org/acme/members/", { token: owner, body });
    expect(codeOf(await end((invited.json as { id: number }).id))).toEqual([404, "not_found"]);
    expect([await works(eve.access), await works(owner)]).toEqual([200, 200]);
  });

  const named = async (email: string) => {
    await server.person(email);
    return email;
  };
});

describe("a revoked node", () => {
  test("ends the command-line sessions on its machine, also their access tokens, and says how many", async () => {
    const laptop = await registerNode(server, acme, "laptop");
    const [stolen, elsewhere] = [await signIn(), await signIn()];
    const proof = sessionProof(laptop.token, familyOf(stolen.access));
    const proven = await prove(stolen.access, [{ organization: "acme", node_id: laptop.id, proof }]);
    expect([proven.status, proven.json]).toEqual([200, { proven: 1 }]);
    const [listed] = await list(stolen.access);
    expect(listed?.nodes).toEqual([{ org_slug: "acme", id: laptop.id, name: "laptop" }]);
    // Tokens of this session that were renewed since end too.
    const renewed = pair(await refresh(stolen.refresh));
    const gone = await server.send("DELETE", `/api/org/acme/nodes/${laptop.id}/`, { token: owner });
    expect([gone.status, gone.headers.get("X-Sessions-Ended")]).toEqual([204, "1"]);
    for (const { access, refresh: token } of [stolen, renewed]) {
      expect(await works(access)).toBe(401);
      expect(codeOf(await refresh(token))).toEqual([401, "token_not_valid"]);
    }
    const again = await server.send("POST", "/api/org/acme/registration_tokens/", {
      token: renewed.access,
      body: {},
    });
    expect(again.status).toBe(401);
    expect(await works(elsewhere.access)).toBe(200);
    const event = await server.db.get("SELECT after FROM events WHERE type = 'node.revoked'");
    expect(JSON.parse(String(event?.["after"]))).toMatchObject({ sessions_ended: 1 });
  });

  test("ends no session by a proof that another machine or session made", async () => {
    const [laptop, other] = [
      await registerNode(server, acme, "laptop"),
      await registerNode(server, acme, "other"),
    ];
    const [mine, theirs] = [await signIn(), await signIn("owner@example.org")];
    const of = (node: { id: number; token: string }, family: string, as = node) => ({
      organization: "acme",
      node_id: as.id,
      proof: sessionProof(node.token, family),
    });
    for (const [token, nodes] of [
      // Another session's proof, another node's, one that is made up, one of a node that does not exist.
      [theirs.access, [of(laptop, familyOf(mine.access))]],
      [mine.access, [of(other, familyOf(mine.access), laptop)]],
      [mine.access, [{ ...of(laptop, familyOf(mine.access)), proof: "A".repeat(43) }]],
      [mine.access, [{ ...of(laptop, familyOf(mine.access)), node_id: 987_654 }]],
    ] as const)
      expect((await prove(token, [...nodes])).json).toEqual({ proven: 0 });
    const browser = await signInBrowser(server, ada);
    const byBrowser = await browser.send("POST", "/api/user/sessions/nodes/", {
      body: { nodes: [of(laptop, "x")] },
    });
    expect(codeOf(byBrowser)).toEqual([409, "conflict"]);
    const gone = await server.send("DELETE", `/api/org/acme/nodes/${laptop.id}/`, { token: owner });
    expect(gone.headers.get("X-Sessions-Ended")).toBe("0");
    expect([await works(mine.access), await works(theirs.access)]).toEqual([200, 200]);
    // A node that was revoked proves nothing any more.
    expect((await prove(mine.access, [of(laptop, familyOf(mine.access))])).json).toEqual({ proven: 0 });
  });

  test("that leaves by itself ends none; one that a token's end revokes does", async () => {
    const made = await server.send("POST", "/api/org/acme/registration_tokens/", {
      token: owner,
      body: { uses: 2 },
    });
    const { id, token } = v.parse(v.object({ id: v.number(), token: v.string() }), made.json);
    const [leaver, laptop] = [
      await registerNode(server, acme, "leaver", { registration_token: token }),
      await registerNode(server, acme, "laptop", { registration_token: token }),
    ];
    const [one, two] = [await signIn(), await signIn()];
    for (const [{ access }, node] of [
      [one, leaver],
      [two, laptop],
    ] as const) {
      const proof = sessionProof(node.token, familyOf(access));
      await prove(access, [{ organization: "acme", node_id: node.id, proof }]);
    }
    expect((await leaver.checkin({ leaving: true })).status).toBe(200);
    expect(await works(one.access)).toBe(200);
    const path = `/api/org/acme/registration_tokens/${id}/?revoke_nodes=true`;
    expect((await server.send("DELETE", path, { token: owner })).status).toBe(204);
    expect(await works(two.access)).toBe(401);
  });
});
