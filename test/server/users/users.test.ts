// Users of a control plane: the first user, the last staff user, and members who are invited, promoted and removed.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { operator } from "../../../src/server/audit/record.ts";
import { offerFirstUser } from "../../../src/server/users/first-user.ts";
import { membersApi, NewMember } from "../../../src/api/members.ts";
import { removeMember } from "../../../src/server/offboarding/member-changes.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import { createUser, findUser } from "../../../src/server/users/users.ts";
import { setActive } from "../../../src/server/offboarding/user-status.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeAcme, pair, signInTo } from "../../support/people.ts";
import { makeTestServer, password, type Answer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
let owner = "";

beforeEach(async () => {
  server = await makeTestServer();
  ({ acme, owner } = await makeAcme(server));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
});

const signIn = (email: string, secret?: string) => signInTo(server, email, secret);

test("the last staff user cannot be disabled, and is told what to do", async () => {
  const { services } = server.app;
  await createUser(services, { email: "s1@example.org", password, isStaff: true }, operator);
  await expectConflict(() => setActive(services, "s1@example.org", false, operator));
  await createUser(services, { email: "s2@example.org", password, isStaff: true }, operator);
  // A user of one organization's provider is never staff, whatever its row says.
  const bind = (to: string) =>
    server.db.write((tx) => tx.run(`UPDATE users SET bound_org_id = ${to} WHERE email = 's2@example.org'`));
  await bind("1");
  await expectConflict(() => setActive(services, "s1@example.org", false, operator));
  await bind("NULL");
  await setActive(services, "s1@example.org", false, operator);
  await expectConflict(() => setActive(services, "s2@example.org", false, operator));
});

test("a user who is deleted while another request disables them is not called the last staff user", async () => {
  const { services } = server.app;
  await createUser(services, { email: "gone@example.org", password, isStaff: false }, operator);
  const db = new Proxy(server.db, {
    get: (of, name) =>
      name === "write"
        ? async (work: Parameters<typeof of.write>[0]) => {
            await of.write((tx) => tx.run("DELETE FROM users WHERE email = 'gone@example.org'"));
            return of.write(work);
          }
        : Reflect.get(of, name),
  });
  const { code } = await rejection(setActive({ ...services, db }, "gone@example.org", false, operator));
  expect(code).toBe("not_found");
});

async function expectConflict(act: () => Promise<unknown>): Promise<void> {
  const { code, details } = await rejection(act());
  expect([code, details.hint]).toEqual(["conflict", expect.stringContaining("admin user create")]);
}

describe("members", () => {
  const members = "/api/org/acme/members/";
  const invite = async (email: string, role = "member", token = owner) =>
    server.send("POST", members, { token, body: { email, role } });
  const secretOf = (answer: Answer) => {
    const { link } = v.parse(NewMember, answer.json);
    const match = /^https:\/\/control\.example\/join\/#([\w-]{43})$/.exec(link ?? "");
    return match?.[1] ?? "";
  };
  const accept = (secret: string, chosen = password) =>
    server.send("POST", "/api/join/", { body: { secret, password: chosen } });

  test("a user that the operator created becomes a member at once", async () => {
    const token = await server.person("ada@example.org");
    const answer = await invite("ADA@example.org", "admin");
    expect(answer.json).toMatchObject({ email: "ada@example.org", role: "admin", state: "active" });
    expect(answer.text).not.toContain("link");
    expect((await server.send("GET", members, { token })).status).toBe(200);
  });

  test("administrators see who has a second factor and who was here, members do not", async () => {
    const ada = await server.person("ada@example.org");
    await invite("ada@example.org");
    await invite("new@example.org");
    await server.send("GET", "/api/org/", { token: ada });
    await server.db.write((tx) =>
      tx.run(`INSERT INTO totp_secrets (user_id, secret_sealed, confirmed_at, created_at)
        SELECT id, 'sealed', 1, 1 FROM users WHERE email = 'ada@example.org'`),
    );
    const seenBy = async (token: string) =>
      v
        .parse(membersApi.list.answers[200].schema, (await server.send("GET", members, { token })).json)
        .map(({ email, second_factors, last_seen_at }) => [email, second_factors, last_seen_at !== null]);
    expect(await seenBy(owner)).toEqual([
      [expect.stringContaining("owner"), [], true],
      ["ada@example.org", ["totp"], true],
      ["new@example.org", null, false],
    ]);
    expect((await seenBy(ada)).map(([, ...rest]) => rest)).toEqual(
      Array.from({ length: 3 }, () => [null, false]),
    );
  });

  test("any other address gets a link that works once, for 72 hours", async () => {
    const secret = secretOf(await invite("new@example.org"));
    expect((await signIn("new@example.org")).status).toBe(401);
    // The page shows what the link is for, until it was used.
    const find = () => server.send("POST", "/api/join/find/", { body: { secret } });
    expect((await find()).json).toEqual({ email: "new@example.org", org_slug: "acme" });
    expect((await accept(secret)).json).toEqual({ email: "new@example.org", org_slug: "acme" });
    expect((await accept(secret)).status).toBe(404);
    expect((await find()).status).toBe(404);
    const { access } = pair(await signIn("new@example.org"));
    const list = await server.send("GET", "/api/org/", { token: access });
    expect(list.json).toMatchObject([{ slug: "acme", role: "member" }]);

    const late = secretOf(await invite("late@example.org"));
    server.clock.ms += 72 * 3_600_000 + 1;
    expect((await accept(late)).status).toBe(404);
  });

  test("inviting a user that an invitation created gives no access without its password", async () => {
    await accept(secretOf(await invite("new@example.org")));
    const other = await server.organization("other", "10.78.0.0/16");
    const mallory = await server.person("mallory@example.org");
    await server.join(other, "mallory@example.org", "owner");
    const answer = await server.send("POST", "/api/org/other/members/", {
      token: mallory,
      body: { email: "new@example.org", role: "owner" },
    });
    const secret = secretOf(answer);
    expect(secret).not.toBe("");
    expect((await accept(secret, "mallory's own choice")).status).toBe(401);
    expect((await signIn("new@example.org", "mallory's own choice")).status).toBe(401);
    const { access } = pair(await signIn("new@example.org"));
    expect((await server.send("GET", "/api/org/other/", { token: access })).status).toBe(404);
    expect((await accept(secret)).status).toBe(200);
    expect((await server.send("GET", "/api/org/other/", { token: access })).status).toBe(200);
  });

  test("the last owner stays; only owners change owners", async () => {
    const admin = await server.person("admin@example.org");
    await server.join(acme, "admin@example.org", "admin");
    const ownerPath = `${members}1/`;
    for (const [method, body] of [
      ["PATCH", { role: "member" }],
      ["DELETE", undefined],
    ] as const) {
      expect((await server.send(method, ownerPath, { token: owner, body })).status).toBe(409);
      expect((await server.send(method, ownerPath, { token: admin, body })).status).toBe(403);
    }
    expect((await invite("x@example.org", "owner", admin)).status).toBe(403);
    expect((await invite("heir@example.org", "owner")).status).toBe(201);
    expect((await invite("heir@example.org", "member", admin)).status).toBe(403);
    expect((await invite("heir@example.org")).status).toBe(201);
    expect(
      (await server.send("PATCH", `${members}2/`, { token: owner, body: { role: "owner" } })).status,
    ).toBe(200);
    const by = { role: "owner", actor: operator } as const;
    const both = await Promise.allSettled(
      [1, 2].map((id) => removeMember(server.app.services, acme, id, by)),
    );
    expect(both.map((each) => each.status).sort()).toEqual(["fulfilled", "rejected"]);
  });

  test("addresses with invisible or control characters are refused, and normalized ones are equal", async () => {
    const hidden = ["\u001b[2J", "\u202e", "\u200b", "\u0085", "\u3164", "\u115f", "\ufe0f", "\u2800"];
    for (const each of hidden) expect((await invite(`ada${each}@example.org`)).status).toBe(400);
    expect((await invite("ädä@exämple.org")).status).toBe(201);
    // The same letter as two code points.
    expect((await invite("a\u0308da\u0308@exa\u0308mple.org")).json).toMatchObject({
      email: "ädä@xn--exmple-cua.org",
    });
  });

  test.each([
    ["ada@example.org.", "ada@example.org"],
    ["ada@bücher.example", "ada@xn--bcher-kva.example"],
    ["ada@xn--bcher-kva.example", "ada@xn--bcher-kva.example"],
    ["ada@ex\u3002org\u3002", "ada@ex.org"],
    // The second a is Cyrillic.
    ["staff@ex\u0430mple.org", "staff@xn--exmple-4nf.org"],
  ])("the domain of %s has one spelling, and shows what looks like another", async (given, email) => {
    expect((await invite(given)).json).toMatchObject({ email });
  });

  test.each(["ada@example..", "ada@ü/ü", "ada@exam\u200bple.org", "ada@\u0301"])(
    "%j is no address",
    async (given) => {
      expect((await invite(given)).status).toBe(400);
    },
  );

  test("a user whose domain an earlier version stored in Unicode signs in, and is found", async () => {
    await server.person("ada@bücher.example");
    expect((await signIn("ada@bücher.example")).status).toBe(200);
    expect(await findUser(server.db, "ada@bücher.example")).toMatchObject({ email: "ada@bücher.example" });
  });

  test("a removed member loses access at once", async () => {
    const token = await server.person("ada@example.org");
    const { id } = v.parse(NewMember, (await invite("ada@example.org")).json);
    expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(200);
    expect((await server.send("DELETE", `${members}${id}/`, { token: owner })).status).toBe(204);
    expect((await server.send("GET", "/api/org/acme/", { token })).status).toBe(404);
  });
});

describe("the first user", () => {
  const offer = async (fresh: TestServer) => {
    const link = await offerFirstUser(fresh.app.services);
    return /^https:\/\/control\.example\/setup\/#([\w-]{43})$/.exec(link ?? "")?.[1] ?? "";
  };
  const take = (fresh: TestServer, secret: string, email = "first@example.org") =>
    fresh.send("POST", "/api/setup/", { body: { secret, email, password } });

  test("is created by a link that works once, and only while there are no users", async () => {
    await using fresh = await makeTestServer();
    const [secret, ofAnotherReplica] = [await offer(fresh), await offer(fresh)];
    expect((await take(fresh, "A".repeat(43))).status).toBe(404);
    expect((await take(fresh, secret)).json).toMatchObject({ email: "first@example.org", is_staff: true });
    expect((await take(fresh, secret, "second@example.org")).status).toBe(404);
    expect((await take(fresh, ofAnotherReplica, "second@example.org")).status).toBe(404);
    const body = { email: "first@example.org", password };
    const { access } = pair(await fresh.send("POST", "/api/token/", { body }));
    expect((await fresh.send("GET", "/api/docs/", { token: access })).status).toBe(200);
    expect(await offerFirstUser(fresh.app.services)).toBeUndefined();
    expect(JSON.stringify(await fresh.db.all("SELECT * FROM meta"))).not.toContain("first_account");
  });

  test("its link expires after 30 minutes, and when another user is created", async () => {
    await using fresh = await makeTestServer();
    const [late, overtaken] = [await offer(fresh), await offer(fresh)];
    fresh.clock.ms += 30 * 60_000 + 1;
    expect((await take(fresh, late)).status).toBe(404);
    fresh.clock.ms -= 30 * 60_000 + 1;
    await fresh.person("operator@example.org");
    expect((await take(fresh, overtaken)).status).toBe(404);
  });

  test("links that have expired are deleted when another one is made", async () => {
    await using fresh = await makeTestServer();
    const links = async () =>
      (await fresh.db.all("SELECT key FROM meta WHERE key LIKE 'first_account %'")).length;
    await offer(fresh);
    await offer(fresh);
    expect(await links()).toBe(2);
    fresh.clock.ms += 30 * 60_000 + 1;
    await offer(fresh);
    expect(await links()).toBe(1);
  });

  test("used by many at the same instant, the link creates one user", async () => {
    await using fresh = await makeTestServer();
    const secret = await offer(fresh);
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => take(fresh, secret, `p${at}@example.org`)),
    );
    expect(answers.map((each) => each.status).filter((each) => each === 201)).toHaveLength(1);
    expect(await fresh.db.all("SELECT id FROM users")).toHaveLength(1);
  });
});
