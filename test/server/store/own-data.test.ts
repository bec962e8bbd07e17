// Root's commands follow no link that the user of the service has placed in the data directory, whatever the file.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { Database as Sqlite } from "bun:sqlite";
import { asOperator } from "../../../src/server/operator.ts";
import { restoreBackup } from "../../../src/server/backup/restore.ts";
import { makeBackup } from "../../../src/server/backup/backup.ts";
import { rotateSecretKey } from "../../../src/server/backup/key-rotation.ts";
import { withAdmin } from "../../../src/server/admin.ts";
import { openData, planData, prepareDirectory } from "../../../src/server/store/data-directory.ts";
import { ownNames } from "../../../src/server/store/own-data.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import {
  checkDatabase,
  copyDatabase,
  isAlone,
  removeTraces,
} from "../../../src/server/store/sqlite/files.ts";
import { requireOurSchema } from "../../../src/server/store/sqlite/schema.ts";
import { realSystem } from "../../../src/base/system.ts";
import { rejection, thrown } from "../../pki/thrown.ts";
import { asRoot } from "../../support/engines.ts";
import { sourceFiles, sourceRoot } from "../../support/imports.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const service = 12_345;
const system = { ...realSystem(), env: {} };
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
let directory: ReturnType<typeof temporaryDirectory>;
let data: string;
let backup: string;
const place = () => ({ dataDirectory: data });

/** Everything that a control plane keeps there, as the user of the service has it. */
async function fill(): Promise<void> {
  await withAdmin(place(), system, async (admin) => {
    await makeBackup(admin, backup);
    await rotateSecretKey(
      { ...admin, system: { ...system, sleep: async () => {} } },
      join(data, "secret.key"),
    );
  });
  mkdirSync(join(data, "archive"));
  for (const name of [
    "serve.lock",
    "control.db-wal",
    "control.db-shm",
    "control.db-journal",
    "control.db.restoring",
    "archive/1.jsonl",
  ])
    writeFileSync(join(data, name), "");
  chownSync(data, service, service);
  for (const name of readdirSync(data, { recursive: true }))
    chownSync(join(data, String(name)), service, service);
}

beforeEach(async () => {
  directory = temporaryDirectory();
  data = join(directory.path, "data");
  backup = join(directory.path, "backup.db");
  await fill();
});
afterEach(() => directory[Symbol.dispose]());

const ways: [string, () => Promise<unknown>][] = [
  ["openData", () => openData(place(), "visitor", system)],
  ["an admin command", () => asOperator(place(), { system, log }, async () => undefined)],
  ["restore", () => restoreBackup(place(), backup, { replace: true, unauthenticated: false }, system)],
  ["a plan", async () => planData(place(), system)],
  ["the start of a server", async () => prepareDirectory(data)],
];

asRoot("a file that the user of the service has replaced", () => {
  test("is refused in every way, whichever it is, and nothing is written where it leads", async () => {
    const victim = join(directory.path, "victim");
    const names = readdirSync(data, { recursive: true }).map(String);
    expect(names.length).toBeGreaterThan(8);
    for (const name of names) {
      const path = join(data, name);
      const aside = join(directory.path, "aside");
      renameSync(path, aside);
      writeFileSync(victim, "");
      symlinkSync(victim, path);
      Bun.spawnSync(["chown", "-h", `${service}`, path]);
      for (const [way, act] of ways) {
        const error = await rejection(act());
        expect([name, way, error.code]).toEqual([name, way, "foreign_files"]);
      }
      expect(readFileSync(victim, "utf8")).toBe("");
      rmSync(path);
      renameSync(aside, path);
    }
  });

  test("is refused as a hard link to a file of root, and as one of another user", async () => {
    const path = join(data, "control.db");
    rmSync(path);
    writeFileSync(join(directory.path, "victim"), "");
    linkSync(join(directory.path, "victim"), path);
    for (const [, act] of ways) expect((await rejection(act())).message).toContain("second name");
    rmSync(path);
    writeFileSync(path, "");
    chownSync(path, 4711, 0);
    for (const [, act] of ways) expect((await rejection(act())).message).toContain("belongs to user 4711");
  });

  test("is refused where SQLite opens it", async () => {
    const [path, victim] = [join(data, "control.db"), join(directory.path, "victim.db")];
    new Sqlite(victim).run("CREATE TABLE mine (id)");
    const before = readFileSync(victim);
    rmSync(path);
    symlinkSync(victim, path);
    Bun.spawnSync(["chown", "-h", `${service}`, path]);
    const opened: (() => unknown)[] = [
      () => checkDatabase(path),
      () => isAlone(path),
      () => removeTraces(path),
      () => requireOurSchema(path),
      () => copyDatabase(path, join(directory.path, "copy.db")),
    ];
    for (const act of opened) expect(thrown(act).message).toContain("made it a link");
    expect((await rejection(openSqlite({ path, now: Date.now, role: "visitor" }))).code).toBe(
      "foreign_files",
    );
    expect(readFileSync(victim)).toEqual(before);
  });

  test("a link that root made leads to the data", async () => {
    const path = join(data, "control.db");
    for (const end of ["-wal", "-shm", "-journal"]) rmSync(path + end);
    renameSync(path, join(directory.path, "elsewhere.db"));
    symlinkSync(join(directory.path, "elsewhere.db"), path);
    await withAdmin(place(), system, async ({ db }) => db.get("SELECT 1 AS n"));
    expect(lstatSync(path).isSymbolicLink()).toBe(true);
  });

  test("all that is kept there is examined, and SQLite files are opened in one place", () => {
    const others = readdirSync(data).filter((name) => !ownNames.test(name));
    expect(others).toEqual([]);
    expect(existsSync(join(data, "secret.key.former"))).toBe(true);
    const opening = sourceFiles().filter(
      (file) =>
        file.startsWith("server/") &&
        /new Sqlite\((?!":memory:")/.test(readFileSync(join(sourceRoot, file), "utf8")),
    );
    expect(opening).toEqual(["server/store/sqlite/files.ts"]);
  });
});
