// Two servers on one PostgreSQL: a node may report to either.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres } from "../../../src/server/store/postgres.ts";
import { countOf, nodeOf, registerNode } from "../../support/nodes.ts";
import { createDatabase, describePostgres, startPostgres, type Postgres } from "../../support/postgres.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";

setDefaultTimeout(120_000);

describePostgres("two servers on one database", () => {
  let cluster: Postgres;
  beforeAll(async () => {
    cluster = await startPostgres();
  });
  afterAll(() => cluster.stop());

  const open = (url: string, secretKey: Uint8Array) =>
    makeTestServer({
      secretKey,
      open: async (now) => ({ db: await openPostgres({ url, now }), dispose: () => undefined }),
    });
  /** The next notification about a node that this server hears; undefined if there is none. */
  const nextNotice = (server: TestServer) =>
    new Promise<string | undefined>((resolve) => {
      const timer = setTimeout(() => resolve(undefined), 3000);
      const end = server.db.listen("node", (payload) => {
        clearTimeout(timer);
        end();
        resolve(payload);
      });
    });

  test("a version that a node confirmed at one server counts, whatever the other server cached", async () => {
    const url = await createDatabase(cluster.directory);
    const secretKey = crypto.getRandomValues(new Uint8Array(32));
    await using first = await open(url, secretKey);
    await using second = await open(url, secretKey);
    const org = await first.organization("acme");
    const node = await registerNode(first, org, "web");
    await first.db.write((tx) => tx.run("UPDATE organizations SET last_version = 8 WHERE id = $1", [org.id]));
    const atSecond = nodeOf(second, org, node.keys, node.answer);
    const confirmed = () =>
      countOf(first, "SELECT confirmed_config_version AS n FROM nodes WHERE org_id = $1", org.id);

    const heard = nextNotice(second);
    await node.checkin({ config_version: 7, confirmed_config_version: 7 });
    await heard;
    await atSecond.checkin({ config_version: 8, confirmed_config_version: 8 });
    expect(await confirmed()).toBe(8);
    // Its engine refused version 8, so that the node went back.
    const again = nextNotice(second);
    await node.checkin({ config_version: 7, confirmed_config_version: 7 });
    expect(await confirmed()).toBe(7);
    await again;
    await atSecond.checkin({ config_version: 8, confirmed_config_version: 8 });
    expect(await confirmed()).toBe(8);
  });
});
