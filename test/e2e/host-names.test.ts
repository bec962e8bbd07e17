// A lighthouse with a DNS name, and nodes that cannot resolve it: revocations apply, the engine starts, and the name is
// used again as soon as it resolves. Engine 1.6.1 alone would refuse both.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { command, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, until } from "../support/members.ts";
import { startNameServer } from "../support/name-server.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const name = "hub.example";

asRoot("a lighthouse with a name", () => {
  describeEngines("that has an IPv6 address only", ({ nebula }) => {
    test("a node finds it", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["hub", "desk"]);
      const names = join(directory.path, "names.json");
      writeFileSync(names, JSON.stringify({ [name]: "fd99::1" }));
      for (const [at, host] of lan.hosts.entries())
        host.run(["ip", "addr", "add", `fd99::${at + 1}/64`, "dev", "eth0", "nodad"]);
      await startNameServer(lan.host("desk"), names);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      await using network = await makeMembers(acme, lan, directory.path, nebula, { publicIp: name });
      const [hub, desk] = network.members;
      if (hub === undefined || desk === undefined) throw new Error("Two members");
      const ping = startPing(desk.host, hub.ip);
      await ping.reply(30_000);
      await ping.stop();
    }, 90_000);
  });

  describeEngines("that a node cannot resolve", ({ nebula, version }) => {
    const isOld = Bun.semver.order(version, "1.7.0") < 0;

    test("revocations apply, the engine starts, and the name is used when it resolves again", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["hub", "desk", "other"]);
      const names = join(directory.path, "names.json");
      const leadTo = (address: string) => writeFileSync(names, JSON.stringify({ [name]: address }));
      const hubHost = lan.host("hub");
      leadTo(hubHost.address);
      await startNameServer(lan.host("other"), names);
      const nameServer = await startNameServer(lan.host("desk"), names);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      await using network = await makeMembers(acme, lan, directory.path, nebula, { publicIp: name });
      const [hub, desk, other] = network.members;
      if (hub === undefined || desk === undefined || other === undefined) throw new Error("Three members");
      const config = () => readFileSync(join(desk.places.configRoot, "acme/config.yml"), "utf8");
      const [toHub, toOther] = [startPing(desk.host, hub.ip), startPing(desk.host, other.ip)];
      try {
        // The name did not resolve at the registration; the daemons resolve it at the first check-in.
        await Promise.all([toHub.reply(30_000), toOther.reply(30_000)]);
        expect(config()).toContain(`${isOld ? hubHost.address : name}:4242`);
        expect(config().includes(name)).toBe(!isOld);

        nameServer.kill("SIGKILL");
        await nameServer.exited;
        expect((await acme.api("DELETE", paths.node("acme", other.id))).status).toBe(204);
        await until("the revocation", () => /blocklist:\n\s+- "[0-9a-f]{64}"/.test(config()), 20_000);
        await until("silence", () => performance.now() - (toOther.replies.at(-1)?.at ?? 0) > 5000, 20_000);
        await toHub.reply(20_000);
        expect((await command(desk.places, ["sync-config"])).status).toBe(0);

        // As after a reboot. The newer engine starts too, but has no peer until the name resolves.
        expect((await command(desk.places, ["restart", "acme"])).status).toBe(0);
        await untilStatus(desk.places, "acme", ({ state }) => state === "running");
        if (isOld) await toHub.reply(20_000);

        hubHost.run(["ip", "addr", "flush", "dev", "eth0"]);
        hubHost.run(["ip", "addr", "add", "192.0.2.99/24", "dev", "eth0"]);
        leadTo("192.0.2.99");
        await startNameServer(desk.host, names);
        expect((await command(desk.places, ["sync-config"])).status).toBe(0);
        expect(config()).toContain(`${isOld ? "192.0.2.99" : name}:4242`);
        await toHub.reply(60_000);
      } finally {
        await Promise.all([toHub.stop(), toOther.stop()]);
      }
    }, 180_000);
  });
});
