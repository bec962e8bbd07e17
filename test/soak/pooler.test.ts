// A real PgBouncer between a server and PostgreSQL: a server that would lose the settings of its sessions does not start.
// Needs the package `pgbouncer`.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { sessionSettings } from "../../src/server/store/postgres/refusals.ts";
import { installMissing } from "../support/debian.ts";
import {
  asPostgres,
  createDatabase,
  describePostgres,
  giveToPostgres,
  startPostgres,
  unsynced,
} from "../support/postgres.ts";
import { until } from "../support/until.ts";

const ignored = `ignore_startup_parameters = ${Object.keys(sessionSettings).join(",")}`;

describePostgres("PgBouncer", () => {
  test.each([
    ["transaction", ""],
    ["transaction", ignored],
    ["session", ""],
    ["session", ignored],
  ])(
    "that pools each %s is refused (%s)",
    async (mode, more) => {
      expect(installMissing(["/usr/sbin/pgbouncer"])).toBeUndefined();
      await using cluster = await startPostgres(unsynced);
      const { pathname } = new URL(await createDatabase(cluster.directory));
      const directory = join(cluster.directory, "pooler");
      mkdirSync(directory);
      giveToPostgres(directory);
      const settings = [
        "[databases]",
        `* = host=${cluster.directory} user=postgres`,
        "[pgbouncer]",
        `listen_addr =\nunix_socket_dir = ${directory}\nlisten_port = 5432\nauth_type = any`,
        `pool_mode = ${mode}\n${more}\n`,
      ];
      writeFileSync(join(directory, "ini"), settings.join("\n"));
      const log = Bun.file(join(directory, "log"));
      const pooler = Bun.spawn([...asPostgres, "--pdeathsig=INT", "pgbouncer", join(directory, "ini")], {
        stdout: "ignore",
        stderr: log,
      });
      try {
        await until(async () => (await log.text()).includes("process up"));
        const url = `postgres://postgres@localhost${pathname}?host=${encodeURIComponent(directory)}`;
        const refused = await openPostgres({ url, now: Date.now }).then(
          () => "it starts",
          (error: unknown) => error,
        );
        expect(refused).toMatchObject({ code: "bad_configuration" });
        expect(String(refused)).toContain("does not keep sessions");
      } finally {
        pooler.kill();
        await pooler.exited;
      }
    },
    120_000,
  );
});
