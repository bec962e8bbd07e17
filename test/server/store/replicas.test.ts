// Servers on one PostgreSQL: which of them may start, and what the administrator sees of each.

import { afterEach, expect, test } from "bun:test";
import { AppError } from "../../../src/base/errors.ts";
import { makeLog } from "../../../src/base/log.ts";
import { sealSecret } from "../../../src/pki/secrets.ts";
import { writeMetrics } from "../../../src/server/metrics/metrics.ts";
import { databaseClock, type Database } from "../../../src/server/store/database.ts";
import { makeLeases } from "../../../src/server/store/leases.ts";
import { setMeta } from "../../../src/server/store/meta.ts";
import {
  formerVersion,
  migrate,
  newestVersion,
  requireNewNeighbors,
} from "../../../src/server/store/migrations.ts";
import { openPostgres } from "../../../src/server/store/postgres/postgres.ts";
import {
  checkReplica,
  forgetReplica,
  listReplicas,
  noteReplica,
} from "../../../src/server/store/replicas.ts";
import { rememberErrors } from "../../../src/server/http/remember-errors.ts";
import { realSystem } from "../../../src/base/system.ts";
import { describePostgres, useMigrated } from "../../support/postgres.ts";
import { makeTestServer } from "../../support/server.ts";
import { failureOf } from "./cases.ts";

const key = (n: number) => new Uint8Array(32).fill(3).fill(n, 0, 1);

