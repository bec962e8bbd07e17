// PostgreSQL: backups move between it and SQLite, and three servers behind a TCP balancer register machines while one of
// them is killed repeatedly.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { openPostgres } from "../../src/server/store/postgres/postgres.ts";
import { registration } from "../bench/registration.ts";
import { seed, slug } from "../bench/seed.ts";
import { agentJson, buildAgent, runAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { startBalancer } from "../support/balancer.ts";
import { checkin, prepare, send } from "../support/postgres-plane.ts";
import { createDatabase, describePostgres, startPostgres, type Postgres } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";

describePostgres("on PostgreSQL", () => {
  let cluster: Postgres;
  beforeAll(async () => {
    buildAgent();
    cluster = await startPostgres();
  });
  afterAll(async () => {
    await cluster.stop();
  });

  test("a backup of SQLite is restored on PostgreSQL, and its backup on SQLite again", async () => {
    using directory = temporaryDirectory();
    const [data, file] = [join(directory.path, "data"), join(directory.path, "sqlite.db")];
    const seeded = await seed({ dataDirectory: data }, 50);
    const admin = async (words: string[], more: string[] = []) =>
      agentJson(["admin", ...words, "--data-dir", data, ...more]);
    await admin(["backup", file]);
    const databaseUrl = await createDatabase(cluster.directory);
    const onPostgres = ["--database-url", databaseUrl];
    expect(await admin(["restore", file], onPostgres)).toMatchObject({ nodes: 50 });
    const again = await runAgent(["admin", "restore", file, "--data-dir", data, ...onPostgres]);
    expect(again.stderr).toContain("--replace");

    await using server = await startControlPlane(data, onPostgres);
    expect((await checkin(server.url, 7, 1)).status).toBe(200);
    const made = await send(server.url, "POST", paths.nodes(slug), seeded.admin, { name: "made-there" });
    expect(made.status).toBe(201);
    const { id } = v.parse(v.object({ id: v.number() }), await made.json());
    // Ids that were used after the backup are not used again.
    expect(id).toBeGreaterThan(1050);
    expect((await send(server.url, "DELETE", paths.node(slug, 9), seeded.admin)).status).toBe(204);
    const under = await runAgent(["admin", "restore", file, "--replace", "--data-dir", data, ...onPostgres]);
    expect(under.stderr).toContain("server is running");
    const back = join(directory.path, "postgres.db");
    expect(await admin(["backup", back], onPostgres)).toMatchObject({ nodes: 50 });
    await server.stop();
    expect(await admin(["restore", file, "--replace"], onPostgres)).toMatchObject({
      revoked_nodes: 1,
      set_aside: expect.stringContaining("replaced"),
    });

    expect(await admin(["restore", back, "--replace"])).toMatchObject({ nodes: 50 });
    const { nodes } = v.parse(
      v.object({ nodes: v.array(v.object({ id: v.number(), name: v.string() })) }),
      await admin(["node", "list", slug]),
    );
    const seededIds = Array.from({ length: 50 }, (_, at) => at + 1);
    expect(nodes.map((node) => node.id)).toEqual([...seededIds.filter((each) => each !== 9), id]);
    await admin(["audit", "verify"]);
    const next = v.parse(v.object({ id: v.number() }), await admin(["node", "create", slug, "next"]));
    expect(next.id).toBeGreaterThan(id);
  }, 60_000);

  test("500 registrations over three replicas, one of them killed repeatedly", async () => {
    using directory = temporaryDirectory();
    const { registration: token, flags, data, databaseUrl } = await prepare(cluster, directory.path, 0, 500);
    const start = () => startControlPlane(data, flags);
    const replicas = await Promise.all([start(), start(), start()]);
    using balancer = startBalancer(() => replicas.map((each) => each.url));
    const killing = new AbortController();
    const killer = killAgainAndAgain(replicas, start, killing.signal);
    const acknowledged = new Map<string, { id: number; ip: string; token: string }>();
    let at = 0;
    const machine = async () => {
      while (at < 500) {
        const request = registration(`machine-${at++}`, token);
        acknowledged.set(request.name, await registerUntilAnswered(balancer.url, request));
      }
    };
    await Promise.all(Array.from({ length: 32 }, machine));
    killing.abort();
    const kills = await killer;
    expect(kills).toBeGreaterThan(1);
    expect(acknowledged.size).toBe(500);

    const db = await openPostgres({ url: databaseUrl, now: Date.now, role: "visitor" });
    try {
      const nodes = await db.all("SELECT id, name, ip, state FROM nodes ORDER BY id");
      const byName = new Map(nodes.map((node) => [node["name"], node]));
      for (const [name, { id, ip }] of acknowledged) {
        expect(byName.get(name)).toEqual({ id, name, ip, state: "active" });
      }
      expect(new Set(nodes.map((node) => node["ip"])).size).toBe(nodes.length);
      expect(nodes.length).toBe(500);
      const uses = await db.get("SELECT used, uses FROM registration_tokens");
      expect(uses).toEqual({ used: 500, uses: 500 });
    } finally {
      await db.close();
    }
    // Each returned token works on every replica.
    for (const { id, token: api } of [...acknowledged.values()].slice(-50)) {
      expect((await send(balancer.url, "GET", paths.downloadConfig(slug, id), api)).status).toBe(200);
    }
    const late = await send(
      balancer.url,
      "POST",
      paths.register(slug),
      undefined,
      registration("late", token),
    );
    expect(late.status).toBe(401);
    await Promise.all(replicas.map((each) => each.stop()));
  }, 300_000);
});

/** Registers like a machine: repeats with the same keys until there is an answer. */
async function registerUntilAnswered(url: string, request: ReturnType<typeof registration>) {
  for (let tries = 0; tries < 200; tries++) {
    const answer = await send(url, "POST", paths.register(slug), undefined, request).catch(() => undefined);
    if (answer?.status === 201) {
      const { node, api_token: token } = v.parse(RegisterAnswer, await answer.json());
      return { id: node.id, ip: node.ip_address, token };
    }
    if (answer !== undefined && answer.status < 500) {
      throw new Error(`${request.name}: ${answer.status} ${await answer.text()}`);
    }
    await Bun.sleep(50);
  }
  throw new Error(`${request.name} was never answered`);
}

/** Kills the first replica repeatedly. Returns how often. */
async function killAgainAndAgain(
  replicas: ControlPlane[],
  start: () => Promise<ControlPlane>,
  signal: AbortSignal,
): Promise<number> {
  let kills = 0;
  while (!signal.aborted) {
    await Bun.sleep(400);
    const victim = replicas[0];
    if (victim === undefined) break;
    process.kill(victim.pid, "SIGKILL");
    kills++;
    replicas[0] = await start();
  }
  return kills;
}
