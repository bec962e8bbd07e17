// A damaged database: what the commands say of it, and that a restore is the way out.

import { Database as Sqlite } from "bun:sqlite";
import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { damageTable } from "../../support/damage-table.ts";
import { rejection } from "../../pki/thrown.ts";
import { admin, json, must, place, populate, serve, stop, useControlPlane } from "../../support/restoring.ts";

useControlPlane();

const database = () => join(place.data, "control.db");
const setAside = () =>
  readdirSync(place.data)
    .filter((name) => name.startsWith("control.db.replaced-"))
    .sort();

/** A backup, and a database that ended later. */
async function backUp(): Promise<void> {
  await populate();
  await must(`backup ${place.backup}`);
  await must("node revoke acme b");
  await stop();
}

const overwrite = () => {
  writeFileSync(database(), "garbage ".repeat(5000));
  writeFileSync(`${database()}-wal`, "garbage");
};

test.each([
  { name: "no database at all", damage: overwrite, endsStart: true, isCarried: false },
  {
    name: "a damaged table of starts",
    damage: () => damageTable(database(), "meta"),
    endsStart: true,
    isCarried: true,
  },
  {
    name: "another table",
    damage: () => damageTable(database(), "organizations"),
    endsStart: false,
    isCarried: false,
  },
])(
  "$name: the error names the file and the next line, and a restore sets the file aside",
  async ({ damage, endsStart, isCarried }) => {
    await backUp();
    damage();
    const damaged = readFileSync(database());
    if (endsStart)
      // systemd does not start a service again that ends with this status (control-unit.ts).
      expect(await rejection(serve())).toMatchObject({
        exitStatus: 78,
        message: expect.stringContaining(`The database ${database()} is damaged: `),
        details: { hint: expect.stringContaining("`agent admin restore FILE --replace`") },
      });
    for (const words of ["node list acme", "node revoke acme a", `backup ${place.path}/other.db`]) {
      const { status, err } = await admin(words);
      expect(status).not.toBe(0);
      expect(err).toContain("agent admin restore FILE --replace");
    }

    const said = await must(`restore ${place.backup} --replace`);
    // A restore reads the tables that say what has ended.
    const line = isCarried
      ? "1 nodes revoked since"
      : "Nothing could be carried over from the old database: ";
    expect(said).toContain(line);
    expect(said.includes("What was revoked, deleted or rotated after that is valid again")).toBe(!isCarried);
    const [aside = "", ...journals] = setAside();
    expect(said).toContain(join(place.data, aside));
    // SQLite changes its header at each start.
    expect(readFileSync(join(place.data, aside)).subarray(100, 4096)).toEqual(damaged.subarray(100, 4096));
    for (const journal of journals) expect(journal).toStartWith(`${aside}-`);
    expect(existsSync(`${database()}-wal`)).toBe(false);
    await serve();
    expect(await json("node list acme")).toMatchObject({ nodes: { length: isCarried ? 1 : 2 } });
  },
  120_000,
);

test("an empty file in place of the database carries nothing over either, and a restore says so", async () => {
  await backUp();
  writeFileSync(database(), "");
  const said = await must(`restore ${place.backup} --replace`);
  expect(said).toContain("Nothing could be carried over from the old database: it is empty");
  expect(said).toContain("What was revoked, deleted or rotated after that is valid again");
  expect(setAside()).toHaveLength(1);
}, 120_000);

test("a whole database loses nothing by it: the restore still carries over", async () => {
  await backUp();
  const restored = await json(`restore ${place.backup} --replace`);
  expect(restored).toMatchObject({ revoked_nodes: 1 });
  expect(restored).not.toHaveProperty("unreadable");
}, 120_000);

test("server list of a command finds damage that no server has told it of", async () => {
  await backUp();
  damageTable(database(), "recovery_codes");
  const { warnings } = v.parse(
    v.object({ warnings: v.array(v.object({ code: v.string(), hint: v.string() })) }),
    await json("server list"),
  );
  expect(warnings).toEqual([
    { code: "database_damaged", hint: expect.stringContaining("admin restore FILE --replace") },
  ]);
}, 120_000);

test("the data are of the last time that is not in the future, and a lost IPv6 network is named", async () => {
  await populate();
  await must(`backup ${place.backup}`);
  await must("org update acme --network6 fd77::/64");
  await stop();
  expect(await must(`restore ${place.backup} --replace`)).toContain("acme lost its IPv6 network");
  using sqlite = new Sqlite(database());
  // As a wrong clock wrote it.
  sqlite.run("UPDATE sightings SET last_checkin_at = last_checkin_at + 5 * 86400000");
  sqlite.close();
  await must(`backup ${place.backup}2`);
  const again = v.parse(v.object({ as_of: v.string() }), await json(`restore ${place.backup}2 --replace`));
  expect(Date.parse(again.as_of)).toBeLessThanOrEqual(Date.now());
}, 120_000);
