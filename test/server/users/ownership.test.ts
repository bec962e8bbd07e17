// Ownership and email addresses: the holder of an invitation's link chooses the password of the user that it creates.
// On SQLite alone: other files run the same statements on PostgreSQL.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { addMember } from "../../../src/server/users/members.ts";
import { Member, NewMember } from "../../../src/api/members.ts";
import { changeRole } from "../../../src/server/offboarding/member-changes.ts";
import { createUser, findOwner } from "../../../src/server/users/users.ts";
import { setPassword } from "../../../src/server/users/sign-in/set-password.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { deleteOrganization } from "../../../src/server/organizations/organizations.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { codeOf } from "../../support/nodes.ts";
import { makeAcme, makeNumbered, pair, signInTo } from "../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner = "";
let admin = "";

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
  admin = await server.person("admin@example.org");
  await server.join(acme, "admin@example.org", "admin");
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const members = (slug = "acme") => `/api/org/${slug}/members/`;
const invite = (email: string, token: string, role = "member", slug = "acme") =>
  server.send("POST", members(slug), { token, body: { email, role } });
const memberOf = (answer: Answer) => v.parse(NewMember, answer.json);
const accept = (answer: Answer, secret = password) =>
  server.send("POST", "/api/join/", {
    body: { secret: memberOf(answer).link?.split("#")[1] ?? "", password: secret },
  });
const promote = (id: number, token: string, more: object = {}) =>
  server.send("PATCH", `${members()}${id}/`, { token, body: { role: "owner", ...more } });
const roleOf = async (email: string) =>
  (await server.db.get("SELECT role FROM memberships WHERE email = $1", [email]))?.["role"];
const userId = async (email: string) =>
  Number((await server.db.get("SELECT id FROM users WHERE email = $1", [email]))?.["id"]);
const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

/** The admin invites the address of another person and accepts the link. */
async function squat(email = "ceo@example.org"): Promise<{ id: number; member: number }> {
  const invited = await invite(email, admin);
  expect((await accept(invited, "the squatter's choice")).status).toBe(200);
  return { id: await userId(email), member: memberOf(invited).id };
}

