// The API on PostgreSQL, by the tests that also run on SQLite: those of each folder whose sources changed. Those that start a PostgreSQL of their own are among the unit tests, and not run again.

import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { cleanEnvironment } from "../support/agent.ts";
import { countsOf } from "../support/junit.ts";
import { isDue } from "../support/last-soak.ts";
import { createLendable } from "../support/lent-postgres.ts";
import { mountMemory } from "../support/memory.ts";
import { describePostgres, startPostgres, unsynced } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { inFull } from "../support/soak.ts";
import { longest, postgresPart, shortRuns } from "../support/test-files.ts";

const root = join(import.meta.dir, "../..");
const limitMs = inFull ? 3_600_000 : 1_100_000;
/** Each loads and compiles the server for itself. */
const processes = 2;
/**
 * In files each of whose statements is also run by a file without this line, so another database answers the same. They take
 * more than half of the processor time of all, so only long runs have them on PostgreSQL.
 */
const onSqliteAlone = "// On SQLite alone: other files run the same statements on PostgreSQL.";
/** Databases are dropped after a moment: no vacuum, a short log of changes, no compiled queries. */
const small = [
  "autovacuum = off",
  "wal_level = minimal",
  "max_wal_senders = 0",
  "max_wal_size = 64MB",
  "jit = off",
];

describePostgres("on PostgreSQL", () => {
  test(
    "the API passes the same tests on PostgreSQL",
    async () => {
      // Each test file copies a database, which takes most of its time on a slow disk.
      using memory = mountMemory();
      await using cluster = await startPostgres([...unsynced, ...small], memory?.path);
      await createLendable(cluster.directory);
      let files: string[] = [];
      for (const file of new Bun.Glob("test/server/**/*.test.ts").scanSync(root)) {
        const text = await Bun.file(join(root, file)).text();
        const isHere = text.includes("support/server.ts") && !text.includes("describePostgres");
        if (isHere && (inFull || !text.includes(onSqliteAlone))) files.push(`./${file}`);
      }
      expect(files.length).toBeGreaterThan(50);
      files = files.filter((file) => isDue(postgresPart(file)));
      // The longest ones to different processes.
      const rank = (file: string) => (longest.indexOf(file.replace("./test/", "")) + 999) % 999;
      files.sort((a, b) => rank(a) - rank(b));
      // Several processes: one alone waits for the database and for time most of the while.
      const reports = await Promise.all(
        Array.from({ length: processes }, (_, part) =>
          runTests(
            files.filter((_, at) => at % processes === part),
            cluster.directory,
          ),
        ),
      );
      const reasons = reports.flatMap((each) => each.reasons);
      if (reasons.length > 0) throw new Error(`On PostgreSQL failed:\n${reasons.join("\n")}`);
      const passed = reports.reduce((sum, each) => sum + each.passed, 0);
      process.stderr.write(`${files.length} files, ${passed} tests on PostgreSQL\n`);
      expect(passed).toBeGreaterThan(3 * files.length);
    },
    limitMs,
  );
});

/** Prints the output of failed tests; their reasons, a line each, are for the message of this test. */
async function runTests(files: readonly string[], cluster: string) {
  using directory = temporaryDirectory();
  const path = join(directory.path, "report.xml");
  const flags = ["--timeout=120000", "--reporter=junit", `--reporter-outfile=${path}`];
  const child = Bun.spawn([process.execPath, "test", ...flags, ...files], {
    cwd: root,
    env: cleanEnvironment({ ...shortRuns, TEST_POSTGRES: cluster, HOME: process.env["HOME"] ?? "/" }),
    stdout: "ignore",
    stderr: "pipe",
  });
  const output = await new Response(child.stderr).text();
  const status = await child.exited;
  const counts = countsOf(existsSync(path) ? readFileSync(path, "utf8") : "", status);
  if (counts.failed === 0) return counts;
  // Without the tests that passed. An error between tests fails none of them.
  const failures = output.split("\n(pass)").filter((part) => /\n\(fail\)|Unhandled error/.test(part));
  process.stderr.write([...failures, output.slice(-1000), ""].join("\n"));
  const ended = `the process ended with ${status}: ${output.slice(-300)}`;
  return { ...counts, reasons: counts.reasons.length > 0 ? counts.reasons : [ended] };
}
