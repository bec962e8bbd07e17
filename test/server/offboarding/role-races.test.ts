// Two requests about roles at the same instant: whichever is first, no right comes from a role that has ended, and an
// organization keeps an owner.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { operator } from "../../../src/server/audit/record.ts";
import { changeRole } from "../../../src/server/offboarding/member-changes.ts";
import { membershipOf } from "../../support/people.ts";
import type { Organization } from "../../../src/api/organizations.ts";
import type { Role } from "../../../src/api/endpoint.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

let server: TestServer;
let acme: Organization;
const people = ["ada", "ben", "eve"] as const;
type Name = (typeof people)[number];
const tokens = new Map<Name, string>();
const ids = new Map<Name, number>();
const rounds = 60;

const address = (name: Name) => `${name}@example.org`;

beforeAll(async () => {
  server = await makeTestServer();
  acme = await server.organization("acme");
  for (const name of people) {
    tokens.set(name, await server.person(address(name)));
    await server.join(acme, address(name), "owner");
    ids.set(name, await membershipOf(server.db, acme, address(name)));
  }
});
afterAll(() => server[Symbol.asyncDispose]());

const path = (name: Name) => `/api/org/acme/members/${ids.get(name)}/`;
const set = async (by: Name, whom: Name, role: Role) =>
  (await server.send("PATCH", path(whom), { token: tokens.get(by) ?? "", body: { role } })).status;

/** Owners first, so that the last owner is never in the way. */
async function begin(roles: Record<Name, Role>): Promise<void> {
  const by = { role: "owner" as const, actor: operator };
  const inOrder = [...people].sort((a, b) => Number(roles[b] === "owner") - Number(roles[a] === "owner"));
  for (const name of inOrder)
    await changeRole(server.app.services, acme, ids.get(name) ?? 0, roles[name], by);
}

async function rolesNow(): Promise<Record<string, unknown>> {
  const rows = await server.db.all("SELECT email, role FROM memberships ORDER BY email");
  return Object.fromEntries(rows.map((row) => [String(row["email"]).split("@")[0], row["role"]]));
}

/** Who was changed in this round, in the order of the audit log. */
async function changedSince(last: number): Promise<string[]> {
  const rows = await server.db.all(
    "SELECT subject FROM events WHERE type = 'member.updated' AND id > $1 ORDER BY id",
    [last],
  );
  return rows.map((row) => String(row["subject"]));
}
const lastEvent = async () => Number((await server.db.get("SELECT max(id) AS n FROM events"))?.["n"] ?? 0);

test("an admin who is demoted at the same instant makes no owner, of themselves or of another", async () => {
  for (let round = 0; round < rounds; round++) {
    await begin({ ada: "owner", ben: "admin", eve: "admin" });
    const answers = await Promise.all([
      set("ben", "ben", "owner"),
      set("ada", "ben", "member"),
      set("ben", "eve", "owner"),
      set("eve", "ben", "owner"),
      set("eve", "eve", "owner"),
    ]);
    expect(answers).toEqual([403, 200, 403, 403, 403]);
    expect(await rolesNow()).toEqual({ ada: "owner", ben: "member", eve: "admin" });
  }
}, 120_000);

test("an owner who is demoted at the same instant makes owners before that, never after", async () => {
  for (let round = 0; round < rounds; round++) {
    await begin({ ada: "owner", ben: "owner", eve: "admin" });
    const last = await lastEvent();
    const demote = () => set("ada", "ben", round % 3 === 0 ? "member" : "admin");
    const promote = () => set("ben", "eve", "owner");
    const work = round % 2 === 0 ? [demote(), promote()] : [promote(), demote()];
    const answers = await Promise.all(work);
    const [demoted = 0, promoted = 0] = round % 2 === 0 ? answers : answers.toReversed();
    expect(demoted).toBe(200);
    const subjects = await changedSince(last);
    if (promoted === 200) expect(subjects).toEqual(["member/eve@example.org", "member/ben@example.org"]);
    else {
      expect(promoted).toBe(403);
      expect(await rolesNow()).toMatchObject({ eve: "admin" });
    }
  }
}, 120_000);

test("two owners who demote or remove each other, or step down, at the same instant leave one owner", async () => {
  const remove = async (by: Name, whom: Name) =>
    (await server.send("DELETE", path(whom), { token: tokens.get(by) ?? "" })).status;
  const pairs = [
    () => [set("ada", "ben", "admin"), set("ben", "ada", "admin")],
    () => [set("ada", "ada", "admin"), set("ben", "ben", "member")],
    () => [remove("ada", "ben"), set("ben", "ada", "member")],
    () => [remove("ada", "ben"), remove("ben", "ada")],
    () => [remove("ada", "ada"), remove("ben", "ben")],
  ];
  for (let round = 0; round < rounds; round++) {
    for (const name of people) {
      const row = await server.db.get("SELECT id FROM memberships WHERE email = $1", [address(name)]);
      if (row === undefined) await server.join(acme, address(name), "owner");
      ids.set(name, await membershipOf(server.db, acme, address(name)));
    }
    await begin({ ada: "owner", ben: "owner", eve: "member" });
    const answers = await Promise.all(pairs[round % pairs.length]?.() ?? []);
    expect(answers.filter((status) => status < 300)).toHaveLength(1);
    const owners = Object.values(await rolesNow()).filter((role) => role === "owner");
    expect(owners).toHaveLength(1);
  }
}, 120_000);