describe("a user that an invitation created", () => {
  test("is not an owner by its address alone; the error names the user id to confirm", async () => {
    const { id } = await squat();
    const choice = { email: "CEO@example.org" };
    const { db } = server;
    expect(await failureOf(findOwner(db, choice))).toMatchObject({
      code: "owner_unconfirmed",
      message:
        `Nothing proves that user ${id} is ceo@example.org. An invitation of the organization acme created the user at ` +
        "2026-11-21T00:00:00Z, and the holder of the link chose the password. Ask the owner of ceo@example.org. If the user is theirs, " +
        `send the request again with "owner_id": ${id}.`,
    });
    expect(await failureOf(findOwner(db, { ...choice, id: id + 1 }))).toMatchObject({
      code: "owner_unconfirmed",
      message: `ceo@example.org is user ${id}, not user ${id + 1}.`,
    });
    expect(await findOwner(db, { ...choice, id })).toMatchObject({ id });
    const known = { email: "owner@example.org" };
    expect(await findOwner(db, known)).toMatchObject(known);
    expect(await failureOf(findOwner(db, { ...known, id }))).toMatchObject({ code: "owner_unconfirmed" });
  });

  test("still needs confirmation after a new password, or after its organization is deleted", async () => {
    const { id } = await squat();
    await setPassword(server.app.services, id, "from the help desk", operator);
    const choice = { email: "ceo@example.org" };
    expect(await failureOf(findOwner(server.db, choice))).toMatchObject({ code: "owner_unconfirmed" });
    expect((await server.send("DELETE", "/api/org/acme/", { token: owner })).status).toBe(204);
    expect(await failureOf(findOwner(server.db, choice))).toMatchObject({ code: "owner_unconfirmed" });
  });

  test("is named with its origin when the operator tries to create the same user", async () => {
    const { id } = await squat();
    const create = createUser(
      server.app.services,
      { email: "ceo@example.org", password, isStaff: true },
      operator,
    );
    expect(await failureOf(create)).toMatchObject({
      code: "conflict",
      message: expect.stringContaining(
        `user ${id}, created by an invitation of the organization acme at 2026`,
      ),
    });
  });

  test("can be promoted by the owner who invited it, by others only with its id", async () => {
    const { id, member } = await squat();
    expect(codeOf(await promote(member, owner))).toEqual([409, "owner_unconfirmed"]);
    expect(codeOf(await promote(member, owner, { owner_id: id + 1 }))).toEqual([409, "owner_unconfirmed"]);
    const by = { role: "owner", actor: operator } as const;
    const byOperator = changeRole(server.app.services, acme, member, "owner", by);
    expect(await failureOf(byOperator)).toMatchObject({ code: "owner_unconfirmed" });
    expect(await roleOf("ceo@example.org")).toBe("member");
    expect((await promote(member, owner, { owner_id: id })).json).toMatchObject({ role: "owner" });

    const own = await invite("heir@example.org", owner);
    await accept(own);
    expect((await promote(memberOf(own).id, owner)).status).toBe(200);
    const operators = await addMember(
      server.app.services,
      acme,
      { email: "new@example.org", role: "member" },
      by,
    );
    await server.send("POST", "/api/join/", {
      body: { secret: operators.link?.split("#")[1] ?? "", password },
    });
    expect(await changeRole(server.app.services, acme, operators.id, "owner", by)).toMatchObject({
      member: { role: "owner" },
    });
  });

  test("as an open invitation can be raised to owner only by its inviter, who holds the link", async () => {
    const invited = await invite("ceo@example.org", admin);
    expect(codeOf(await promote(memberOf(invited).id, owner))).toEqual([409, "conflict"]);
    const again = await invite("ceo@example.org", owner, "owner");
    expect((await accept(invited)).status).toBe(404);
    expect((await accept(again)).status).toBe(200);
    expect(await roleOf("ceo@example.org")).toBe("owner");
  });

  test("needs confirmation if an older version did not record the inviter", async () => {
    const own = await invite("heir@example.org", owner);
    await accept(own);
    await server.db.write((tx) => tx.run("UPDATE memberships SET invited_by = NULL"));
    expect(codeOf(await promote(memberOf(own).id, owner))).toEqual([409, "owner_unconfirmed"]);
  });

  test("becomes owner of another organization only through the link of that organization", async () => {
    await squat();
    const { org, admin: rival } = await makeNumbered(server, 2);
    const [by, body] = [{ role: "owner", actor: operator } as const, { email: "ceo@example.org" }];
    for (const role of ["admin", "owner"] as const) {
      const added = await addMember(server.app.services, org, { ...body, role }, by);
      expect(added).toMatchObject({ state: "invited", link: expect.any(String) });
    }
    const { access } = pair(await signInTo(server, "ceo@example.org", "the squatter's choice"));
    expect((await server.send("GET", "/api/org/org-2/", { token: access })).status).toBe(404);
    expect((await server.send("GET", "/api/org/org-2/", { token: rival })).status).toBe(200);
  });
});

