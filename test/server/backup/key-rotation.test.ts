import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { openSecret, sealSecret, keyIdOfEnvelope, secretKeyId } from "../../../src/pki/secrets.ts";
import { verifyBackup } from "../../../src/server/backup/backup.ts";
import { openData } from "../../../src/server/store/data-directory.ts";
import { operator } from "../../../src/server/audit/record.ts";
import { rotateSecretKey, sealedColumns } from "../../../src/server/backup/key-rotation.ts";
import { createOrganization } from "../../../src/server/organizations/organizations.ts";
import { readSecretKeys } from "../../../src/server/store/secret-keys.ts";
import { webhookContext } from "../../../src/server/webhooks/webhooks.ts";
import { realSystem } from "../../../src/base/system.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const system = { ...realSystem(), sleep: async () => undefined };

async function open(directory: string) {
  const place = { dataDirectory: directory };
  const data = await openData(place, "server", { ...system, env: {} });
  const make = (slug: string) =>
    createOrganization(
      { ...data, system },
      { slug, network: "10.77.0.0/16" },
      { ownerId: null, ownerEmail: null, actor: operator },
    );
  const sealed = async () => {
    const found: { sealed: string; context: string }[] = [];
    for (const { table, column, of, context } of sealedColumns) {
      const rows = await data.db.all(
        `SELECT ${column} AS sealed, ${of} FROM ${table} WHERE ${column} LIKE 's1.%'`,
      );
      found.push(...rows.map((row) => ({ sealed: String(row["sealed"]), context: context(row) })));
    }
    return found;
  };
  return { ...data, place, make, sealed, path: join(directory, "secret.key") };
}

test("every column whose name ends in _sealed is listed", async () => {
  using directory = temporaryDirectory();
  const { db } = await open(directory.path);
  const columns = await db.all(
    `SELECT m.name AS "table", p.name AS "column" FROM sqlite_schema m, pragma_table_info(m.name) p
     WHERE m.type = 'table' AND p.name LIKE '%!_sealed' ESCAPE '!' ORDER BY 1, 2`,
  );
  const known = sealedColumns.filter(({ table }) => table !== "meta");
  expect(columns).toEqual(known.map(({ table, column }) => ({ table, column })));
  await db.close();
});

test("everything is sealed with the new key, the former key is kept, and a running server follows", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make, sealed, secretKey } = await open(directory.path);
  const { id } = await make("acme");
  await db.write(async (tx) => {
    const row = await tx.get(
      "INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at) VALUES ($1, '', '[]', '', 0) RETURNING id",
      [id],
    );
    const secret = sealSecret(secretKey, "whsec", webhookContext(Number(row?.["id"])));
    await tx.run("UPDATE webhooks SET secret_sealed = $1", [secret]);
    await tx.run("INSERT INTO meta (key, value) VALUES ('jwt_key', $1)", [
      sealSecret(secretKey, "jwk", "jwt_key"),
    ]);
  });
  const before = await sealed();
  expect(before).toHaveLength(5);
  const plain = before.map((each) => openSecret(secretKey, each.sealed, each.context));
  const [former] = readSecretKeys(path);

  const done = await rotateSecretKey({ db, system, place }, path);
  expect(done).toMatchObject({ finished: true, resealed: 5, former_key_file: `${path}.former` });
  const [fresh, ...more] = readSecretKeys(path);
  expect(more).toEqual([]);
  expect(readSecretKeys(`${path}.former`)).toEqual([former ?? new Uint8Array()]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const after = await sealed();
  expect(new Set(after.map((each) => keyIdOfEnvelope(each.sealed)))).toEqual(new Set([done.key_id]));
  expect(done.key_id).toBe(secretKeyId(fresh ?? new Uint8Array()));
  // With the keys that were opened before the rotation.
  expect(after.map((each) => openSecret(secretKey, each.sealed, each.context))).toEqual(plain);
  await make("beta");
  await rotateSecretKey({ db, system, place }, path);
  expect(readSecretKeys(`${path}.former`)).toHaveLength(2);
  await db.close();
});

test("the next run continues an interrupted one with the same new key", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make, sealed, secretKey } = await open(directory.path);
  await make("acme");
  const broken = { ...system, sleep: () => Promise.reject(new Error("killed")) };
  expect(await rotateSecretKey({ db, system: broken, place }, path).catch(String)).toContain("killed");
  expect(readSecretKeys(path)).toHaveLength(2);
  const [fresh] = readSecretKeys(path);
  await make("beta");
  for (const each of await sealed()) openSecret(secretKey, each.sealed, each.context);
  const done = await rotateSecretKey({ db, system, place }, path);
  expect(done).toMatchObject({ finished: true, key_id: secretKeyId(fresh ?? new Uint8Array()) });
  for (const each of await sealed()) expect(keyIdOfEnvelope(each.sealed)).toBe(done.key_id);
  await db.close();
});

