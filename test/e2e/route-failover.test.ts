// Networks behind nodes with real engines: routers are made ready and unready, a dead router or network leaves the routes of
// others, and a planned change resets no flow.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { routeGateways, unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import type { Member } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
import { makeSite, startFlow } from "../support/sites.ts";
import { until } from "../support/until.ts";

buildAgent();

const network = "192.168.7.0/24";
const configOf = ({ places }: Member) => readFileSync(join(places.configRoot, "acme/config.yml"), "utf8");
const routerOf = (member: Member) =>
  unsafeRoutes(configOf(member)).find((each) => each.network === network)?.routers[0];
const good = async (result: Promise<{ status: number; stderr: string; stdout: string }>) => {
  const { status, stderr, stdout } = await result;
  expect([status, stderr]).toEqual([0, stderr]);
  return stdout;
};
const forwarding = ({ host }: Member) =>
  ["all", "lan0"].map((each) => host.run(["cat", `/proc/sys/net/ipv4/conf/${each}/forwarding`]).trim());

asRoot("networks behind nodes", () => {
  describeEngines(
    "with two routers",
    ({ nebula, version }) => {
      test("flows leave a dead router and a dead network; a planned change resets none", async () => {
        await using scene = await makeHealingScene(nebula, ["hub", "a", "b", "user"]);
        const { a, b, plane } = scene;
        const user = scene.members[3];
        if (user === undefined) throw new Error("Four members");
        using site = await makeSite("site", "192.168.7", [a.host, b.host]);
        const before = [a, b].map(({ host }) => host.run(["nft", "list", "ruleset"]));
        for (const router of [a, b]) {
          const words = ["--advertise", `${network}@${site.address}+masquerade`];
          await good(command(router.places, ["sync-config", "--org-slug", "acme", ...words]));
          await good(command(router.places, ["checkin"]));
        }
        expect(await good(plane.admin(["route", "list", "acme"]))).toContain("waits for approval");
        const via = ["--via", "a", "--via", "b"];
        await good(plane.admin(["route", "create", "acme", network, ...via]));
        await good(plane.admin(["rule", "create", "acme", "--protocol", "tcp", "--ports", "7777"]));
        await until(() => routeGateways(configOf(user)).get(network)?.length === 2, { what: "two routers" });
        const ready = async () =>
          (await good(plane.admin(["route", "list", "acme"]))).match(/ ready/g)?.length === 2;
        await until(() => forwarding(a)[1] === "1" && forwarding(b)[1] === "1", { what: "forwarding" });
        const flow = startFlow(user.host, site.address);
        await until(() => flow.answers.length > 10, { what: "answers", ms: 20_000 });
        process.stderr.write(`${version}: flowing by ${routerOf(user)}\n`);
        void ready;

        // Planned: the flow stays where it is, a new one takes the other router.
        const [used, other] = routerOf(user) === a.ip ? [a, b] : [b, a];
        const maintained = performance.now();
        await good(plane.admin(["route", "update", "acme", network, "--via", used.name, "--maintenance"]));
        await until(() => routerOf(user) === other.ip, { what: "the other router", ms: 30_000 });
        const next = startFlow(user.host, site.address);
        await Bun.sleep(3000);
        process.stderr.write(
          `${version}: planned change: longest gap ${Math.round(flow.gapSince(maintained))} ms\n`,
        );
        expect(flow.ended()).toBeUndefined();
        expect(flow.gapSince(performance.now() - 1000)).toBeLessThan(1000);
        flow.stop();
        next.stop();

        // What is behind the router in use goes.
        await good(plane.admin(["route", "update", "acme", network, "--via", used.name, "--no-maintenance"]));
        const ping = startPing(user.host, site.address);
        await ping.reply(10_000);
        const using = routerOf(user) === a.ip ? a : b;
        const spare = using === a ? b : a;
        const cut = performance.now();
        site.cable(using.host, "down");
        await until(() => routerOf(user) === spare.ip, { what: "the spare router", ms: 30_000 });
        const left = performance.now() - cut;
        await ping.reply(10_000);
        process.stderr.write(`${version}: network behind gone: left after ${Math.round(left)} ms\n`);
        expect(left).toBeLessThan(15_000);

        // The router itself goes; the only other one has no network, then it is back: it is used.
        site.cable(using.host, "up");
        const died = performance.now();
        spare.host.link("down");
        await until(() => routerOf(user) === using.ip, { what: "the router that is back", ms: 60_000 });
        process.stderr.write(
          `${version}: router gone: left after ${Math.round(performance.now() - died)} ms\n`,
        );
        await ping.reply(10_000);
        await ping.stop();
        spare.host.link("up");

        // Taken back: as the machine was.
        for (const router of [a, b])
          await good(command(router.places, ["sync-config", "--org-slug", "acme", "--advertise", "none"]));
        await until(() => forwarding(a)[1] === "0" && forwarding(b)[1] === "0", { what: "no forwarding" });
        await Bun.sleep(500);
        expect([a, b].map(({ host }) => host.run(["nft", "list", "ruleset"]))).toEqual(before);
      }, 240_000);
    },
    ["1.12"],
  );
});