describe("a user of another organization", () => {
  const ada = "ada@example.org";
  let token = "";
  let rival = "";
  let rivalOrg: Organization;

  beforeEach(async () => {
    token = await server.person(ada);
    await server.join(acme, ada, "member");
    ({ admin: rival, org: rivalOrg } = await makeNumbered(server, 2));
  });
  const failuresSeenBy = async (orgId: number | null) => {
    const where = "type = 'security.login_failed' AND coalesce(org_id, 0) = $1";
    return (await server.db.all(`SELECT subject, actor FROM events WHERE ${where}`, [orgId ?? 0])).length;
  };
  const organizations = async () => {
    const list = await server.send("GET", "/api/org/", { token });
    return v.parse(v.array(v.object({ slug: v.string() })), list.json).map(({ slug }) => slug);
  };

  test("is pending until it accepts: the inviter sees no failed sign-ins, the user no organization", async () => {
    const invited = await invite(ada, rival, "member", "org-2");
    expect(memberOf(invited)).toMatchObject({ state: "invited", link: expect.any(String) });
    const listed = await server.send("GET", members("org-2"), { token: rival });
    const state = v.parse(v.array(Member), listed.json).find(({ email }) => email === ada)?.state;
    expect(state).toBe("invited");
    await signInTo(server, ada, "wrong, and from her address", "198.51.100.7");
    expect((await accept(invited, "wrong, from the holder of the link")).status).toBe(401);
    expect([await failuresSeenBy(acme.id), await failuresSeenBy(rivalOrg.id)]).toEqual([2, 0]);
    const events = await server.send("GET", "/api/org/org-2/events/", { token: rival });
    expect(events.text).not.toContain("198.51.100.7");
    expect(await organizations()).toEqual(["acme"]);
    expect((await server.send("GET", "/api/org/org-2/", { token })).status).toBe(404);

    expect((await accept(invited)).status).toBe(200);
    expect(await organizations()).toEqual(["acme", "org-2"]);
    await signInTo(server, ada, "wrong once more");
    expect(await failuresSeenBy(rivalOrg.id)).toBe(1);
  });

  test("added by two organizations at once joins one and is invited to the other", async () => {
    const rounds = 10;
    for (let round = 0; round < rounds; round++) {
      const email = `free-${round}@example.org`;
      await server.person(email);
      const answers = await Promise.all([invite(email, admin), invite(email, rival, "member", "org-2")]);
      expect(answers.map((answer) => memberOf(answer).state).sort()).toEqual(["active", "invited"]);
    }
  });

  test("joins at once when the operator adds it; staff need to accept an organization's invitation", async () => {
    await server.person("staff@example.org", { isStaff: true });
    expect(memberOf(await invite("staff@example.org", rival, "member", "org-2")).state).toBe("invited");
    await server.join(rivalOrg, ada, "member");
    expect(await organizations()).toEqual(["acme", "org-2"]);
  });

  test("cannot accept after it was disabled or its password changed, even during the request", async () => {
    const { services } = server.app;
    for (let round = 0; round < 10; round++) {
      const email = `leaver-${round}@example.org`;
      await server.person(email);
      await server.join(acme, email, "member");
      const invited = await invite(email, rival, "admin", "org-2");
      // The change comes after the password was verified and before the membership is written.
      const verify = services.passwords.verify;
      const end =
        round % 2 === 0
          ? () => setActive(services, email, false, operator)
          : async () => setPassword(services, await userId(email), "another password", operator);
      services.passwords.verify = async (...given) => {
        const right = await verify(...given);
        services.passwords.verify = verify;
        await end();
        return right;
      };
      expect((await accept(invited)).status).toBe(401);
    }
    const joined = await server.db.all("SELECT id FROM memberships WHERE role = 'admin' AND user_id > $1", [
      await userId("admin-2@example.org"),
    ]);
    expect(joined).toEqual([]);
  });
});

test.each<[string, (id: number) => Promise<unknown>]>([
  ["is withdrawn", (id) => server.send("DELETE", `${members()}${id}/`, { token: owner })],
  ["is replaced by another", () => invite("new@example.org", owner)],
  ["ends with its organization", () => deleteOrganization(server.app.services, acme, operator)],
])("an invitation that %s while the new password is hashed makes no user", async (_, change) => {
  const { services } = server.app;
  const invited = await invite("new@example.org", owner);
  const { hash } = services.passwords;
  services.passwords.hash = async (...given) => {
    services.passwords.hash = hash;
    await change(memberOf(invited).id);
    return hash(...given);
  };
  expect(codeOf(await accept(invited))).toEqual([404, "not_found"]);
  expect(await server.db.all("SELECT 1 FROM users WHERE email = 'new@example.org'")).toEqual([]);
});
