// A backup is restored only if this control plane made it, and its schema is compared even if an operator vouches for it.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { fixture, writeFixture } from "../../support/fixture.ts";
import { admin, json, must, place, populate, stop, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

const Restored = v.object({ organizations: v.number(), staff: v.optional(v.array(v.string())) });
const restore = async (file: string, flags = "") =>
  admin(`restore ${file} --replace ${flags} --json`.replace(/ +/g, " "));

/** A copy of the backup that `change` altered with SQLite. Then `from` becomes `to`, which is as long, in its bytes. */
function altered(change: string, from = "", to = ""): string {
  const path = join(place.path, `altered-${readdirSync(place.path).length}.db`);
  copyFileSync(place.backup, path);
  {
    using sqlite = new Sqlite(path);
    sqlite.run(change);
  }
  if (from !== "")
    writeFileSync(path, readFileSync(path).toString("latin1").replaceAll(from, to), { encoding: "latin1" });
  return path;
}

async function makeBackup(): Promise<void> {
  await populate();
  await must(`backup ${place.backup}`);
  await stop();
}

test("an added staff user, another byte and a missing proof are refused; --unauthenticated names staff", async () => {
  await makeBackup();
  const evil = altered(
    "INSERT INTO users (email, password_hash, is_staff, created_at) VALUES ('eve@example.org', 'x', 1, 0)",
  );
  const refused = await restore(evil);
  expect([refused.status, refused.out + refused.err]).toEqual([
    1,
    expect.stringContaining("changed after it was made"),
  ]);
  const bytes = readFileSync(place.backup);
  const other = join(place.path, "other.db");
  for (const change of [
    (copy: Buffer) => copy.subarray(0, -1),
    (copy: Buffer) => Buffer.concat([copy, Buffer.from("\n")]),
    (copy: Buffer) => Buffer.concat([bytes, copy.subarray(-105)]),
    (copy: Buffer) => {
      copy.writeUInt8(copy.readUInt8(copy.length - 200) ^ 1, copy.length - 200);
      return copy;
    },
    () => Buffer.alloc(0),
  ]) {
    writeFileSync(other, change(Buffer.from(bytes)));
    const { status, out, err } = await restore(other);
    expect([status, out + err]).toEqual([1, expect.stringContaining("backup_unauthenticated")]);
  }
  const taken = await restore(evil, "--unauthenticated");
  expect(v.parse(Restored, JSON.parse(taken.out)).staff).toEqual(["ada@example.org", "eve@example.org"]);
  expect(v.parse(Restored, await json(`restore ${place.backup} --replace`)).staff).toBeUndefined();
}, 120_000);

test("a damaged backup is called what it is, and --unauthenticated does not restore it", async () => {
  await makeBackup();
  const bytes = readFileSync(place.backup);
  const body = bytes.subarray(0, -106);
  const other = join(place.path, "other.db");
  for (const [content, damage] of [
    [Buffer.alloc(0), "it is empty"],
    [Buffer.from("a list of machines\n"), "it is no backup"],
    [bytes.subarray(0, 50), "it is truncated: its header"],
    [bytes.subarray(0, 5000), `it is truncated: 5000 of ${body.length} bytes are there`],
    [bytes.subarray(0, body.length - 4096), "it is truncated"],
    [bytes.subarray(0, -1), "it is truncated: the proof at its end"],
    [bytes.subarray(0, body.length + 1), "it is truncated: the proof at its end"],
    [Buffer.concat([bytes, Buffer.from("x")]), "it is damaged: 107 bytes follow its last page"],
    [Buffer.concat([bytes, bytes.subarray(-106)]), "it is damaged: 106 bytes follow its last page"],
  ] as const) {
    writeFileSync(other, content);
    for (const flag of ["", "--unauthenticated"]) {
      const { status, out, err } = await restore(other, flag);
      expect([status, out + err]).toEqual([1, expect.stringContaining(`Cannot restore ${other}: ${damage}`)]);
      expect(out + err).not.toContain("need --unauthenticated");
    }
  }
  // Whole, without the proof: only this one is advised to be vouched for.
  writeFileSync(other, body);
  expect((await restore(other)).out).toContain("need --unauthenticated");
  expect((await restore(other, "--unauthenticated")).status).toBe(0);
}, 120_000);

test("a schema that is not ours is refused, also with --unauthenticated", async () => {
  await makeBackup();
  const before = readFileSync(join(place.data, "control.db"));
  for (const [change, named] of [
    ["CREATE TRIGGER t AFTER UPDATE ON nodes BEGIN UPDATE users SET is_staff = 1; END", "trigger t"],
    ["CREATE VIEW w AS SELECT 1", "view w"],
    ["CREATE INDEX i ON nodes (state)", "index i"],
    ["CREATE TABLE more (a)", "table more"],
    ["CREATE VIRTUAL TABLE f USING fts5(a)", "table f"],
    ["ALTER TABLE users ADD COLUMN more TEXT", "table users"],
    ["DROP INDEX webhooks_org", "index webhooks_org"],
    ["DROP TABLE migrations", "table migrations"],
    ["DELETE FROM migrations WHERE version > 5", "table organizations"],
    ["UPDATE migrations SET version = version - 1000", "was added"],
  ] as const) {
    const { status, out, err } = await restore(altered(change), "--unauthenticated");
    expect([change, status, out + err]).toEqual([change, 78, expect.stringContaining(named)]);
  }
  expect(readFileSync(join(place.data, "control.db")).equals(before)).toBe(true);
  // What SQLite itself refuses, but a changed file may hold.
  const trigger = "CREATE TRIGGER xqlite_stat1 AFTER UPDATE ON nodes BEGIN DELETE FROM users; END";
  for (const [file, named] of [
    [altered(trigger, "xqlite_stat1", "sqlite_stat1"), "trigger sqlite_stat1"],
    [altered("ANALYZE", "is_staff INT NOT NULL DEFAULT 0", "is_staff INT NOT NULL DEFAULT 1"), "table users"],
    [altered("ANALYZE", "stat1(tbl,idx,stat)", "stat1(tbl,idx,stax)"), "table sqlite_stat1"],
  ] as const) {
    const { status, out, err } = await restore(file, "--unauthenticated");
    expect([named, status, out + err]).toEqual([named, 78, expect.stringContaining(named)]);
  }
  const known = altered("ANALYZE");
  expect((await restore(known, "--unauthenticated")).status).toBe(0);
}, 120_000);

test("a database with a trigger gives no backup", async () => {
  await makeBackup();
  {
    using sqlite = new Sqlite(join(place.data, "control.db"));
    sqlite.run("CREATE TRIGGER t AFTER UPDATE ON nodes BEGIN UPDATE users SET is_staff = 1; END");
  }
  const second = join(place.path, "second.db");
  const { status, err } = await admin(`backup ${second}`);
  expect([status, err]).toEqual([78, expect.stringContaining("trigger t")]);
  expect(readdirSync(place.path)).not.toContain("second.db");
}, 120_000);

test("a backup of 0.1.0 is restored with --unauthenticated", async () => {
  mkdirSync(place.data, { mode: 0o700 });
  const key = Buffer.from(fixture.secret_key).toString("base64url");
  writeFileSync(join(place.data, "secret.key"), `${key}\n`, { mode: 0o600 });
  const old = join(place.path, "0.1.0.db");
  writeFixture(old);
  const refused = await admin(`restore ${old}`);
  expect([refused.status, refused.err]).toEqual([1, expect.stringContaining("Backups of 0.1.0")]);
  expect(await json(`restore ${old} --unauthenticated`)).toMatchObject({ organizations: 2, nodes: 4 });
}, 120_000);

test("a backup from before `key rotate` needs the former key, and is authentic with it", async () => {
  await makeBackup();
  await must("key rotate");
  const key = join(place.data, "secret.key");
  const { status, out, err } = await restore(place.backup);
  expect([status, out + err]).toEqual([78, expect.stringContaining("append the former key")]);
  appendFileSync(key, readFileSync(`${key}.former`));
  expect(await restore(place.backup)).toMatchObject({ status: 0 });
}, 120_000);

test("the database that a restore replaced can be restored like a backup", async () => {
  await makeBackup();
  const { set_aside } = v.parse(
    v.object({ set_aside: v.string() }),
    await json(`restore ${place.backup} --replace`),
  );
  expect((await restore(set_aside)).status).toBe(0);
}, 120_000);

test("a backup that others may read makes a private database", async () => {
  await makeBackup();
  chmodSync(place.backup, 0o644);
  await must(`restore ${place.backup} --replace`);
  const path = join(place.data, "control.db");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  chmodSync(path, 0o640);
  await must(`restore ${place.backup} --replace`);
  expect(statSync(path).mode & 0o777).toBe(0o640);
}, 120_000);

test.if(process.getuid?.() === 0)(
  "what root restores or creates belongs to the owner of the data directory",
  async () => {
    await makeBackup();
    const service = { uid: 4242, gid: 4343 };
    const foreign = (at: string) =>
      readdirSync(at).filter((name) => {
        const { uid, gid } = statSync(join(at, name));
        return uid !== service.uid || gid !== service.gid;
      });
    for (const name of ["", ...readdirSync(place.data)])
      chownSync(join(place.data, name), service.uid, service.gid);
    await must(`restore ${place.backup} --replace`);
    await must("key rotate");
    expect(foreign(place.data)).toEqual([]);

    const elsewhere = join(place.path, "elsewhere");
    mkdirSync(elsewhere, { mode: 0o700 });
    chownSync(elsewhere, service.uid, service.gid);
    await must("user create eve@example.org --password-file -", elsewhere, "correct horse battery");
    expect(foreign(elsewhere)).toEqual([]);

    const third = join(place.path, "third");
    mkdirSync(third, { mode: 0o700 });
    writeFileSync(join(third, "secret.key"), readFileSync(join(place.data, "secret.key.former")), {
      mode: 0o600,
    });
    chownSync(join(third, "secret.key"), service.uid, service.gid);
    chownSync(third, service.uid, service.gid);
    await must(`restore ${place.backup}`, third);
    expect(foreign(third)).toEqual([]);
  },
  120_000,
);
