// A database that is gone is no new control plane; readiness tells of a full disk and of damage.

import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  openSync,
  closeSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { Database } from "bun:sqlite";
import { join } from "node:path";
import * as v from "valibot";
import { withAdmin } from "../../../src/server/admin.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { makeBackup } from "../../../src/server/backup/backup.ts";
import { restoreBackup } from "../../../src/server/backup/restore.ts";
import { createOrganization } from "../../../src/server/organizations/organizations.ts";
import { openData, planData, requireData } from "../../../src/server/store/data-directory.ts";
import { setMeta } from "../../../src/server/store/meta.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import { realSystem } from "../../../src/base/system.ts";
import { agent, buildAgent } from "../../support/agent.ts";
import { damageTable } from "../../support/damage-table.ts";
import { rejection } from "../../pki/thrown.ts";
import { asRoot } from "../../support/engines.ts";
import { makeTestServer } from "../../support/server.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const system = { ...realSystem(), env: {} };
let directory: ReturnType<typeof temporaryDirectory>;
let data: string;
let backup: string;
const place = () => ({ dataDirectory: data });
const path = (end = "") => join(data, `control.db${end}`);
const remove = () => ["", "-wal", "-shm"].forEach((end) => rmSync(path(end), { force: true }));
const open = async (role: "server" | "visitor" = "server") =>
  (await openData(place(), role, system)).db.close();

beforeEach(async () => {
  directory = temporaryDirectory();
  data = join(directory.path, "data");
  backup = join(directory.path, "backup.db");
  await withAdmin(place(), system, async (admin) => {
    const by = { ownerId: null, ownerEmail: null, actor: operator };
    await createOrganization(admin, { slug: "acme", network: "10.77.0.0/16" }, by);
    await makeBackup(admin, backup);
  });
});
afterEach(() => directory[Symbol.dispose]());

const losses: [string, RegExp, () => void | Promise<void>][] = [
  ["missing", /is missing, but there was one/, remove],
  ["empty", /is empty, but there was one/, () => (remove(), writeFileSync(path(), ""))],
  [
    "without tables",
    /is empty, but there was one/,
    () => {
      remove();
      using blank = new Database(path());
      blank.run("CREATE TABLE other (id)");
      blank.run("DROP TABLE other");
    },
  ],
];

describe.each(losses)("a database that is %s", (_, reason, lose) => {
  test("is no new control plane, whichever way it is opened, and can be restored", async () => {
    await lose();
    const ways = [() => open(), () => open("visitor"), () => withAdmin(place(), system, async () => {})];
    for (const act of ways) {
      const error = await rejection(act());
      expect([error.code, error.message]).toEqual(["bad_configuration", expect.stringMatching(reason)]);
      expect(error.details.hint).toContain("admin restore");
    }
    await restoreBackup(place(), backup, { replace: true, unauthenticated: false }, system);
    await withAdmin(place(), system, async ({ db }) => {
      expect(await db.get("SELECT slug FROM organizations")).toEqual({ slug: "acme" });
    });
  });
});

test("without a database, plans and commands say that there was one", () => {
  remove();
  expect(() => planData(place(), system)).toThrow("there was one");
  expect(() => requireData(place())).toThrow("there was one");
});

test("a first start that was cut short goes on, and so does one with a secret key that was supplied", async () => {
  const key = readFileSync(join(data, "secret.key"));
  rmSync(data, { recursive: true });
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(join(data, "secret.key"), key, { mode: 0o600 });
  await open();
  rmSync(data, { recursive: true });
  mkdirSync(data, { mode: 0o700 });
  // Killed before its first commit.
  writeFileSync(join(data, "secret.key"), key, { mode: 0o600 });
  writeFileSync(path(), "", { mode: 0o600 });
  await open();
  expect(existsSync(join(data, "data.begun"))).toBe(true);
});

test("data of a former release get the mark", async () => {
  rmSync(join(data, "data.begun"));
  await open();
  expect(statSync(join(data, "data.begun")).mode & 0o777).toBe(0o600);
});

/** Damages a table of new data. Resolves with their key. */
async function openWithDamaged(name: string) {
  const { db, secretKey } = await openData(place(), "visitor", system);
  await db.close();
  damageTable(path(), name);
  return secretKey;
}
const openDamaged = async (now: () => number) => ({
  db: await openSqlite({ path: path(), now, role: "server" }),
  dispose: () => {},
});

