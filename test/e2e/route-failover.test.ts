// Networks behind nodes with real engines: routers are made ready and unready, a dead router or network leaves the routes of
// others, and a planned change resets no flow.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { routeGateways, unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { agent, buildAgent, cleanEnvironment, runAgent } from "../support/agent.ts";
import { command, enginesOf, registerDesktop, startDaemon } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import type { Member } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
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
        await until(() => forwarding(a)[1] === "1" && forwarding(b)[1] === "1", { what: "forwarding" });
        const flow = startFlow(user.host, site.address);
        await until(() => flow.answers.length > 10, { what: "answers", ms: 20_000 });
        process.stderr.write(`${version}: flowing by ${routerOf(user)}\n`);

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
        await until(
          async () =>
            ((await good(plane.admin(["route", "list", "acme"]))).match(/ ready/g) ?? []).length === 2,
          {
            what: "two routers that are ready",
            ms: 60_000,
            everyMs: 500,
          },
        );

        // Root ends the offer of the router in use: it is left, also while its certificate has the network.
        const [ending, staying] = routerOf(user) === a.ip ? [a, b] : [b, a];
        const endOffer = (router: Member) =>
          good(command(router.places, ["sync-config", "--org-slug", "acme", "--advertise", "none"]));
        await endOffer(ending);
        await until(() => routerOf(user) === staying.ip, { what: "the router that offers it", ms: 15_000 });
        const still = startPing(user.host, site.address);
        await still.reply(10_000);
        await still.stop();

        // Taken back: as the machine was.
        await endOffer(staying);
        await until(() => forwarding(a)[1] === "0" && forwarding(b)[1] === "0", { what: "no forwarding" });
        await good(plane.admin(["route", "delete", "acme", network]));
        await until(
          () =>
            Bun.deepEquals(
              [a, b].map(({ host }) => host.run(["nft", "list", "ruleset"])),
              before,
            ),
          { what: "the tables as before", ms: 30_000 },
        );
      }, 240_000);

      test("what is behind the only router goes: the router and the doctor of its users say so", async () => {
        await using scene = await makeHealingScene(nebula, ["hub", "a", "user"]);
        const { a, plane } = scene;
        const user = scene.members[2];
        if (user === undefined) throw new Error("Three members");
        using site = await makeSite("site", "192.168.7", [a.host]);
        const words = ["--advertise", `${network}@${site.address}+masquerade`];
        await good(command(a.places, ["sync-config", "--org-slug", "acme", ...words]));
        await good(command(a.places, ["checkin"]));
        await good(plane.admin(["route", "create", "acme", network, "--via", "a"]));
        const ping = startPing(user.host, site.address);
        await ping.reply(30_000);
        await ping.stop();
        const check = () => command(a.places, ["status", "--check"]);
        const doctor = async () => {
          const argv = user.host.inside([agent, "doctor", ...user.places.flags]);
          return new Response(
            Bun.spawn(argv, { env: cleanEnvironment(), stdout: "pipe", stderr: "ignore" }).stdout,
          ).text();
        };
        await until(async () => (await check()).status === 0, { what: "a healthy router", ms: 20_000 });
        expect(await doctor()).toMatch(/^ok +acme routes +1 route through other nodes is in effect/m);
        site.cable(a.host, "down");
        await until(async () => (await check()).status === 1, {
          what: "the finding of the router",
          ms: 20_000,
        });
        expect((await check()).stdout).toContain(
          `This node is a router of ${network}, but what is behind it does not answer`,
        );
        expect(await doctor()).toMatch(
          /^FAIL +acme routes +192\.168\.7\.0\/24 is not reached: its router a answers, and what/m,
        );
        site.cable(a.host, "up");
        await until(async () => (await check()).status === 0, { what: "a healthy router again", ms: 30_000 });
        expect(await doctor()).toMatch(/^ok +acme routes /m);
      }, 180_000);

      test("a killed router is left and comes back, and another organization of its machine keeps its own", async () => {
        await using scene = await makeHealingScene(nebula, ["hub", "a", "b", "user"]);
        const { a, b, plane } = scene;
        const user = scene.members[3];
        if (user === undefined) throw new Error("Four members");
        using site = await makeSite("site", "192.168.7", [a.host, b.host]);
        const rulesets = () => [a, b].map(({ host }) => host.run(["nft", "list", "ruleset"]));
        const before = rulesets();
        const beta = await makeOrganization(plane, "beta", "10.88.0.0/16");
        const token = await beta.makeToken(["--uses", "2"]);
        const advertise = (router: Member, slug: string, offer: string) =>
          good(command(router.places, ["sync-config", "--org-slug", slug, "--advertise", offer]));
        // The same network for both organizations on one machine, another one on the other.
        const offers = { a: `${network}+masquerade`, b: `10.203.7.0/24=${network}+masquerade` };
        for (const router of [a, b]) {
          // On its machine: its networks decide which routes it takes.
          await registerDesktop(beta, router.places, token, router.name, [], router.host.inside);
          await good(command(router.places, ["start", "beta"]));
          await advertise(router, "acme", `${network}@${site.address}+masquerade`);
          const own = offers[router === a ? "a" : "b"];
          await advertise(router, "beta", own);
          const [of = ""] = own.split(/[=+]/);
          await good(plane.admin(["route", "create", "beta", of, "--via", router.name]));
        }
        await good(plane.admin(["route", "create", "acme", network, "--via", "a", "--via", "b"]));
        await good(plane.admin(["rule", "create", "acme", "--protocol", "tcp", "--ports", "7777"]));
        const both = (listing: string) =>
          listing.match(/table inet overlay-agent-routes-(acme|beta)/g)?.length === 2;
        await until(() => rulesets().every(both), { what: "four tables", ms: 30_000 });
        await until(() => rulesets().every((each) => /oifname != \{.*,.*\} drop/.test(each)), {
          what: "room for both tunnels",
        });
        await until(() => user.host.run(["ip", "route"]).includes(network), { what: "a route", ms: 20_000 });
        const used = () => (routerOf(user) === a.ip ? a : b);
        const flow = startFlow(user.host, site.address);
        await until(() => flow.answers.length > 10, { what: "answers", ms: 20_000 });

        // One organization leaves the machine: the other one's flow goes on.
        const first = used();
        const [at, spare] = [performance.now(), first === a ? b : a];
        const leave = ["unregister", "--org-slug", "beta", ...first.places.flags];
        await good(runAgent(leave, { inside: first.host.inside }));
        await until(() => !first.host.run(["nft", "list", "ruleset"]).includes("routes-beta"), {
          what: "no table",
        });
        expect(forwarding(first)[1]).toBe("1");

        // The agent is killed, alone: nothing changes. Then the engine: the other router takes over.
        first.daemon.signal("SIGKILL");
        await first.daemon.exited;
        await Bun.sleep(3000);
        expect(flow.gapSince(at)).toBeLessThan(1500);
        const killed = performance.now();
        for (const pid of enginesOf(first.places)) process.kill(pid, "SIGKILL");
        await until(() => used() === spare, { what: "the other router", ms: 30_000 });
        process.stderr.write(
          `${version}: engine killed: left after ${Math.round(performance.now() - killed)} ms\n`,
        );
        flow.stop();
        expect(forwarding(first)[1]).toBe("1");

        // Both are away; the one that was not in use returns first, and is used. Then the other one takes over.
        spare.host.link("down");
        await Bun.sleep(5000);
        first.daemon = await startDaemon(first.host, first.places);
        await until(() => used() === first, { what: "the router that returned", ms: 60_000 });
        const again = startFlow(user.host, site.address);
        await until(() => again.answers.length > 10, { what: "answers again", ms: 20_000 });
        again.stop();
        spare.host.link("up");

        // What was there before the kill is known after it.
        for (const router of [a, b]) await advertise(router, "acme", "none");
        await advertise(spare, "beta", "none");
        await good(plane.admin(["route", "delete", "acme", network]));
        await good(
          plane.admin([
            "route",
            "delete",
            "beta",
            (spare === a ? offers.a : offers.b).split(/[=+]/)[0] ?? "",
          ]),
        );
        await until(() => [a, b].every((each) => forwarding(each)[1] === "0"), {
          what: "no forwarding",
          ms: 20_000,
        });
        await until(() => Bun.deepEquals(rulesets(), before), { what: "the tables as before" });
      }, 240_000);

      test("networks of IPv6 are routed, and the machine's own IPv6 stays", async () => {
        const version2 = ["--network6", "fd77:1::/64", "--certificate-version", "2"];
        await using scene = await makeHealingScene(nebula, ["hub", "a", "user"], version2);
        const { a, b: user, plane } = scene;
        using site = await makeSite("site", "192.168.7", [a.host]);
        a.host.run(["ip", "addr", "add", "fd00:7::1/64", "dev", "lan0", "nodad"]);
        site.run(["ip", "addr", "add", "fd00:7::10/64", "dev", "site", "nodad"]);
        const settings = () =>
          ["all/forwarding", "eth0/forwarding", "eth0/accept_ra", "default/accept_ra"].map((each) =>
            a.host.run(["cat", `/proc/sys/net/ipv6/conf/${each}`]).trim(),
          );
        const [before, ruleset] = [settings(), a.host.run(["nft", "list", "ruleset"])];
        const advertise = (offer: string) =>
          good(command(a.places, ["sync-config", "--org-slug", "acme", "--advertise", offer]));
        await advertise("fd00:7::/64@fd00:7::10+masquerade");
        await good(plane.admin(["route", "create", "acme", "fd00:7::/64", "--via", "a"]));
        await until(() => settings()[0] === "1", { what: "forwarding", ms: 20_000 });
        // Router advertisements count as before.
        expect(settings().slice(2)).toEqual(["2", "2"]);
        expect(forwarding(a)).toEqual(["0", "0"]);
        const ping = startPing(user.host, "fd00:7::10");
        await ping.reply(20_000);
        await ping.stop();
        const ready = async () => (await good(plane.admin(["route", "list", "acme"]))).includes(" ready");
        await until(ready, { what: "ready", ms: 90_000, everyMs: 1000 });
        // Another network, by another interface, and then by none: nothing stays open.
        await advertise("192.168.7.0/24");
        await good(plane.admin(["route", "create", "acme", network, "--via", "a"]));
        const open = (device: string) =>
          a.host.run(["cat", `/proc/sys/net/ipv4/conf/${device}/forwarding`]).trim() === "1";
        await until(() => settings()[0] === "0" && open("lan0"), { what: "IPv4 alone", ms: 20_000 });
        expect(settings()).toEqual(before);
        a.host.run(["ip", "route", "add", "default", "via", scene.hub.host.address]);
        a.host.run(["ip", "link", "set", "lan0", "down"]);
        a.host.run(["ip", "addr", "flush", "dev", "lan0"]);
        await until(() => open("eth0") && !open("lan0"), { what: "the other interface", ms: 10_000 });
        a.host.run(["ip", "route", "del", "default"]);
        await until(() => !open("eth0"), { what: "no interface", ms: 10_000 });
        await advertise("none");
        for (const each of [network, "fd00:7::/64"])
          await good(plane.admin(["route", "delete", "acme", each]));
        await until(
          () => Bun.deepEquals([settings(), a.host.run(["nft", "list", "ruleset"])], [before, ruleset]),
          {
            what: "the machine as before",
          },
        );
      }, 120_000);
    },
    ["1.12"],
  );
});
