// Several servers on one PostgreSQL: the database is away, a server is suspended or killed, a server does not fit.

import { SQL } from "bun";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { slug } from "../bench/seed.ts";
import { agentJson, buildAgent, runAgent, startControlPlane } from "../support/agent.ts";
import { checkin, prepare, send } from "../support/postgres-plane.ts";
import { describePostgres, startPostgres, type Postgres } from "../support/postgres.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

/** How long the database is away. */
const awayMs = inFull ? 60_000 : 6000;
const takeoverMs = 15_000;

const Servers = v.object({
  servers: v.array(v.object({ id: v.string(), running: v.boolean(), leases: v.array(v.string()) })),
});
const loops = [
  "CA rotations",
  "confirmations of nodes",
  "ephemeral nodes",
  "history of the policy",
  "online counts",
  "people at their providers",
  "people without a proof",
  "policies",
  "retention",
  "updates in rings",
  "upkeep of nodes",
  "upkeep of paths",
  "webhook deliveries",
];

describePostgres("servers on one PostgreSQL", () => {
  let cluster: Postgres;
  beforeAll(async () => {
    buildAgent();
    cluster = await startPostgres();
  }, 240_000);
  afterAll(async () => {
    await cluster.stop();
  });

  type Place = Pick<Awaited<ReturnType<typeof prepare>>, "data" | "flags">;
  const servers = async ({ data, flags }: Place) =>
    v.parse(Servers, await agentJson(["admin", "server", "list", "--data-dir", data, ...flags])).servers;

  test("while the database is away, check-ins are answered, writes get 503, polls stay; then all goes on", async () => {
    using directory = temporaryDirectory();
    await using own = await startPostgres();
    const place = await prepare(own, directory.path, 10);
    await using a = await startControlPlane(place.data, place.flags);
    await using b = await startControlPlane(place.data, place.flags);
    const both = [a, b];
    for (const { url } of both) {
      for (const id of [1, 2, 3]) expect((await checkin(url, id)).status).toBe(200);
    }
    // Acknowledged just before the outage.
    expect((await send(a.url, "DELETE", paths.node(slug, 4), place.admin)).status).toBe(204);
    // Once both servers know the revocation, the polls wait for the next change.
    const version = await newestVersion(a.url);
    await until(async () => (await newestVersion(b.url)) === version);
    let answered = 0;
    const polls = both.map(async ({ url }, at) => {
      const answer = await checkin(url, at + 1, version, 58);
      answered++;
      return v.parse(Answer, await answer.json());
    });
    await Bun.sleep(1000);

    await own.restart(async () => {
      for (const end = Date.now() + awayMs; Date.now() < end; await Bun.sleep(500)) {
        for (const { url } of both) {
          expect((await checkin(url, 3)).status).toBe(200);
          const refused = await send(url, "POST", `/api/org/${slug}/groups/`, place.admin, { name: "while" });
          expect([refused.status, Number(refused.headers.get("retry-after")) > 0]).toEqual([503, true]);
        }
      }
      expect(answered).toBe(0);
    });

    for (const [at, { url }] of both.entries()) {
      await until(async () => (await fetch(`${url}/readyz`)).status === 200);
      const created = await send(url, "POST", `/api/org/${slug}/groups/`, place.admin, {
        name: `after-${at}`,
      });
      expect(created.status).toBe(201);
      expect((await checkin(url, 4)).status).toBe(403);
    }
    // The polls that waited through the outage are woken by a change on the other server.
    const woken = performance.now();
    const hub = { is_lighthouse: true, public_ip: "192.0.2.7" };
    expect((await send(b.url, "PATCH", paths.node(slug, 5), place.admin, hub)).status).toBe(200);
    for (const poll of polls) expect((await poll).config_changed).toBe(true);
    expect(performance.now() - woken).toBeLessThan(inFull ? 5000 : 15_000);
    await until(async () => (await servers(place)).flatMap(({ leases }) => leases).length === loops.length);
    await agentJson(["admin", "audit", "verify", "--data-dir", place.data, ...place.flags]);
  }, 240_000);

  test("the loops of a suspended or killed server pass to another one within 15 seconds", async () => {
    using directory = temporaryDirectory();
    const place = await prepare(cluster, directory.path, 10);
    const holders = async () =>
      (await servers(place))
        .filter(({ leases }) => leases.length > 0)
        .map(({ id, leases }) => ({ id, leases }));
    await using a = await startControlPlane(place.data, place.flags);
    await until(async () => (await holders()).length === 1);
    const [first] = await holders();
    expect(first?.leases).toEqual(loops);
    await using b = await startControlPlane(place.data, place.flags);
    await until(async () => (await servers(place)).length === 2);
    const passed = async (from: string | undefined) => {
      const begun = Date.now();
      await until(async () =>
        (await holders()).some(({ id, leases }) => id !== from && leases.length === loops.length),
      );
      expect(Date.now() - begun).toBeLessThan(takeoverMs);
      expect((await holders()).length).toBe(1);
      return (await holders())[0]?.id;
    };

    process.kill(a.pid, "SIGSTOP");
    const second = await passed(first?.id);
    process.kill(a.pid, "SIGCONT");
    expect((await checkin(a.url, 1)).status).toBe(200);
    // Longer than it takes to renew a lease, three times.
    await Bun.sleep(8000);
    expect(await holders()).toEqual([{ id: second ?? "", leases: loops }]);

    process.kill(b.pid, "SIGKILL");
    expect(await passed(second)).toBe(first?.id);
    // A stop passes them on at once.
    await using c = await startControlPlane(place.data, place.flags);
    await a.stop();
    const third = await passed(first?.id);
    const known = await servers(place);
    expect(known.find(({ id }) => id === third)).toMatchObject({ running: true });
    // A server that stops is forgotten, one that was killed is listed for a while.
    expect(known.map(({ id }) => id)).toEqual(expect.arrayContaining([third ?? "", second ?? ""]));
    expect(known.some(({ id }) => id === first?.id)).toBe(false);
    expect((await checkin(c.url, 1)).status).toBe(200);
  }, 180_000);

  test("a server with another secret.key does not start, and says why", async () => {
    using directory = temporaryDirectory();
    const place = await prepare(cluster, directory.path, 10);
    await using _ = await startControlPlane(place.data, place.flags);
    const other = join(directory.path, "other");
    mkdirSync(other);
    const refused = await runAgent(["serve", "--listen", "127.0.0.1:0", "--data-dir", other, ...place.flags]);
    expect(refused.status).not.toBe(0);
    expect(refused.stderr).toContain("The secret.key of this server is not the one of this database");
    expect(refused.stderr).toContain("Copy secret.key from a server that runs");
  }, 240_000);

  test("a server whose last change the database has lost ends, to be started again", async () => {
    using directory = temporaryDirectory();
    const place = await prepare(cluster, directory.path, 10);
    await using session = new SQL(place.databaseUrl, { max: 1 });
    await session.unsafe("INSERT INTO notices (channel, payload, created_at) VALUES ('node', '1/1', 0)");
    await using server = await startControlPlane(place.data, place.flags);
    await session.unsafe("DELETE FROM notices");
    await until(() => server.log().includes("stopping"));
    expect(await server.stop()).toBe(6);
  }, 240_000);
});

const Answer = v.object({ config_version: v.number(), config_changed: v.boolean() });

async function newestVersion(url: string): Promise<number> {
  return v.parse(Answer, await (await checkin(url, 3)).json()).config_version;
}
