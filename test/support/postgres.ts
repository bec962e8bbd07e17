// A real PostgreSQL for tests: Debian's programs with a temporary directory and Unix socket, never Debian's own cluster.
// It ends with the test process, even after a kill.

import { chmodSync, chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SQL } from "bun";
import { afterAll, beforeAll, describe, test } from "bun:test";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { inCi, installMissing, runSync } from "./debian.ts";

export const programs = "/usr/lib/postgresql/15/bin";
/** PostgreSQL refuses to run as root. */
export const asPostgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];

export type Postgres = AsyncDisposable & {
  /** The directory of its socket, for `createDatabase`. */
  directory: string;
  /** Stops it, runs the given work, and starts it again on the same data. */
  restart(meanwhile: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
};

/** Settings without waits for the disk: the data need not survive a crash. */
export const unsynced = ["fsync = off", "synchronous_commit = off", "full_page_writes = off"];

/** Its main process. Each session is a child of it. */
export function postmasterOf({ directory }: Pick<Postgres, "directory">): number {
  return Number(readFileSync(join(directory, "data/postmaster.pid"), "utf8").split("\n")[0]);
}

/** Starts an empty cluster. `settings` are lines for postgresql.conf. `below`: the directory of its data. */
export async function startPostgres(
  settings: readonly string[] = [],
  below: string = tmpdir(),
): Promise<Postgres> {
  const directory = mkdtempSync(join(below, "agent-postgres-"));
  const data = join(directory, "data");
  const isRoot = process.getuid?.() === 0;
  if (isRoot) {
    giveToPostgres(directory);
    chmodSync(directory, 0o755);
  }
  const prefix = isRoot ? [...asPostgres, "--pdeathsig=INT"] : ["setpriv", "--pdeathsig=INT"];
  runSync(
    [...prefix, `${programs}/initdb`, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"],
    {
      cwd: directory,
    },
  );
  const lines = [
    "listen_addresses = ''",
    `unix_socket_directories = '${directory}'`,
    "max_connections = 100",
  ];
  writeFileSync(join(data, "postgresql.conf"), `${[...lines, ...settings].join("\n")}\n`);
  const run = async () => {
    const started = Bun.spawn([...prefix, `${programs}/postgres`, "-D", data], {
      cwd: directory,
      stdin: "ignore",
      stdout: "ignore",
      stderr: Bun.file(join(directory, "log")),
    });
    await untilReady(() => administer(directory, "SELECT 1"), join(directory, "log"));
    return started;
  };
  let child = await run();
  const end = async (signal: "SIGINT" | "SIGQUIT") => {
    if (child.exitCode === null) child.kill(signal);
    await child.exited;
  };
  const stop = async () => {
    // Immediate shutdown: the data is no longer needed.
    await end("SIGQUIT");
    rmSync(directory, { recursive: true, force: true });
  };
  return {
    directory,
    async restart(meanwhile) {
      await end("SIGINT");
      await meanwhile();
      child = await run();
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

/** Creates a database in the cluster of this directory, empty or a copy of another. Returns its URL. */
export async function createDatabase(directory: string, template = "template1"): Promise<string> {
  const name = `test_${process.pid}_${Bun.randomUUIDv7("hex").replaceAll("-", "")}`;
  await administer(directory, `CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
  return urlOf(directory, name);
}

/** Deletes a database that `createDatabase` made in the cluster of this directory. */
export async function dropDatabase(directory: string, url: string): Promise<void> {
  await administer(directory, `DROP DATABASE ${new URL(url).pathname.slice(1)} WITH (FORCE)`);
}

/** The name of a database to copy. */
export const migrated = "migrated";

/** Creates the database `migrated` with our tables, as template for tests that each need a new database. */
export async function createMigrated(directory: string): Promise<void> {
  await administer(directory, `CREATE DATABASE ${migrated}`);
  await (await openPostgres({ url: urlOf(directory, migrated), now: Date.now })).close();
}

/** A cluster without syncs for unit tests. `database` creates a database with our tables. */
export async function startMigrated(): Promise<Postgres & { database(): Promise<string> }> {
  await using cleanup = new AsyncDisposableStack();
  const cluster = cleanup.use(await startPostgres(unsynced));
  await createMigrated(cluster.directory);
  cleanup.move();
  return { ...cluster, database: () => createDatabase(cluster.directory, migrated) };
}

/** One such cluster for the tests of a `describe`. Returns its `database`. */
export function useMigrated(): () => Promise<string> {
  let cluster: Awaited<ReturnType<typeof startMigrated>>;
  beforeAll(async () => {
    cluster = await startMigrated();
  }, 120_000);
  afterAll(() => cluster.stop());
  return () => cluster.database();
}

/** For `makeTestServer`: a server on this database. */
export const openedAt = (url: string) => async (now: () => number) => ({
  db: await openPostgres({ url, now }),
  dispose: () => undefined,
});

/** The URL of that database in the cluster of this directory. */
export function urlOf(directory: string, name: string): string {
  return `postgres://postgres@localhost/${name}?host=${encodeURIComponent(directory)}`;
}

export function giveToPostgres(path: string): void {
  const id = (flag: "-u" | "-g") => Number(runSync(["id", flag, "postgres"]).trim());
  chownSync(path, id("-u"), id("-g"));
}

async function administer(directory: string, statement: string): Promise<void> {
  const sql = new SQL({
    adapter: "postgres",
    path: join(directory, ".s.PGSQL.5432"),
    username: "postgres",
    database: "postgres",
    max: 1,
  });
  try {
    await sql.unsafe(statement);
  } finally {
    await sql.close();
  }
}

async function untilReady(act: () => Promise<void>, log: string): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await act();
    } catch (error) {
      if (tries === 100)
        throw new Error(`PostgreSQL does not start\n${await Bun.file(log).text()}`, { cause: error });
      await Bun.sleep(100);
    }
  }
}

/** Tests with a real PostgreSQL. Without one they are skipped; in CI they fail. */
export function describePostgres(name: string, tests: () => void): void {
  const missing = installMissing([join(programs, "postgres")]);
  if (missing === undefined) return describe(name, tests);
  const reason = `${name}: no PostgreSQL: ${missing}`;
  if (inCi) test(reason, () => Promise.reject(new Error(reason)));
  else test.skip(reason, () => {});
}
