// What a relay forwards for others is counted on its machine, told to the control plane, shown, and limited.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { Relay } from "../../src/api/paths/relays.ts";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { dropFrom, makeHealingScene, peerOf } from "../support/healing-scene.ts";
import { until } from "../support/members.ts";
import { startPing } from "../support/namespaces.ts";
import { relaysIn } from "../support/relayed.ts";

buildAgent();

asRoot("a relay", () => {
  describeEngines(
    "for two nodes",
    ({ nebula }) => {
      test("counts what it forwards, and is paused at its limit", async () => {
        await using scene = await makeHealingScene(nebula);
        const { a, b, hub, plane } = scene;
        dropFrom(b.host, a.host.address);
        dropFrom(a.host, b.host.address);
        const checkIn = async () =>
          expect(await command(hub.places, ["sync-config"])).toMatchObject({ status: 0 });
        const relay = async () => {
          const { stdout } = await plane.admin(["relay", "list", "acme", "--json"]);
          return v.parse(v.object({ relays: v.tuple([Relay]) }), JSON.parse(stdout)).relays[0];
        };
        // Traffic of the relay itself does not count.
        hub.host.run(["ping", "-c", "20", "-i", "0.01", "-s", "1000", a.ip]);
        const ping = startPing(a.host, b.ip);
        await ping.reply(30_000);
        await ping.stop();
        await until("the relay", async () => (await peerOf(a, "b"))?.path === "relayed", 30_000);
        await checkIn();
        const { bytes: before } = await relay();
        a.host.run(["ping", "-c", "100", "-i", "0.01", "-s", "1000", b.ip]);
        await checkIn();
        const forwarded = ((await relay()).bytes ?? 0) - (before ?? 0);
        process.stderr.write(`100 pings of 1000 bytes through the relay: ${forwarded} bytes forwarded\n`);
        // 200 packets of 1000 bytes, and the headers of ICMP, IP, the engine twice, UDP and IP.
        const outer = 8 + 20;
        const packet = 1000 + 8 + 20 + 32 + 32 + outer;
        // Under load the engine hands several packets at once to the kernel (offloads), which counts the outer headers once.
        expect(forwarded).toBeGreaterThanOrEqual(200 * (packet - outer));
        expect(forwarded).toBeLessThan(220 * packet);
        expect((await command(hub.places, ["status"])).stdout).toContain("for other nodes this month");

        const limited = await plane.admin(["relay", "limit", "acme", "hub", "1MB"]);
        expect(limited).toMatchObject({ status: 0, stdout: expect.stringContaining("1 MB a month") });
        const flow = startPing(a.host, b.ip);
        await flow.reply(10_000);
        a.host.run(["ping", "-c", "500", "-i", "0.01", "-s", "1200", "-q", b.ip]);
        await checkIn();
        expect(await relay()).toMatchObject({ paused: true, limit_bytes: 1_000_000 });
        await until("configurations without the relay", () => relaysIn(a).length + relaysIn(b).length === 0);
        await checkIn();
        const status = await command(hub.places, ["status"]);
        expect(status.stdout).toContain("the limit is reached");
        // The flow that was there ends too, and the lighthouse goes on.
        await until("the end of the flow", () => performance.now() - (flow.replies.at(-1)?.at ?? 0) > 5000);
        await flow.stop();
        hub.host.run(["ping", "-c", "3", "-W", "5", a.ip]);

        await plane.admin(["relay", "limit", "acme", "hub", "none"]);
        await until("configurations with the relay", () => relaysIn(a).length + relaysIn(b).length === 2);
        const again = startPing(a.host, b.ip);
        await again.reply(40_000);
        await again.stop();
      }, 180_000);
    },
    ["1.12"],
  );
});
