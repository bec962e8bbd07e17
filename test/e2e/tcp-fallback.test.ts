// UDP is blocked before a node: it goes by TCP to the lighthouse, and by relay to everybody, and comes back when UDP passes
// again.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { join } from "node:path";
import { realSystem } from "../../src/base/system.ts";
import { can } from "../../src/engine/features.ts";
import { localApi } from "../../src/node/engine/local-api.ts";
import { controlSocket } from "../../src/platform/systemd/control-socket.ts";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { blockUdp, nft, permitUdp } from "../support/block-udp.ts";
import { command, startDaemon, statusOf, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { joinMember, until, type Member } from "../support/members.ts";
import { lostAt, makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Checks = v.object({
  checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
});

/** Counts datagrams to loopback addresses: what a host that was told one would send. */
function countLoopback(host: Host): () => number {
  nft(
    host,
    `table inet counted {
       chain out { type filter hook output priority 0; ip daddr 127.0.0.0/8 meta l4proto udp counter; ip6 daddr ::1 meta l4proto udp counter; }
     }`,
  );
  return () => {
    const listed = Bun.spawnSync(host.inside(["nft", "list", "table", "inet", "counted"])).stdout.toString();
    return [...listed.matchAll(/packets (\d+)/g)].reduce((sum, [, each]) => sum + Number(each), 0);
  };
}

async function netcheckOf({ places, host }: Member) {
  const child = Bun.spawn(host.inside([agent, "netcheck", "acme", "--json", ...places.flags]), {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const { checks } = v.parse(Checks, await new Response(child.stdout).json());
  await child.exited;
  return Object.fromEntries(checks.map(({ id, verdict, evidence }) => [id, `${verdict}: ${evidence}`]));
}

asRoot("where UDP is blocked", () => {
  describeEngines(
    "a node",
    ({ nebula, version }) => {
      test("goes by TCP, tells it, and comes back without a lost ping", async () => {
        await using stack = new AsyncDisposableStack();
        const directory = stack.use(temporaryDirectory());
        const lan = stack.use(makeLan(["lh", "a", "b"]));
        const plane = stack.use(await startControlPlane(`${directory.path}/server`));
        const acme = await makeOrganization(plane);
        const token = await acme.makeToken(["--uses", "9", "--lighthouse"]);
        const members = new Map<string, Member>();
        for (const host of lan.hosts) {
          const hub = ["--is-lighthouse", "--public-ip", host.address, "--tcp-fallback", ":443"];
          const flags = host.name === "lh" ? hub : [];
          members.set(
            host.name,
            stack.use(await joinMember(acme, host, directory.path, nebula, token, flags)),
          );
        }
        const member = (name: string) => members.get(name) ?? expect.unreachable();
        const [lh, a, b] = ["lh", "a", "b"].map(member) as [Member, Member, Member];
        const toLoopback = countLoopback(b.host);
        await until(
          "the offer",
          async () => (await netcheckOf(a))["tcp"]?.startsWith("ok: If UDP") === true,
          20_000,
        );
        expect((await netcheckOf(a))["tcp"]).toBe(
          "ok: If UDP is blocked, 192.0.2.1:443 is used: an engine answers there by TCP",
        );

        const pings = [startPing(a.host, lh.ip), startPing(a.host, b.ip), startPing(b.host, a.ip)];
        stack.defer(async () => void (await Promise.all(pings.map((ping) => ping.stop()))));
        await Promise.all(pings.map((ping) => ping.reply(30_000)));
        blockUdp(a.host);
        await untilStatus(a.places, "acme", ({ tcp }) => tcp?.at === "192.0.2.1:443", 20_000);
        await Promise.all(pings.map((ping) => ping.reply(40_000)));
        await Promise.all(pings.map((ping) => ping.reply(40_000)));
        const { stdout } = await command(a.places, ["status"]);
        expect(stdout).toMatch(/acme: UDP is blocked: over TCP, 192\.0\.2\.1:443, since \d{4}-/);
        await until(
          "the path of the lighthouse",
          async () =>
            /lh .*(direct TCP 443|unknown)/.test((await command(a.places, ["peers", "acme"])).stdout),
          20_000,
        );
        expect((await netcheckOf(a))["udp"]).toMatch(
          /^warn: UDP does not pass: nothing comes back from UDP 192\.0\.2\.1:4242.*This node goes by TCP, 192\.0\.2\.1:443, since /,
        );
        // A new tunnel, for which the peer asks the lighthouse.
        const settledAt = performance.now();
        await Bun.sleep(5000);
        const lostByTcp = pings.map((ping) => lostAt(ping).filter((at) => at > settledAt).length);
        expect(lostByTcp).toEqual([0, 0, 0]);

        if (can(version, "local_api")) {
          // What the lighthouse tells the peer of a: the address of its own machine, at which it sees a, and what a itself tells of it.
          const api = localApi(controlSocket(join(b.places.configRoot, "acme")), realSystem());
          const told = async () => (await api.queryLighthouse(a.ip))[lh.ip]?.reported ?? [];
          const isSeen = async () => (await told()).some((at) => at.startsWith(`${lh.host.address}:`));
          await until("the lighthouse's answer", isSeen, 20_000);
          expect((await told()).filter((at) => /^(127\.|\[::1\])/.test(at))).toEqual([]);
        }

        // A daemon that is killed: the next one goes on with the ports that the engine has.
        const { tcp: before } = await statusOf(a.places, "acme");
        a.daemon.signal("SIGKILL");
        await a.daemon.exited;
        a.daemon = await startDaemon(a.host, a.places);
        await Promise.all(pings.map((ping) => ping.reply(20_000)));
        expect((await untilStatus(a.places, "acme", ({ tcp }) => tcp !== undefined)).tcp).toEqual(before);
        await Bun.sleep(3000);

        permitUdp(a.host);
        const permittedAt = performance.now();
        await untilStatus(a.places, "acme", ({ tcp }) => tcp === undefined, 30_000);
        await until(
          "the path of the lighthouse",
          async () =>
            /lh .*(direct 192\.0\.2\.1|unknown)/.test((await command(a.places, ["peers", "acme"])).stdout),
          30_000,
        );
        await Bun.sleep(20_000);
        const lostAfter = pings.map((ping) => lostAt(ping).filter((at) => at > permittedAt).length);
        expect(lostAfter).toEqual([0, 0, 0]);
        expect(toLoopback()).toBe(0);
      }, 180_000);
    },
    ["debian", "1.12"],
  );
});
