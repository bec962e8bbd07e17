// Two sites with the same network, each translated to one of its own, and rules that open a network but not its router. Then
// what docs/access.md and docs/exits.md tell to type: two offices with two routers each, and an exit.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { agent, buildAgent, runAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { blocksOf } from "../support/documents.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import type { Member } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
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

  describeEngines(
    "as the documents say",
    ({ nebula }) => {
      test("two offices with two routers each, one with the other's addresses, and an exit", async () => {
        const names = ["hub", "office1-a", "office1-b", "office2-a", "office2-b", "laptop", "gate"];
        await using scene = await makeHealingScene(nebula, names);
        const { plane } = scene;
        const [hub, one, two, three, four, laptop, gate] = scene.members;
        if (!hub || !one || !two || !three || !four || !laptop || !gate) throw new Error("Seven members");
        using first = await makeSite("o1", "192.168.1", [one.host, two.host]);
        using second = await makeSite("o2", "192.168.1", [three.host, four.host]);
        const blocks = ["docs/access.md", "docs/exits.md"].flatMap(blocksOf);
        /** As root on the machine; lines of an administrator on the control plane. */
        const type = async (key: string, member: Member): Promise<string> => {
          const text = blocks.find((each) => each.key.endsWith(`: ${key}`))?.text ?? "false";
          const printed: string[] = [];
          for (const line of text.split("\n")) {
            const words = line.split(" ");
            if (line.startsWith("agent admin ")) {
              const { status, stdout, stderr } = await plane.admin(words.slice(2));
              expect([line, status, stderr]).toEqual([line, 0, stderr]);
              printed.push(stdout);
            } else {
              const own = `agent() { '${agent}' "$@" ${member.places.flags.join(" ")}; }; sudo() { "$@"; }`;
              // Not synchronously: this process carries its requests to the control plane.
              const argv = member.host.inside(["bash", "-euc", `${own}\n${line}`]);
              const child = Bun.spawn(argv, { stdout: "pipe", stderr: "inherit" });
              printed.push(await new Response(child.stdout).text());
              expect([line, await child.exited]).toEqual([line, 0]);
            }
          }
          return printed.join("");
        };
        const before = [one, three, gate, laptop].map(({ host }) => host.run(["nft", "list", "ruleset"]));
        const offers = [
          "agent up acme --advertise 192.168.1.0/24@192.168.1.10+masquerade",
          "agent up acme --advertise 10.202.1.0/24=192.168.1.0/24@192.168.1.10+masquerade",
        ] as const;
        for (const [at, router] of [one, two, three, four].entries())
          await type(offers[at < 2 ? 0 : 1], router);
        await type("agent admin route create acme 192.168.1.0/24 --via office1-a --via office1-b", laptop);
        // Otherwise the states come with the check-ins of the next minute.
        const ready = async () => {
          for (const { places } of [one, two, three, four]) await command(places, ["checkin"]);
          return (await plane.admin(["route", "list", "acme"])).stdout.match(/ ready\b/g)?.length === 4;
        };
        await until(ready, { what: "four routers ready", ms: 90_000, everyMs: 1000 });
        const routed = () =>
          laptop.host.run(["ip", "route"]).match(/192\.168\.1\.0|10\.202\.1\.0/g)?.length === 2;
        await until(routed, { what: "both routes on the laptop", ms: 20_000 });
        expect(await type("ping -c 3 192.168.1.10", laptop)).toContain("3 received");
        // Both are the address .10 of their offices, so each was asked at its own.
        const status = async () => (await runAgent(["status", ...laptop.places.flags])).stdout;
        // Its health is looked at every few seconds.
        const named = async () => (await status()).includes("10.202.1.0/24");
        await until(named, { what: "status names the routes", ms: 60_000, everyMs: 1000 });
        for (const address of ["192.168.1.10", "10.202.1.10"]) {
          const ping = startPing(laptop.host, address);
          await ping.reply(10_000);
          const { host } = address === "192.168.1.10" ? one : three;
          host.link("down");
          await Bun.sleep(6000);
          await ping.reply(2000);
          host.link("up");
          await ping.stop();
        }
        // Its own network stays that of a router of the second office.
        expect(three.host.run(["ip", "route", "get", "192.168.1.10"])).toContain("dev lan0");
        void first;
        void second;

        // The exit. The hub stands for the internet.
        hub.host.run(["ip", "addr", "add", "198.51.100.9/32", "dev", "lo"]);
        for (const { host } of [gate, laptop])
          host.run(["ip", "route", "add", "198.51.100.9/32", "via", hub.host.address]);
        await type("sudo agent up --advertise-exit", gate);
        await type("agent admin node update acme laptop --add-group staff", laptop);
        const usable = async () =>
          (await runAgent(["exit", "list", ...laptop.places.flags])).stdout.includes("gate");
        await until(usable, { what: "the exit", ms: 20_000 });
        expect(await type("agent exit list", laptop)).toContain("gate");
        const asked = Bun.spawn(hub.host.inside(["tcpdump", "-lnnc", "1", "-i", "eth0", "icmp[0] = 8"]), {
          stdout: "pipe",
          stderr: "ignore",
        });
        await Bun.sleep(1000);
        const away = startPing(laptop.host, "198.51.100.9");
        await away.reply(20_000);
        await away.stop();
        expect(await new Response(asked.stdout).text()).toContain(`IP ${gate.host.address} > 198.51.100.9`);
        await type("sudo agent exit use off", laptop);
        for (const { places } of [one, three])
          await command(places, ["sync-config", "--org-slug", "acme", "--advertise", "none"]);
        for (const network of ["192.168.1.0/24", "10.202.1.0/24"])
          expect(await plane.admin(["route", "delete", "acme", network])).toMatchObject({ status: 0 });
        const asBefore = () =>
          Bun.deepEquals(
            [one, three].map(({ host }) => host.run(["nft", "list", "ruleset"])),
            before.slice(0, 2),
          );
        await until(asBefore, { what: "routers as before", ms: 20_000 });
      }, 240_000);
    },
    ["1.12"],
  );
});
