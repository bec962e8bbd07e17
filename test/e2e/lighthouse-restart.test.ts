// The engine of a lighthouse is killed, or restarts. It has then forgotten where the nodes are, and must learn it before two
// nodes without a tunnel need each other: no ping is lost where another lighthouse exists, less than a second with one.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command, enginesOf } from "../support/daemon.ts";
import { allEngines, asRoot, describeEngines } from "../support/engines.ts";
import { engineLog, joinMember, until, type Member } from "../support/members.ts";
import { lost, makeLan, startPing, type Pinger } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const everyMs = 50;
/** An engine reports to the lighthouses every 10 s. */
const reportedMs = 12_000;

type Way = "is killed" | "restarts";
const starts = (member: Member) => [...engineLog(member).matchAll(/Nebula interface is active/g)].length;

async function interrupt(way: Way, hub: Member): Promise<void> {
  const before = starts(hub);
  if (way === "is killed") for (const pid of enginesOf(hub.places)) process.kill(pid, "SIGKILL");
  else expect((await command(hub.places, ["restart", "acme"])).status).toBe(0);
  await until("the engine runs again", () => starts(hub) > before);
}

/** From the first ping on, so also those before the first answer. */
function lostInAll(ping: Pinger): number {
  return (ping.replies[0]?.seq ?? 0) - 1 + lost(ping).length;
}

asRoot("a lighthouse", () => {
  describeEngines(
    "forgets the nodes",
    ({ nebula, version }) => {
      /** Lost pings of two nodes that have a tunnel, and of two nodes that need a lighthouse to find each other. */
      async function measure(way: Way, hubs: readonly string[]): Promise<{ old: number; fresh: number }> {
        using directory = temporaryDirectory();
        using lan = makeLan([...hubs, "a", "b", "c", "d"]);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        await using stack = new AsyncDisposableStack();
        const token = await acme.makeToken(["--uses", "6", "--lighthouse"]);
        const members = new Map<string, Member>();
        for (const host of lan.hosts) {
          const flags = hubs.includes(host.name) ? ["--is-lighthouse", "--public-ip", host.address] : [];
          const member = await joinMember(acme, host, directory.path, nebula, token, flags);
          members.set(host.name, stack.use(member));
        }
        const find = (name: string) => members.get(name) ?? expect.unreachable();
        const ping = (from: string, to: string) => startPing(find(from).host, find(to).ip, everyMs);
        const old = ping("a", "b");
        // Not through an engine: shows that the machine loses nothing.
        const control = startPing(find("a").host, find("b").host.address, everyMs);
        await old.reply(20_000);
        await Bun.sleep(reportedMs);
        await interrupt(way, find(hubs[0] ?? ""));
        const from = performance.now();
        const fresh = ping("c", "d");
        const { at } = await fresh.reply(60_000);
        // Engines that lost the tunnel to the lighthouse notice within this time.
        await Bun.sleep(5000);
        await Promise.all([old, fresh, control].map((each) => each.stop()));
        expect(lostInAll(control)).toBe(0);
        const result = { old: lostInAll(old), fresh: lostInAll(fresh) };
        const waited = `${hubs.length} lighthouses, one ${way}: first answer after ${(at - from).toFixed(0)} ms`;
        process.stderr.write(`engine ${version}, ${waited}, lost ${JSON.stringify(result)}\n`);
        return result;
      }

      for (const way of ["is killed", "restarts"] as const) {
        test.concurrent(
          `and ${way}: less than a second of pings is lost`,
          async () => {
            const { old, fresh } = await measure(way, ["hub"]);
            expect(old).toBe(0);
            expect(fresh * everyMs).toBeLessThan(1000);
          },
          120_000,
        );
      }

      test.concurrent(
        "and is killed beside another one: no ping is lost",
        async () => expect(await measure("is killed", ["hub", "other"])).toEqual({ old: 0, fresh: 0 }),
        120_000,
      );
    },
    allEngines,
  );
});
