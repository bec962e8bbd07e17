// Configurations that pass the engine's test and fail at run time are rolled back, and the tunnel works. A certificate
// with another address is not a failure: the engine restarts with it.

import { expect, test } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "../support/paths.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { command, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { until } from "../support/members.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const holdPort = `
const socket = await Bun.udpSocket({ hostname: "0.0.0.0", port: 5555 });
process.stdout.write("held");
await new Promise(() => {});
`;

asRoot("sync-config", () => {
  describeEngines("on a running overlay", ({ nebula }) => {
    test("a busy port and an invalid interface are rolled back", async () => {
      using directory = temporaryDirectory();
      using stack = new DisposableStack();
      const lan = stack.use(makeLan(["lighthouse", "desk"]));
      const host = lan.host("desk");
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
      const binary = ["--overlay-binary", nebula];
      const there = ["--is-lighthouse", "--public-ip", lan.host("lighthouse").address, ...binary];
      const root = join(directory.path, "lighthouse");
      const lighthouse = await registerNode(acme, root, "lighthouse", token, there);
      const places = placesBelow(join(directory.path, "desk"), nebula);
      await registerDesktop(acme, places, token, "desk");
      stack.use(await startEngine(lan.host("lighthouse"), nebula, lighthouse.directory));
      stack.use(await bridgePort(host, directory.path, Number(new URL(plane.url).port)));
      const daemon = await startDaemon(host, places);
      stack.defer(() => daemon.signal("SIGTERM"));
      await untilStatus(places, "acme", ({ state }) => state === "running");
      const ping = startPing(host, lighthouse.ip_address);
      stack.defer(() => void ping.stop());
      await ping.reply(20_000);

      const of = join(places.configRoot, "acme");
      const overrides = (text: string) => writeFileSync(join(of, "overrides.yml"), text);
      const present = () => readFileSync(join(of, "config.yml"), "utf8");
      // The daemon has written the port that the engine got, so that nothing but the rollbacks changes the file from here on.
      await until("the kept port", () => /^ {2}port: [1-9]/m.test(present()), 30_000);
      const before = present();
      const sync = async () => {
        const { status, stdout } = await command(places, ["sync-config", "--json"]);
        return { status, json: JSON.parse(stdout) as unknown };
      };
      const returned = async () => {
        expect(await sync()).toMatchObject({
          status: 1,
          json: { organizations: [{ result: "returned", reason: expect.stringMatching(/./) }] },
        });
        expect(present()).toBe(before);
        await ping.reply(20_000);
        expect(await untilStatus(places, "acme", ({ state }) => state === "running")).toMatchObject({
          wanted: "up",
        });
      };

      const holder = Bun.spawn(host.inside([process.execPath, "-e", holdPort]), { stdout: "pipe" });
      stack.defer(() => holder.kill());
      await holder.stdout.getReader().read();
      overrides("listen:\n  port: 5555\n");
      await returned();
      overrides('tun:\n  dev: "eth0"\n');
      await returned();
      // With a free port, the same configuration is applied.
      holder.kill();
      await holder.exited;
      overrides("listen:\n  port: 5555\n");
      expect(await sync()).toMatchObject({ status: 0, json: { organizations: [{ result: "changed" }] } });
      await ping.reply(20_000);
      rmSync(join(of, "overrides.yml"));

      const nodes = v.parse(v.array(Node), await (await acme.api("GET", paths.nodes("acme"))).json());
      const id = nodes.find(({ name }) => name === "desk")?.id ?? 0;
      const moved = await acme.api("PATCH", paths.node("acme", id), { ip_address: "10.77.0.200" });
      expect(moved.status).toBe(200);
      await untilStatus(
        places,
        "acme",
        (status) => status.ip_address === "10.77.0.200" && status.state === "running",
      );
      expect((await sync()).status).toBe(0);
      await ping.reply(20_000);
      expect(host.run(["ip", "-o", "addr"])).toContain("10.77.0.200/");
    }, 120_000);
  });
});
