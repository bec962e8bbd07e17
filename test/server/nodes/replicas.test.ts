// Two servers on one PostgreSQL: a node may report to either.

import { SQL } from "bun";
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres } from "../../../src/server/store/postgres.ts";
import { checkinOf, countOf, nodeOf, registerNode } from "../../support/nodes.ts";
import { createDatabase, describePostgres, startPostgres, type Postgres } from "../../support/postgres.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

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

  test("a node that confirms a version gets news while another server holds the lock of its organization", async () => {
    const url = await createDatabase(cluster.directory);
    await using server = await open(url, crypto.getRandomValues(new Uint8Array(32)));
    const org = await server.organization("acme");
    const node = await registerNode(server, org, "web");
    await registerNode(server, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    const { config_version: former } = checkinOf(await node.checkin());
    await registerNode(server, org, "relay", { is_lighthouse: true, public_ip: "203.0.113.2" });
    await using other = new SQL(url, { max: 1 });
    const over = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const holding = other.begin(async (inside) => {
      await inside.unsafe(`SELECT pg_advisory_xact_lock(8421, ${org.id})`);
      locked.resolve();
      await over.promise;
    });
    await locked.promise;
    const confirms = { config_version: former, confirmed_config_version: former };
    const answer = await node.checkin(confirms, { wait: 55 });
    // The write of the confirmation still waits for the lock, which it would not get within 15 s.
    const waiting = "SELECT count(*) AS n FROM pg_locks WHERE objid::bigint = $1 AND NOT granted";
    await until(async () => (await countOf(server, waiting, org.id)) === 1, { ms: 30_000 }).finally(
      over.resolve,
    );
    await holding;
    expect(checkinOf(answer).config_changed).toBe(true);
    const confirmed = "SELECT confirmed_config_version AS n FROM nodes WHERE id = $1";
    await until(async () => (await countOf(server, confirmed, node.id)) === former);
  });
});
