// Two servers on one PostgreSQL: a node may report to either.

import { SQL } from "bun";
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { writeSightings } from "../../../src/server/store/sightings.ts";
import { checkinOf, countOf, nodeOf, registerNode } from "../../support/nodes.ts";
import { describePostgres, openedAt, useMigrated } from "../../support/postgres.ts";
import { makeTestServer, type TestServer } from "../../support/server.ts";
import { until } from "../../support/until.ts";

setDefaultTimeout(120_000);

describePostgres("two servers on one database", () => {
  const createDatabase = useMigrated();
  let url: string;
  let first: TestServer;
  let second: TestServer;
  beforeAll(async () => {
    url = await createDatabase();
    const open = openedAt(url);
    const secretKey = crypto.getRandomValues(new Uint8Array(32));
    first = await makeTestServer({ open, secretKey });
    second = await makeTestServer({ open, secretKey });
  });
  afterAll(async () => {
    for (const each of [first, second]) await each[Symbol.asyncDispose]();
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
    const org = await first.organization("acme");
    const node = await registerNode(first, org, "web");
    await first.db.write((tx) => tx.run("UPDATE organizations SET last_version = 8 WHERE id = $1", [org.id]));
    const atSecond = nodeOf(second, org, node.keys, node.answer);
    const confirmed = () =>
      countOf(first, "SELECT confirmed_config_version AS n FROM nodes WHERE org_id = $1", org.id);

    const heard = nextNotice(second);
    await node.checkin({ config_version: 7, confirmed_config_version: 7 });
    await heard;
    const told = nextNotice(first);
    await atSecond.checkin({ config_version: 8, confirmed_config_version: 8 });
    expect(await confirmed()).toBe(8);
    // Before it hears of that, the first server takes the same report for no news; the node repeats it with each check-in.
    await told;
    // Its engine refused version 8, so that the node went back.
    const again = nextNotice(second);
    await node.checkin({ config_version: 7, confirmed_config_version: 7 });
    expect(await confirmed()).toBe(7);
    await again;
    await atSecond.checkin({ config_version: 8, confirmed_config_version: 8 });
    expect(await confirmed()).toBe(8);
  });

  test("a confirmation is stored although another replica remembers it from before a lower one", async () => {
    const org = await first.organization("confirming");
    const node = await registerNode(first, org, "node");
    await first.db.write((tx) => tx.run("UPDATE organizations SET last_version = 5 WHERE id = $1", [org.id]));
    const checkin = (on: TestServer, version: number) =>
      on.send("POST", `/api/org/confirming/nodes/${node.id}/checkin/`, {
        token: node.token,
        body: { version: "1.0.0", uptime: 7, config_version: version, confirmed_config_version: version },
      });
    const confirmed = () =>
      countOf(
        first,
        "SELECT count(*) AS n FROM nodes WHERE id = $1 AND confirmed_config_version = 5",
        node.id,
      );
    for (const on of [first, second]) await checkin(on, 5);
    await checkin(second, 4);
    expect(await confirmed()).toBe(0);
    // The notice arrives.
    while ((await checkin(first, 5)).status === 200 && (await confirmed()) === 0) await Bun.sleep(20);
    expect(await confirmed()).toBe(1);
  });

  test("a late report of one replica does not replace a newer one of another", async () => {
    const org = await first.organization("reporting");
    const { id: nodeId } = await registerNode(first, org, "node");
    const at = first.clock.ms;
    const report = (on: TestServer, lastCheckinAt: number, uptime: number) =>
      on.db.writeFor("rows", (tx) =>
        writeSightings(tx, [
          {
            nodeId,
            lastCheckinAt,
            uptime,
            reportedVersion: null,
            overlayState: null,
            dataPlane: null,
            appliedConfigVersion: null,
          },
        ]),
      );
    const stored = () =>
      first.db.get("SELECT last_checkin_at AS at, uptime FROM sightings WHERE node_id = $1", [nodeId]);
    await report(first, at + 60_000, 2);
    await report(second, at, 1);
    expect(await stored()).toEqual({ at: at + 60_000, uptime: 2 });
    // A clock that was set back.
    await report(second, at - 3_600_000, 3);
    expect(await stored()).toEqual({ at: at - 3_600_000, uptime: 3 });
  });

  test("a node that confirms a version gets news while another server holds the lock of its organization", async () => {
    const org = await first.organization("locked");
    const node = await registerNode(first, org, "web");
    await registerNode(first, org, "hub", { is_lighthouse: true, public_ip: "203.0.113.1" });
    const { config_version: former } = checkinOf(await node.checkin());
    await registerNode(first, org, "relay", { is_lighthouse: true, public_ip: "203.0.113.2" });
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
    await until(async () => (await countOf(first, waiting, org.id)) === 1, { ms: 30_000 }).finally(
      over.resolve,
    );
    await holding;
    expect(checkinOf(answer).config_changed).toBe(true);
    const confirmed = "SELECT confirmed_config_version AS n FROM nodes WHERE id = $1";
    await until(async () => (await countOf(first, confirmed, node.id)) === former);
  });
});
