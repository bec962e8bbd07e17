// PostgreSQL with several replicas: how soon changes reach the other replicas, and the database that was stopped is used
// again.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { paths } from "../support/paths.ts";
import { slug } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { checkin, prepare, send } from "../support/postgres-plane.ts";
import { describePostgres, startPostgres, type Postgres } from "../support/postgres.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

describePostgres("on PostgreSQL", () => {
  let cluster: Postgres;
  beforeAll(async () => {
    buildAgent();
    cluster = await startPostgres();
  });
  afterAll(async () => {
    await cluster.stop();
  });

  test("a node that waits on one replica gets a change of another replica within a second", async () => {
    using directory = temporaryDirectory();
    const { admin, flags, data } = await prepare(cluster, directory.path, 20);
    await using a = await startControlPlane(data, flags);
    await using b = await startControlPlane(data, flags);
    const rename = (url: string, id: number, name: string) =>
      send(url, "PATCH", paths.node(slug, id), admin, { public_ip: name, is_lighthouse: true });
    // Both replicas have cached everything before the change.
    for (const { url } of [a, b]) expect((await checkin(url, 1, 1)).status).toBe(200);
    const waiting = checkin(a.url, 1, 1, 20);
    await Bun.sleep(300);
    const from = performance.now();
    expect((await rename(b.url, 2, "192.0.2.2")).status).toBe(200);
    const heard = await waiting;
    // The poll would wait 20 s.
    expect(performance.now() - from).toBeLessThan(inFull ? 1000 : 10_000);
    expect(await heard.json()).toMatchObject({ config_changed: true });

    // Rights that are removed on one replica end on the others.
    expect((await send(b.url, "DELETE", paths.node(slug, 1), admin)).status).toBe(204);
    const told = await until(
      async () => {
        const answer = await checkin(a.url, 1, 1);
        return answer.status === 403 && answer;
      },
      { ms: 1000 },
    );
    expect(await told.json()).toMatchObject({ code: "node_revoked" });
  }, 60_000);

  test("during an outage of PostgreSQL known nodes check in, and afterwards everything recovers", async () => {
    using directory = temporaryDirectory();
    await using own = await startPostgres();
    const { admin, flags, data } = await prepare(own, directory.path, 5);
    await using server = await startControlPlane(data, flags);
    const group = (name: string) => send(server.url, "POST", `/api/org/${slug}/groups/`, admin, { name });
    for (const id of [1, 2]) expect((await checkin(server.url, id, 1)).status).toBe(200);
    expect((await group("before")).status).toBe(201);
    await own.restart(async () => {
      const refused = await group("meanwhile");
      expect([refused.status, await refused.json()]).toEqual([
        503,
        expect.objectContaining({ code: "storage_unavailable", detail: expect.any(String) }),
      ]);
      await until(async () => (await fetch(`${server.url}/readyz`)).status === 503);
      for (const id of [1, 2]) expect((await checkin(server.url, id, 1)).status).toBe(200);
    });
    let tries = 0;
    await until(async () => (await group(`after-${tries++}`)).status === 201);
    await until(async () => (await fetch(`${server.url}/readyz`)).status === 200);
    await agentJson(["admin", "audit", "verify", "--data-dir", data, ...flags]);
  }, 60_000);
});
