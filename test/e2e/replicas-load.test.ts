// Three servers on one PostgreSQL behind a balancer, under load, each killed again and again, and one stopped while it ran
// all loops: nothing acknowledged is lost, no loop runs twice, and a revocation is in force within seconds. Commits take
// 20 ms longer, and one clock is ahead. A minute in all, or half an hour with SOAK=1.

import { beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { databaseClock } from "../../src/server/store/database.ts";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { seed, slug, tokenOf } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { startBalancer } from "../support/balancer.ts";
import { installMissing } from "../support/debian.ts";
import { createDatabase, describePostgres, startPostgres } from "../support/postgres.ts";
import { makeRandom } from "../support/random.ts";
import { makeLoad, type Acknowledged } from "../support/replica-load.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const [loadMs, killEveryMs] = inFull ? [600_000, 30_000] : [5000, 4000];
/** How long a server is stopped. */
const stoppedMs = inFull ? 30_000 : 12_000;
const witnesses = 20;
const workers = 4;
/** On nodes that hold a poll. A busy machine of a pull request gets more time. */
const bars = inFull
  ? { usualMs: 3500, afterKillMs: 6000, takeoverMs: 15_000 }
  : { usualMs: 10_000, afterKillMs: 15_000, takeoverMs: 60_000 };

describePostgres("three servers under load", () => {
  beforeAll(() => expect(installMissing(["/usr/bin/faketime"])).toBeUndefined(), 120_000);

  test("kills lose nothing that was acknowledged; revocations are in force within seconds", async () => {
    buildAgent();
    using directory = temporaryDirectory();
    // Each commit takes 20 ms longer, also when no other transaction runs.
    await using cluster = await startPostgres(["commit_delay = 20000", "commit_siblings = 0"]);
    const data = join(directory.path, "data");
    const databaseUrl = await createDatabase(cluster.directory);
    const flags = ["--database-url", databaseUrl, "--webhook-allow", "127.0.0.0/8"];
    const place = ["--data-dir", data, "--database-url", databaseUrl];
    const credentials = await seed({ dataDirectory: data, databaseUrl }, witnesses);
    const db = await openPostgres({ url: databaseUrl, now: Date.now, role: "visitor" });
    // The clock of the last one is 2 s ahead.
    const library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    // The program `faketime` would be the parent of the server, which then survives its kill.
    const ahead = (argv: readonly string[]) => ["env", `LD_PRELOAD=${library}`, "FAKETIME=+2s", ...argv];
    const start = (at: number) => startControlPlane(data, flags, 0, at === 2 ? ahead : undefined);
    const servers = await Promise.all([start(0), start(1), start(2)]);
    let suspended: string | undefined;
    using balancer = startBalancer(() => servers.map(({ url }) => url).filter((url) => url !== suspended));
    using hook = receiveWebhooks();

    const closing = new AbortController();
    const load = makeLoad(balancer.url, credentials, closing.signal);
    const hooked = await load.send("POST", `/api/org/${slug}/webhooks/`, credentials.admin, {
      url: hook.url,
      events: ["node.*"],
    });
    expect(hooked?.status).toBe(201);
    const newest = new Map<number, number>();
    const running = [
      ...Array.from({ length: witnesses }, (_, at) => load.witness(at + 1, tokenOf(at + 1), newest)),
      ...Array.from({ length: workers }, (_, at) => load.administer(`worker-${at}`)),
    ];
    // By the operator: service tokens cannot touch CAs.
    await agentJson(["admin", "ca", "rotate", slug, "--now", ...place]);

    let continuedAt = Number.NEGATIVE_INFINITY;
    let killedAt = Number.NEGATIVE_INFINITY;
    let phase = "before the first kill";
    const late: string[] = [];
    const latencies: number[] = [];
    const watching = watchRevocations(load.done, closing.signal, async (id) => {
      const begun = performance.now();
      const row = await db.get("SELECT config_version FROM organizations WHERE slug = $1", [slug]);
      const version = Number(row?.["config_version"]);
      const at = phase;
      // How much later than asked this process went on: the machine is that busy.
      let lagMs = 0;
      while ([...newest.values()].some((each) => each < version) && !closing.signal.aborted) {
        const from = performance.now();
        await Bun.sleep(20);
        lagMs = Math.max(lagMs, performance.now() - from - 20);
      }
      const took = performance.now() - begun;
      // A poll on a server that is stopped cannot learn of it.
      if (suspended !== undefined || begun < continuedAt) return;
      latencies.push(took);
      const bar = begun - killedAt < 10_000 ? bars.afterKillMs : bars.usualMs;
      const after = ((begun - killedAt) / 1000).toFixed(1);
      if (took > bar)
        late.push(
          `node ${id}: ${took.toFixed(0)} ms, ${at}, ${after} s after a kill, lag ${lagMs.toFixed(0)} ms`,
        );
    });
    const random = makeRandom(20_261_122);
    let kills = 0;
    for (const victim of [0, 1, 2]) {
      for (const end = Date.now() + loadMs; Date.now() < end;) {
        await Bun.sleep(killEveryMs * (0.75 + random() / 4));
        const server = servers[victim];
        if (server === undefined) break;
        phase = `kills of server ${victim}`;
        process.kill(server.pid, "SIGKILL");
        [killedAt, kills] = [performance.now(), kills + 1];
        servers[victim] = await start(victim);
      }
    }
    // The first server gets all leases, and keeps them beside the others.
    phase = "only the first server";
    for (const at of [1, 2]) await servers[at]?.stop();
    // One that was killed a moment ago still seems to be there.
    const present = `SELECT id FROM replicas WHERE seen_at > ${databaseClock} - 4000`;
    const isLeader = `SELECT 1 FROM leases HAVING (SELECT count(*) FROM (${present}) p) = 1
      AND count(*) = sum(CASE WHEN holder IN (${present}) THEN 1 ELSE 0 END)`;
    while ((await db.get(isLeader)) === undefined) await Bun.sleep(50);
    for (const at of [1, 2]) servers[at] = await start(at);
    phase = "three servers";
    const [leader] = servers;
    if (leader === undefined) throw new Error("There are three servers");
    const fences = async () =>
      (await db.all("SELECT fence FROM leases ORDER BY name")).map((row) => Number(row["fence"]));
    const before = await fences();
    suspended = leader.url;
    process.kill(leader.pid, "SIGSTOP");
    const stoppedAt = performance.now();
    while ((await fences()).some((fence, at) => fence === before[at])) await Bun.sleep(50);
    const takenOverMs = performance.now() - stoppedAt;
    await Bun.sleep(stoppedMs - takenOverMs);
    process.kill(leader.pid, "SIGCONT");
    [continuedAt, suspended] = [performance.now() + 5000, undefined];
    await Bun.sleep(8000);
    // The last revocations get their time.
    await Bun.sleep(3000);
    closing.abort();
    await Promise.all([...running, watching]);
    process.stderr.write(
      `${kills} kills, ${load.done.registered.size} registrations, ${load.done.renamed.size} renames, ` +
        `${load.done.revoked.size} revocations, in force after ${Math.max(0, ...latencies).toFixed(0)} ms at the latest; ` +
        `loops taken over after ${takenOverMs.toFixed(0)} ms\n${late.map((each) => `late: ${each}\n`).join("")}`,
    );
    expect(load.faults).toEqual([]);
    expect(load.done.revoked.size).toBeGreaterThan(0);
    expect(takenOverMs).toBeLessThan(bars.takeoverMs);

    expect(await lost(db, load.done)).toEqual([]);
    await agentJson(["admin", "audit", "verify", ...place]);
    const twice = "SELECT ip FROM nodes WHERE state <> 'revoked' GROUP BY ip HAVING count(*) > 1";
    expect(await db.all(twice)).toEqual([]);
    // A delivery that a killed server had claimed is sent again after 26 s.
    const waiting = "SELECT count(*) AS n FROM deliveries WHERE next_at IS NOT NULL";
    const unseen = `SELECT count(*) AS n FROM webhooks w JOIN events e ON e.org_id = w.org_id AND e.id > w.seen_event_id`;
    for (const sql of [unseen, waiting]) {
      while (Number((await db.get(sql))?.["n"]) > 0) await Bun.sleep(100);
    }
    const expected = [
      ...[...load.done.registered.keys()].map((id) => `node.registered node/${id}`),
      ...[...load.done.revoked].map((id) => `node.revoked node/${id}`),
    ];
    expect(expected.filter((each) => !hook.received.has(each))).toEqual([]);
    // No loop ran twice.
    expect(
      await db.all(`SELECT type, subject, after FROM events WHERE type LIKE 'ca.%'
      GROUP BY type, subject, after HAVING count(*) > 1`),
    ).toEqual([]);
    expect(
      await db.all("SELECT 1 FROM deliveries GROUP BY webhook_id, event_id HAVING count(*) > 1"),
    ).toEqual([]);
    await db.close();
    for (const server of servers) await server.stop();
    expect(late).toEqual([]);
  }, 2_400_000);
});

/** Calls `measure` for each revocation soon after its acknowledgement. */
async function watchRevocations(
  { revoked }: Acknowledged,
  signal: AbortSignal,
  measure: (id: number) => Promise<void>,
): Promise<void> {
  const seen = new Set<number>();
  const running: Promise<void>[] = [];
  while (!signal.aborted) {
    for (const id of revoked) {
      if (seen.has(id)) continue;
      seen.add(id);
      running.push(measure(id));
    }
    await Bun.sleep(5);
  }
  await Promise.all(running);
}

/** What was acknowledged and is not in the database, or has no event or more than one. */
async function lost(
  db: { all(sql: string): Promise<Record<string, unknown>[]> },
  { registered, renamed, revoked }: Acknowledged,
): Promise<string[]> {
  const nodes = new Map(
    (await db.all("SELECT id, name, ip, state FROM nodes")).map((row) => [row["id"], row]),
  );
  const counts = await db.all("SELECT type, subject, count(*) AS n FROM events GROUP BY type, subject");
  const events = new Map(counts.map((row) => [`${String(row["type"])} ${String(row["subject"])}`, row["n"]]));
  const missing: string[] = [];
  for (const [id, { ip }] of registered) {
    const node = nodes.get(id);
    if (node?.["ip"] !== ip) missing.push(`node ${id} at ${ip}`);
    if (!(Number(events.get(`node.registered node/${id}`)) >= 1)) missing.push(`event of node ${id}`);
  }
  for (const [id, name] of renamed)
    if (nodes.get(id)?.["name"] !== name) missing.push(`name ${name} of node ${id}`);
  for (const id of revoked) {
    if (nodes.get(id)?.["state"] !== "revoked") missing.push(`revocation of node ${id}`);
    if (events.get(`node.revoked node/${id}`) !== 1) missing.push(`event of the revocation of node ${id}`);
  }
  return missing;
}

function receiveWebhooks() {
  const received = new Set<string>();
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const body: unknown = await request.json();
      if (typeof body === "object" && body !== null && "type" in body && "subject" in body) {
        received.add(`${String(body.type)} ${String(body.subject)}`);
      }
      return new Response(null, { status: 204 });
    },
  });
  return { url: server.url.href, received, [Symbol.dispose]: () => void server.stop(true) };
}
