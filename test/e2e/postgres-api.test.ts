// The whole API on PostgreSQL, by the tests that also run on SQLite. Those that start a PostgreSQL of their own are among
// the unit tests, and not run again.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { cleanEnvironment } from "../support/agent.ts";
import { createLendable } from "../support/lent-postgres.ts";
import { mountMemory } from "../support/memory.ts";
import { describePostgres, startPostgres, unsynced } from "../support/postgres.ts";
import { longest, shortRuns } from "../support/test-files.ts";

const root = join(import.meta.dir, "../..");
const processes = 3;
/** Databases are dropped after a moment: no vacuum, a short log of changes, no compiled queries. */
const small = [
  "autovacuum = off",
  "wal_level = minimal",
  "max_wal_senders = 0",
  "max_wal_size = 64MB",
  "jit = off",
];

describePostgres("on PostgreSQL", () => {
  test("the API passes the same tests on PostgreSQL", async () => {
    // Each test file copies a database, which takes most of its time on a slow disk.
    using memory = mountMemory();
    await using cluster = await startPostgres([...unsynced, ...small], memory?.path);
    await createLendable(cluster.directory);
    const files: string[] = [];
    for (const file of new Bun.Glob("test/server/**/*.test.ts").scanSync(root)) {
      const text = await Bun.file(join(root, file)).text();
      if (text.includes("support/server.ts") && !text.includes("describePostgres")) files.push(`./${file}`);
    }
    expect(files.length).toBeGreaterThan(3);
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
    for (const { failed, status } of reports) expect([failed, status]).toEqual([[], 0]);
    const passed = reports.reduce((sum, each) => sum + each.passed, 0);
    expect(passed).toBeGreaterThan(400);
  }, 1_100_000);
});

async function runTests(files: readonly string[], cluster: string) {
  const child = Bun.spawn([process.execPath, "test", "--timeout=60000", ...files], {
    cwd: root,
    env: cleanEnvironment({ ...shortRuns, TEST_POSTGRES: cluster, HOME: process.env["HOME"] ?? "/" }),
    stdout: "ignore",
    stderr: "pipe",
  });
  const report = await new Response(child.stderr).text();
  return {
    // With the reasons, which stand before the name of the test.
    failed: report.split("\n(pass)").filter((part) => part.includes("\n(fail)")),
    status: await child.exited,
    passed: Number(/^ *(\d+) pass$/m.exec(report)?.[1]),
  };
}
