// Two sites with the same network, each translated to one of its own, and rules that open a network but not its router.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import { makeSite, sitePort, startFlow } from "../support/sites.ts";
import { until } from "../support/until.ts";

buildAgent();

asRoot("the same network at two sites", () => {
  describeEngines(
    "translated",
    ({ nebula }) => {
      test("is reached under two networks, also without masquerading; a rule for one opens nothing else", async () => {
        await using scene = await makeHealingScene(nebula, ["hub", "a", "b", "user"]);
        const { a, b, plane } = scene;
        const user = scene.members[3];
        if (user === undefined) throw new Error("Four members");
        using one = await makeSite("one", "192.168.1", [a.host]);
        // Here the hosts have a route back.
        using two = await makeSite("two", "192.168.1", [b.host], { returnBy: "192.168.1.1" });
        const seen = { a: "10.201.1.0/24", b: "10.202.1.0/24" };
        for (const [router, more] of [
          [a, "@192.168.1.10+masquerade"],
          [b, "@192.168.1.10"],
        ] as const) {
          const network = router === a ? seen.a : seen.b;
          const offer = `${network}=192.168.1.0/24${more}`;
          const offered = await command(router.places, [
            "sync-config",
            "--org-slug",
            "acme",
            "--advertise",
            offer,
          ]);
          expect(offered).toMatchObject({ status: 0 });
          const words = ["route", "create", "acme", network, "--via", router.name];
          expect(await plane.admin(words)).toMatchObject({ status: 0 });
        }
        const rule = (network: string) =>
          plane.admin([
            "rule",
            "create",
            "acme",
            "--protocol",
            "tcp",
            "--ports",
            String(sitePort),
            "--target",
            `network:${network}`,
          ]);
        const made = await rule(seen.a);
        expect(made).toMatchObject({
          status: 0,
          stdout: expect.stringContaining("not the nodes themselves"),
        });
        const config = join(user.places.configRoot, "acme/config.yml");
        await until(() => unsafeRoutes(readFileSync(config, "utf8")).length === 2, { what: "two routes" });
        const first = startFlow(user.host, "10.201.1.10");
        await until(() => first.answers.length > 5, { what: "the first site", ms: 30_000 });
        // The other network is closed until a rule opens it; the routers themselves stay closed.
        const closed = [startFlow(user.host, "10.202.1.10"), startFlow(user.host, a.ip)];
        await Bun.sleep(2000);
        expect(closed.map(({ answers }) => answers.length)).toEqual([0, 0]);
        for (const each of closed) each.stop();
        expect(await rule(seen.b)).toMatchObject({ status: 0 });
        const second = startFlow(user.host, "10.202.1.10");
        await until(() => second.answers.length > 5, { what: "the second site", ms: 30_000 });
        // Its health is looked at every few seconds.
        await until(
          async () => {
            const { stdout } = await command(user.places, ["status"]);
            return stdout.includes(`${seen.a} by a`) && stdout.includes(`${seen.b} by b`);
          },
          { what: "status names the routes", ms: 60_000 },
        );
        // They are two: without the cable of one, the other goes on.
        const cut = performance.now();
        one.cable(a.host, "down");
        await Bun.sleep(2000);
        expect(first.gapSince(cut)).toBeGreaterThan(1500);
        expect(second.gapSince(cut)).toBeLessThan(1000);
        void two;
        first.stop();
        second.stop();
      }, 120_000);
    },
    ["1.12"],
  );
});
