// An upgrade of servers on one PostgreSQL: a server of release 0.1.0 runs beside one of today, and no request fails.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { paths } from "../support/paths.ts";
import { TokenPair } from "../../src/protocol/sign-in.ts";
import { seed, slug, password } from "../bench/seed.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { formerAgent } from "../support/former-agent.ts";
import { checkin, send } from "../support/postgres-plane.ts";
import { createDatabase, describePostgres, startPostgres, unsynced } from "../support/postgres.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Answer = v.object({ config_version: v.number(), config_changed: v.boolean() });

describePostgres("beside a server of release 0.1.0", () => {
  test("both take writes, each learns of the other's, and sessions of one work on the other", async () => {
    buildAgent();
    const former = formerAgent();
    using directory = temporaryDirectory();
    await using cluster = await startPostgres(unsynced);
    const data = join(directory.path, "data");
    const databaseUrl = await createDatabase(cluster.directory);
    const flags = ["--database-url", databaseUrl];
    await using old = await startControlPlane(data, flags, 0, ([, ...rest]) => [former, ...rest]);
    await using now = await startControlPlane(data, flags);
    const { admin, people } = await seed({ dataDirectory: data, databaseUrl }, 20, { people: 1 });
    const both = [old, now];

    const signIn = async (url: string) => {
      const body = { email: people[0], password };
      return v.parse(TokenPair, await (await send(url, "POST", "/api/token/", undefined, body)).json());
    };
    for (const [from, to] of [both, both.toReversed()] as const) {
      if (from === undefined || to === undefined) throw new Error("There are two");
      const { access, refresh } = await signIn(from.url);
      expect((await send(to.url, "GET", "/api/user/", access)).status).toBe(200);
      expect((await send(to.url, "POST", "/api/token/refresh/", undefined, { refresh })).status).toBe(200);
    }

    // A poll on one server ends with a change on the other, 20 times each way.
    const newest = async (url: string) =>
      v.parse(Answer, await (await checkin(url, 3, 1)).json()).config_version;
    for (let turn = 0; turn < 20; turn++) {
      for (const [from, to] of [both, both.toReversed()] as const) {
        if (from === undefined || to === undefined) throw new Error("There are two");
        const version = await newest(from.url);
        while ((await newest(to.url)) !== version) await Bun.sleep(10);
        const poll = checkin(to.url, 3, version, 30);
        // Another address each time: what changes nothing for other nodes wakes none.
        const hub = { is_lighthouse: true, public_ip: `192.0.2.${2 * turn + (from === old ? 1 : 2)}` };
        const begun = performance.now();
        const [changed, group] = await Promise.all([
          send(from.url, "PATCH", paths.node(slug, 5), admin, hub),
          send(to.url, "POST", `/api/org/${slug}/groups/`, admin, { name: `at-once-${turn}-${from.pid}` }),
        ]);
        expect([changed.status, group.status]).toEqual([200, 201]);
        expect(v.parse(Answer, await (await poll).json()).config_changed).toBe(true);
        expect(performance.now() - begun).toBeLessThan(10_000);
      }
    }
    expect((await send(now.url, "DELETE", paths.node(slug, 7), admin)).status).toBe(204);
    while ((await checkin(old.url, 7, 1)).status !== 403) await Bun.sleep(50);

    await agentJson(["admin", "audit", "verify", "--data-dir", data, ...flags]);
    expect(await old.stop()).toBe(0);
    expect((await send(now.url, "POST", `/api/org/${slug}/groups/`, admin, { name: "alone" })).status).toBe(
      201,
    );
  }, 300_000);
});
