// Junk handshakes, which anyone can send to a lighthouse: the engine writes a line for each, and its log stays small without
// losing the others.

import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { ask, placesBelow, registerDesktop, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeSite, pingPeer } from "../support/machine-node.ts";
import { makeLan } from "../support/namespaces.ts";
import { describeMachine } from "../support/nspawn.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

const MB = 1_000_000;
const floodS = 12;

const junk = (host: string, port: number, seconds: number) => `
  const { createSocket } = require("node:dgram");
  const socket = createSocket("udp4");
  const end = Date.now() + ${seconds * 1000};
  const send = () => {
    for (let at = 0; at < 200; at++) {
      const packet = Buffer.alloc(116);
      crypto.getRandomValues(packet.subarray(16));
      packet[0] = 0x10;
      packet[15] = 1;
      socket.send(packet, ${port}, "${host}");
    }
    if (Date.now() < end) setImmediate(send); else socket.close();
  };
  send();
`;

asRoot("junk handshakes", () => {
  describeEngines("leave the log", ({ version, nebula }) => {
    test("small, and other lines in it", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      using lan = makeLan(["hub", "foe"]);
      const hub = lan.host("hub");
      const places = placesBelow(join(directory.path, "hub"), nebula);
      const flags = ["--is-lighthouse", "--public-ip", hub.address];
      await registerDesktop(acme, places, await acme.makeToken(["--lighthouse"]), "hub", flags);
      const daemon = await startDaemon(hub, places);
      await untilStatus(places, "acme", ({ state }) => state === "running", 30_000);
      const logs = join(places.stateDb, "../logs");
      const size = () =>
        readdirSync(logs).reduce(
          (sum, name) => sum + (statSync(join(logs, name), { throwIfNoEntry: false })?.size ?? 0),
          0,
        );
      const foe = lan.host("foe").spawn([process.execPath, "-e", junk(hub.address, 4242, floodS)]);
      let [largest, last, written] = [0, 0, 0];
      while (foe.exitCode === null) {
        const now = size();
        largest = Math.max(largest, now);
        written += Math.max(0, now - last);
        last = now;
        await Bun.sleep(50);
      }
      // Without a bound it would be all there. The first look comes within two seconds, in which a fast machine writes 80 MB.
      expect(written).toBeGreaterThan(10 * MB);
      expect(largest).toBeLessThan(written / 2);
      await until(() => size() < 11 * MB, { ms: 5000 });
      const text = ["acme.log", "acme.log.1"]
        .map((name) => join(logs, name))
        .map((path) => (existsSync(path) ? readFileSync(path, "latin1") : ""))
        .join("");
      expect(text).toContain("Nebula interface is active");
      expect(text).toMatch(/^\d+ lines with the error "Failed [^"]+" are left out here$/m);
      process.stdout.write(
        `engine ${version}: largest ${largest}, written over ${written}, at the end ${size()} bytes\n`,
      );
      await ask(places, { action: "shutdown" });
      expect(await daemon.exited).toBe(0);
    }, 120_000);
  });
});

describeMachine("junk handshakes on a machine in server mode", () => {
  test("fill its journal no more than the unit allows, and restarts and changes go on meanwhile", async () => {
    await using site = await makeSite(["vm"]);
    await using node = await site.boot("vm");
    const { machine } = node;
    await node.register("server");
    await machine.until(pingPeer, 20_000);
    const unit = "overlay-agent@acme.service";
    const pid = await machine.must(`systemctl show -P MainPID ${unit}`);
    const port = Number(
      await machine.must(`ss -Hlnup | grep -m1 'pid=${pid},' | sed -E 's/.*:([0-9]+) .*/\\1/'`),
    );
    const lines = async () => Number(await machine.must(`journalctl -q -u ${unit} -o cat | wc -l`));
    const before = await lines();
    const vm = site.host("vm");
    const begin = performance.now();
    const foe = site.peer.spawn([process.execPath, "-e", junk(vm.address, port, 120)]);
    // Until the journal drops lines, so that the engine's own may be among them.
    const burst = Number(await machine.must(`systemctl show -P LogRateLimitBurst ${unit}`));
    expect(burst).toBeGreaterThan(0);
    await machine.until(`test $(journalctl -q -u ${unit} -o cat | wc -l) -gt ${burst}`, 20_000);
    await machine.must("agent restart acme", 60_000);
    expect(await machine.must(`systemctl is-active ${unit}`)).toBe("active");
    expect(await machine.must(`systemctl show -P MainPID ${unit}`)).not.toBe(pid);
    await site.plane.api("POST", "/api/org/acme/firewall_rules/", {
      direction: "inbound",
      protocol: "tcp",
      ports: "8443",
      peer: { any: true },
      target: { any: true },
    });
    await machine.must("agent sync-config", 60_000);
    expect(await machine.must("cat /etc/overlay-agent/acme/config.yml")).toContain("8443");
    expect(foe.exitCode).toBeNull();
    foe.kill();
    await foe.exited;
    const seconds = (performance.now() - begin) / 1000;
    const written = (await lines()) - before;
    // journald allows more on a disk with much free space, at most six times the burst an interval.
    expect(written).toBeLessThan(6 * burst * Math.ceil(seconds / 30 + 1));
    await machine.until(pingPeer, 30_000);
    await machine.until("agent status --check", 60_000);
    process.stdout.write(`${written} lines in ${seconds.toFixed(1)} s of junk\n`);
  }, 240_000);
});
