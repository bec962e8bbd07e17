// A write must not be decided from rights that another process has ended, and costs no query while rights are unchanged.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import { makeCallerLookup } from "../../../../src/server/users/sessions/callers.ts";
import type { Database } from "../../../../src/server/store/database.ts";
import { openSqlite } from "../../../../src/server/store/sqlite/sqlite.ts";
import { users } from "../../../../src/server/store/tables/users.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";

const now = () => 1000;
let directory: ReturnType<typeof temporaryDirectory>;
let server: Database;
let visitor: Database;
let queries: number;

beforeEach(async () => {
  directory = temporaryDirectory();
  const path = join(directory.path, "control.db");
  // The server looks by itself too late for these tests.
  server = await openSqlite({ path, now, role: "server", pollMs: 1_000_000 });
  visitor = await openSqlite({ path, now, role: "visitor" });
  await server.write((tx) =>
    users.insert(tx, { id: 1, email: "ada@example.org", passwordHash: "", createdAt: 1, sessionsFrom: 0 }),
  );
  queries = 0;
});
afterEach(async () => {
  await visitor.close();
  await server.close();
  directory[Symbol.dispose]();
});

function makeLookup(hasHeardAll = () => server.hasHeardAll()) {
  const get: Database["get"] = (sql, params) => {
    queries++;
    return server.get(sql, params);
  };
  const verifyAccess = async () => ({ userId: 1, issuedAt: 500, family: "f" });
  const sessions = { verifyAccess, wasIssued: () => true };
  const lookup = makeCallerLookup({ db: { ...server, get, hasHeardAll }, now, sessions });
  return (isWrite: boolean) => lookup.bearer("Bearer a.b.c", isWrite, () => {});
}

test("a write by a known user reads no row", async () => {
  const find = makeLookup();
  await find(false);
  // The user, and whether the session has ended.
  expect(queries).toBe(2);
  expect(await find(true)).toMatchObject({ kind: "person", userId: 1 });
  expect(queries).toBe(2);
});

test("a user whom another process disabled a moment ago may not write", async () => {
  const find = makeLookup();
  await find(false);
  await visitor.write(async (tx) => {
    await users.update(tx, { id: 1 }, { isActive: false });
    await tx.notify("auth", "user 1");
  });
  expect(find(true)).rejects.toMatchObject({ code: "token_not_valid" });
});

test("where the notices may be late, as with PostgreSQL, each write reads user and session again", async () => {
  const find = makeLookup(() => false);
  await find(false);
  await find(true);
  expect(queries).toBe(4);
  await visitor.write((tx) => users.update(tx, { id: 1 }, { isActive: false }));
  expect(find(true)).rejects.toMatchObject({ code: "token_not_valid" });
});

test("the name of the scheme has no case, and the token keeps its own", async () => {
  const lookup = makeCallerLookup({
    db: server,
    now,
    sessions: {
      verifyAccess: async (token) => {
        expect(token).toBe("A.b.C");
        return { userId: 1, issuedAt: 500, family: "f" };
      },
      wasIssued: () => true,
    },
  });
  for (const header of ["Bearer A.b.C", "bearer A.b.C", "BEARER  A.b.C"])
    expect(await lookup.bearer(header, false, () => {})).toMatchObject({ kind: "person", userId: 1 });
  for (const header of ["BearerA.b.C", "Basic A.b.C", "A.b.C"])
    expect(lookup.bearer(header, false, () => {})).rejects.toMatchObject({ code: "not_authenticated" });
});