test("with replicas the first run only adds the new key to the file", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make, sealed } = await open(directory.path);
  await make("acme");
  const replicated = { ...place, databaseUrl: "postgres://elsewhere" };
  const [former] = readSecretKeys(path);
  const first = await rotateSecretKey({ db, system, place: replicated }, path);
  expect(first).toMatchObject({ finished: false, resealed: 0 });
  for (const each of await sealed()) openSecret(former ?? [], each.sealed, each.context);
  expect(await rotateSecretKey({ db, system, place: replicated }, path)).toMatchObject({
    finished: true,
    resealed: 3,
    key_id: first.key_id,
  });
  await db.close();
});

test("no file of the database keeps what was encrypted with the former key, while a server reads and writes", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make, secretKey } = await open(directory.path);
  const { id } = await make("acme");
  // A secret that is deleted before the rotation.
  await db.write(async (tx) => {
    const secret = sealSecret(secretKey, "x".repeat(20_000), "webhook 1");
    await tx.run(
      "INSERT INTO webhooks (org_id, url, events, secret_sealed, created_at) VALUES ($1, '', '[]', $2, 0)",
      [id, secret],
    );
  });
  await db.write((tx) => tx.run("DELETE FROM webhooks"));
  const [former] = readSecretKeys(path);
  const files = () =>
    ["", "-wal"].map((end) => readFileSync(join(directory.path, `control.db${end}`), "latin1")).join("");
  const envelope = `s1.${secretKeyId(former ?? new Uint8Array())}`;
  expect(files()).toContain(envelope);
  const admin = await openData(place, "visitor", { ...system, env: {} });
  await rotateSecretKey({ db: admin.db, system, place }, path);
  await admin.db.close();
  expect(files()).not.toContain(envelope);
  await make("beta");
  expect(files()).not.toContain(envelope);
  await db.close();
});

test("a rotation waits for its end while another process reads the former state", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make } = await open(directory.path);
  await make("acme");
  using reader = new Database(join(directory.path, "control.db"));
  reader.run("BEGIN");
  reader.query("SELECT count(*) FROM organizations").get();
  expect(await rotateSecretKey({ db, system, place }, path).catch(String)).toContain("Another process reads");
  reader.run("COMMIT");
  const [fresh] = readSecretKeys(path);
  expect(await rotateSecretKey({ db, system, place }, path)).toMatchObject({
    finished: true,
    key_id: secretKeyId(fresh ?? new Uint8Array()),
  });
  await db.close();
}, 120_000);

/** A server whose writes bring a checkpoint each, as large ones do. */
const busyServer = `
  import { Database } from "bun:sqlite";
  const db = new Database(process.argv[1]);
  db.run("PRAGMA busy_timeout = 60000");
  db.run("PRAGMA wal_autocheckpoint = 1");
  db.run("CREATE TABLE filler (id INTEGER PRIMARY KEY, content BLOB)");
  for (let at = 0; ; at++) {
    db.run("INSERT OR REPLACE INTO filler VALUES (?, randomblob(200000))", [at % 20]);
    if (at === 20) console.log("ready");
    Bun.sleepSync(2);
  }`;

test("a rotation does not fail by the checkpoints of a server that writes", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make } = await open(directory.path);
  await make("acme");
  await db.close();
  const file = join(directory.path, "control.db");
  const server = Bun.spawn([process.execPath, "-e", busyServer, file], { stdout: "pipe" });
  try {
    await server.stdout.getReader().read();
    const { db: own } = await openData(place, "visitor", { ...system, env: {} });
    for (let at = 0; at < 4; at++)
      expect(await rotateSecretKey({ db: own, system, place }, path)).toMatchObject({ finished: true });
    await own.close();
  } finally {
    server.kill("SIGKILL");
    await server.exited;
  }
}, 120_000);

test("two runs at once: one is refused", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make } = await open(directory.path);
  await make("acme");
  const slow = { ...system, sleep: () => Bun.sleep(300) };
  const one = rotateSecretKey({ db, system: slow, place }, path);
  expect(await rotateSecretKey({ db, system, place }, path).catch(String)).toContain("Another run");
  expect((await one).finished).toBe(true);
  await db.close();
});

test("a backup needs keys that open all of it; the new and the former key together do", async () => {
  using directory = temporaryDirectory();
  const { db, place, path, make } = await open(directory.path);
  await make("acme");
  const copy = join(directory.path, "copy.db");
  const [former] = readSecretKeys(path);
  using present = new Database(join(directory.path, "control.db"));
  present.run(`VACUUM INTO '${copy}'`);
  await rotateSecretKey({ db, system, place }, path);
  const [fresh] = readSecretKeys(path);
  if (former === undefined || fresh === undefined) throw new Error("No keys");
  expect(await verifyBackup(copy, { secretKey: [fresh], isAuthentic: true }, system).catch(String)).toContain(
    "which is missing",
  );
  expect(await verifyBackup(copy, { secretKey: [fresh, former], isAuthentic: true }, system)).toMatchObject({
    organizations: 1,
  });
  await db.close();
});
