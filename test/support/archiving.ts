// A process for tests that kill it: records events in a database and archives them, as fast as it can. Prints the id of
// each event after its commit. Arguments: the data directory.

import { join } from "node:path";
import { makeLog } from "../../src/base/log.ts";
import { operator, record } from "../../src/server/audit/record.ts";
import { archiveBatch } from "../../src/server/retention/archive.ts";
import { openSqlite } from "../../src/server/store/sqlite/sqlite.ts";
import { queryNumber } from "../../src/server/store/table.ts";
import { realSystem } from "../../src/base/system.ts";

const [dataDirectory = ""] = process.argv.slice(2);
const system = realSystem();
const db = await openSqlite({ path: join(dataDirectory, "control.db"), now: Date.now, role: "server" });
const log = makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: true });
const deps = { db, system, log, secretKey: new Uint8Array(32).fill(7, 0, 9), dataDirectory };
for (;;) {
  for (let at = 0; at < 5; at++) {
    const id = await db.write(async (tx) => {
      const after = { text: "x".repeat(500) };
      await record(tx, {
        orgId: null,
        at: Date.now(),
        type: "user.created",
        actor: operator,
        subject: "u",
        after,
      });
      return queryNumber(tx, "SELECT max(id) AS n FROM events");
    });
    process.stdout.write(`${id}\n`);
  }
  await archiveBatch(deps, { id: null, slug: null }, { eventsS: 1e6, eventBytes: 6000 });
}