describePostgres("replicas", () => {
  const createDatabase = useMigrated();
  const ends: (() => Promise<void>)[] = [];

  afterEach(async () => {
    for (const end of ends.splice(0).toReversed()) await end();
  });

  const open = async () => {
    const url = await createDatabase();
    const database = await openPostgres({ url, now: Date.now });
    ends.push(() => database.close());
    return database;
  };
  const note = (db: Database, id: string, secretKey = [key(1)], now = Date.now) =>
    db.writeFor("rows", (tx) =>
      noteReplica(
        tx,
        { id, host: `host-of-${id}`, version: "1.2.3", now, secretKey },
        { noticesBehindMs: 7, lastError: undefined },
      ),
    );
  const refusal = async (start: Promise<unknown>) => {
    const error = await failureOf(start);
    if (error instanceof AppError) return [error.code, `${error.message}. ${error.details.hint ?? ""}`];
    return error;
  };
  const check = (db: Database, secretKey: Uint8Array[], now = Date.now) =>
    checkReplica(db, { secretKey, now });

  test("a server with the database's key and a right clock may start, also as the first", async () => {
    const db = await open();
    await check(db, [key(1)]);
    await db.write((tx) => setMeta(tx, "jwt_key", sealSecret(key(1), "secret", "jwt_key")));
    await note(db, "a");
    await check(db, [key(1)]);
    await check(db, [key(1)], () => Date.now() + 4000);
  });

  test("a clock that is 5 s off is refused", async () => {
    const db = await open();
    const [code, ahead] = (await refusal(check(db, [key(1)], () => Date.now() + 7000))) as string[];
    expect(code).toBe("bad_configuration");
    expect(ahead).toMatch(/clock of this server is [67]\.\d seconds ahead of .*timedatectl/);
    const [, behind] = (await refusal(check(db, [key(1)], () => Date.now() - 60_000))) as string[];
    expect(behind).toContain("seconds behind the clock of the database");
  });

  test("another secret.key is refused, whether the other server runs or not", async () => {
    const db = await open();
    await db.write((tx) => setMeta(tx, "jwt_key", sealSecret(key(1), "secret", "jwt_key")));
    expect(await refusal(check(db, [key(2)]))).toEqual([
      "bad_configuration",
      expect.stringContaining("is not the one of this database. Copy secret.key"),
    ]);
    // During a rotation: a running server already encrypts with a key that this one lacks.
    await note(db, "a", [key(2), key(1)]);
    const [, text] = (await refusal(check(db, [key(1)]))) as string[];
    expect(text).toContain("the one of the server on host-of-a differ");
    await check(db, [key(2), key(1)]);
    await check(db, [key(1), key(2)]);
    // Nothing tells the key itself.
    for (const each of [key(1), key(2)]) expect(text).not.toContain(Buffer.from(each).toString("base64url"));
    await forgetReplica(db, "a");
    await check(db, [key(1)]);
  });

  test("a migration is refused while a server runs that is more than one release older", async () => {
    const db = await open();
    await note(db, "a");
    const as = (schema: number) =>
      db.write(async (tx) => {
        await tx.run("UPDATE replicas SET schema_version = $1", [schema]);
        await requireNewNeighbors(tx);
      });
    await as(newestVersion);
    await as(formerVersion);
    const [code, text] = (await refusal(as(formerVersion - 1))) as string[];
    expect(code).toBe("bad_configuration");
    expect(text).toContain(
      "The server on host-of-a runs version 1.2.3, which is too old to run beside this one",
    );
    // Without anything to migrate, the other servers are not asked.
    await db.write((tx) => tx.run("UPDATE replicas SET schema_version = 1"));
    await migrate(db, 0);
  });

  test("each server is listed with leases, lag, clock and last error; an ended one for a while", async () => {
    const db = await open();
    const remembered = rememberErrors(
      makeLog({ verbose: false, write: () => undefined, now: Date.now, stamped: true }),
      () => 5,
    );
    remembered.log.warn("upkeep failed; retrying", {
      reason: "Authorization: Bearer abcdefghijklmnopqrstuv",
    });
    remembered.log.info("all is well");
    const self = {
      id: "b",
      host: "host-b",
      version: "2.0.0",
      now: () => Date.now() + 2000,
      secretKey: [key(1)],
    };
    const leases = makeLeases({
      db,
      holder: "b",
      system: realSystem(),
      log: remembered.log,
      alongside: (tx) => noteReplica(tx, self, { noticesBehindMs: 400, lastError: remembered.last() }),
    });
    const lease = leases.of("loop");
    leases.start();
    ends.push(() => leases.stop());
    while (!lease.take()) await Bun.sleep(10);
    await note(db, "a");
    await db.write((tx) => tx.run("UPDATE replicas SET seen_at = seen_at - 60000 WHERE id = 'a'"));
    const [b, a, ...more] = await listReplicas(db);
    expect(more).toEqual([]);
    expect(b).toMatchObject({
      id: "b",
      isRunning: true,
      leases: ["loop"],
      noticesBehindMs: 400,
      lastErrorAt: 5,
    });
    expect(Math.abs((b?.clockAheadMs ?? 0) - 2000)).toBeLessThan(1000);
    expect(b?.lastError).toContain("upkeep failed; retrying: ");
    expect(b?.lastError).not.toContain("abcdefghijklmnopqrstuv");
    expect(a).toMatchObject({ id: "a", isRunning: false, leases: [], lastError: null });
    await db.write((tx) => tx.run("UPDATE replicas SET seen_at = seen_at - 3600000 WHERE id = 'a'"));
    await note(db, "c");
    expect((await listReplicas(db)).map(({ id }) => id).toSorted()).toEqual(["b", "c"]);
  });

  test("a server that is stopped falls behind, and is listed as running for 20 s", async () => {
    const db = await open();
    await note(db, "a");
    const unseenFor = async (ms: number) => {
      await db.write((tx) => tx.run(`UPDATE replicas SET seen_at = ${databaseClock} - $1`, [ms]));
      const [listed] = await listReplicas(db);
      return { isRunning: listed?.isRunning, isBehind: (listed?.noticesBehindMs ?? 0) >= 7 + ms - 2500 };
    };
    expect(await unseenFor(10_000)).toEqual({ isRunning: true, isBehind: true });
    expect(await unseenFor(86_400_000)).toEqual({ isRunning: false, isBehind: true });
  });

  test("the metrics have a line for each server", async () => {
    const db = await open();
    await note(db, "a");
    await using server = await makeTestServer({ open: async () => ({ db, dispose: () => undefined }) });
    ends.length = 0;
    const text = await writeMetrics({ ...server.app.services });
    for (const name of ["last_seen", "clock_ahead", "notices_behind"]) {
      expect(text).toMatch(
        new RegExp(`overlay_agent_server_${name}_seconds\\{server="a",host="host-of-a"\\} [0-9.-]+`),
      );
    }
  });
});