test("damage of a page that nothing reads is found by the examination, and readiness fails", async () => {
  const secretKey = await openWithDamaged("recovery_codes");
  buildAgent();
  await using server = await makeTestServer({ open: openDamaged, secretKey });
  const staff = await server.person("staff@example.org", { isStaff: true });
  const warnings = async () => {
    const { status } = await server.send("GET", "/readyz");
    const { json } = await server.send("GET", "/api/servers/", { token: staff });
    return [
      status,
      v.parse(v.object({ warnings: v.array(v.object({ code: v.string(), text: v.string() })) }), json)
        .warnings,
    ];
  };
  const examine = () => server.db.examine({ run: system.run, executable: agent });
  expect(await warnings()).toEqual([200, []]);
  await examine();
  expect(await warnings()).toEqual([
    503,
    [expect.objectContaining({ code: "database_damaged", text: expect.stringContaining("damaged: Tree ") })],
  ]);
});

test("the server examines its database by itself; in a large file, damage that is gone is told no more", async () => {
  await withAdmin(place(), system, ({ db }) =>
    // More than is read while requests wait.
    db.write((tx) => tx.run("CREATE TABLE filler AS SELECT zeroblob(66000000)")),
  );
  buildAgent();
  const whole = readFileSync(path());
  const secretKey = await openWithDamaged("recovery_codes");
  const soon = (ms: number, signal?: AbortSignal) => system.sleep(ms === 60_000 ? 20 : ms, signal);
  const network = { sleep: soon, executable: agent };
  await using server = await makeTestServer({ open: openDamaged, secretKey, network });
  const untilReady = async (status: number) => {
    while ((await server.send("GET", "/readyz")).status !== status) await Bun.sleep(20);
  };
  await untilReady(503);
  const fd = openSync(path(), "r+");
  writeSync(fd, whole, 0, whole.length, 0);
  closeSync(fd);
  server.clock.ms += 600_001;
  await untilReady(200);
});

test("the examination of a whole database finds nothing, beside writes; one that cannot run is no damage", async () => {
  buildAgent();
  const { db } = await openData(place(), "server", system);
  const writing = Promise.all(
    Array.from({ length: 50 }, (_, at) => db.write((tx) => setMeta(tx, `key${at}`, "x".repeat(5000)))),
  );
  await db.examine({ run: system.run, executable: agent });
  await writing;
  expect(await rejection(db.examine({ run: system.run, executable: "/usr/bin/false" }))).toMatchObject({
    message: expect.stringContaining("Cannot examine the database"),
  });
  expect(db.damage()).toBeUndefined();
  await db.close();
});

test("readiness fails once damage of the database was met", async () => {
  const secretKey = await openWithDamaged("organizations");
  await using server = await makeTestServer({ open: openDamaged, secretKey });
  const staff = await server.person("staff@example.org", { isStaff: true });
  expect((await server.send("GET", "/api/org/", { token: staff })).status).toBe(503);
  expect((await server.send("GET", "/readyz")).status).toBe(503);
  const { json } = await server.send("GET", "/api/servers/", { token: staff });
  expect(json).toMatchObject({ warnings: [{ code: "database_damaged" }] });
});

asRoot("a full disk", () => {
  test("fails readiness although small changes find room", async () => {
    const mount = join(directory.path, "small");
    mkdirSync(mount);
    Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", mount]);
    try {
      // The disk of a server on PostgreSQL holds no database.
      const open = async (now: () => number) => ({
        db: await openSqlite({ path: join(mount, "control.db"), now, role: "server" }),
        dispose: () => {},
      });
      await using server = await makeTestServer({ dataDirectory: mount, open });
      const ready = async () => server.send("GET", "/readyz");
      expect((await ready()).json).toEqual({ status: "ok", warnings: [] });
      const { bavail, bsize } = statfsSync(mount);
      writeFileSync(join(mount, "filler"), Buffer.alloc(bavail * bsize - 1_500_000));
      const refused = await ready();
      expect([refused.status, refused.json]).toEqual([
        503,
        expect.objectContaining({ code: "storage_unavailable" }),
      ]);
    } finally {
      Bun.spawnSync(["umount", "-l", mount]);
    }
  });
});
