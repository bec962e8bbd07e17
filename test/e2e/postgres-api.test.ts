// The whole API on PostgreSQL, by the tests that also run on SQLite.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { cleanEnvironment } from "../support/agent.ts";
import { createMigrated, describePostgres, startPostgres, unsynced } from "../support/postgres.ts";

const root = join(import.meta.dir, "../..");

describePostgres("on PostgreSQL", () => {
  test("the API passes the same tests on PostgreSQL", async () => {
    await using cluster = await startPostgres(unsynced);
    await createMigrated(cluster.directory);
    const files: string[] = [];
    for (const file of new Bun.Glob("test/server/**/*.test.ts").scanSync(root)) {
      if ((await Bun.file(join(root, file)).text()).includes("makeTestServer")) files.push(`./${file}`);
    }
    expect(files.length).toBeGreaterThan(3);
    const child = Bun.spawn([process.execPath, "test", "--timeout=60000", ...files], {
      cwd: root,
      env: cleanEnvironment({ TEST_POSTGRES: cluster.directory, HOME: process.env["HOME"] ?? "/" }),
      stdout: "ignore",
      stderr: "pipe",
    });
    const report = await new Response(child.stderr).text();
    const failed = report.split("\n").filter((line) => line.startsWith("(fail)"));
    expect([failed, await child.exited]).toEqual([[], 0]);
    expect(Number(/(\d+) pass/.exec(report)?.[1])).toBeGreaterThan(50);
  }, 500_000);
});
