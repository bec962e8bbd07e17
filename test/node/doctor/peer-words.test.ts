// Peers are written by their names wherever this machine knows them: each kind of finding in status, doctor and netcheck,
// with an engine that tells no names, so that only hosts.json does.

import { expect, test } from "bun:test";
import { createSocket } from "node:dgram";
import { stateText } from "../../../src/daemon/asking/health-text.ts";
import { renderStatus } from "../../../src/daemon/asking/status-text.ts";
import type { OrganizationState } from "../../../src/daemon/ipc/messages.ts";
import { ok } from "../../../src/node/doctor/check.ts";
import { canMeet } from "../../../src/node/doctor/can-meet.ts";
import { netcheck } from "../../../src/node/doctor/netcheck.ts";
import { examineTraffic } from "../../../src/node/doctor/traffic.ts";
import { allKinds, type Kind } from "../../../src/node/health/findings.ts";
import type { OpenEcho } from "../../../src/platform/network/echo-socket.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { ReplayedNetwork } from "../../support/replayed-network.ts";
import { emptyMachine } from "../../support/machine.ts";

/** Whether the words of a kind name peers. A new kind says it here, and is then met below. */
const namesPeers: Record<Kind, boolean> = {
  not_running: false,
  manager_silent: false,
  certificate_not_valid_yet: false,
  certificate_expired: false,
  cloned: false,
  clock_differs: false,
  address_moved: false,
  no_lighthouse: false,
  lighthouses_silent: true,
  nodes_silent: false,
  no_node_came: false,
  routers_silent: true,
  network_unreached: false,
  tunnels_dead: true,
  large_packets_lost: true,
  probing: false,
  icmp_denied: false,
  tunnels_unknown: false,
  contact_unknown: false,
  not_checked: false,
  not_started_at_boot: false,
  disk_full: false,
  disk_filling: false,
  forgotten: false,
  peers_silent: true,
};

const overlayAddress = /\b10\.77\.0\.1\d\d\b/;

const losingLarge: OpenEcho = async (_, onReply) => ({
  send(_to, sequence, payload) {
    if (payload.length < 1200) onReply({ sequence, payload });
    return true;
  },
  close() {},
});

const timedOut = (address: string, now: number) =>
  `time="${new Date(now).toISOString()}" level=info msg="Handshake timed out" vpnAddrs="[${address}]"`;

test("no sentence of status, doctor and netcheck writes the overlay address of a peer whose name is known", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const engine = createSocket("udp4");
  engine.on("message", (packet, { port, address }) =>
    engine.send(Buffer.concat([Buffer.from([0x12]), packet.subarray(1)]), port, address),
  );
  await new Promise<void>((resolve) => engine.bind(0, "127.0.0.1", resolve));
  const network = new ReplayedNetwork(organization, ["hub", "b", "office"]);
  const [hub, b, office] = ["hub", "b", "office"].map((name) => network.peer(name).address);
  network.switchTo({
    lighthouse: { hosts: [hub] },
    static_host_map: { [hub ?? ""]: [`127.0.0.1:${engine.address().port}`] },
    tun: { unsafe_routes: [{ route: "192.168.9.0/24", via: office }] },
  });
  network.namesPeers = false;
  const health = network.watch({ known: { givenUp: [b ?? ""], noteOf: () => undefined } });
  const over = new AbortController();
  const running = health.run(over.signal);
  const met = new Set<Kind>();
  const examine = async () => {
    const findings = health.current()?.findings ?? [];
    for (const { kind } of findings) met.add(kind);
    const seen: OrganizationState = {
      team: "acme",
      state: "running",
      wanted: "up",
      mode: "server",
      name: "desk",
      ip_address: "10.77.0.5",
      certificate_not_after: "2027-02-18T12:00:00Z",
      health: health.current() ?? expect.unreachable(),
      findings,
    };
    const system = {
      lookup: async () => [],
      sleep: async () => undefined,
      machineState: async () => emptyMachine,
      monotonic: () => 0,
      env: {},
    };
    const check = (told: OrganizationState | undefined) =>
      netcheck(organization, {
        system,
        open: losingLarge,
        probedStatus: async () => told,
        controlPlane: async () => ok("fine"),
        engine: async () => ({ isRunning: true, running: "1.6.1" }),
      });
    const checks = [
      ...(await examineTraffic(organization, seen, system)),
      ...(await check(seen)),
      ...(await check(undefined)),
    ];
    const found = canMeet(organization, [timedOut(b ?? "", network.now)], network.now);
    const report = { daemon: { running: true }, teams: [seen] };
    return [
      renderStatus(report, network.now),
      stateText(seen),
      found.evidence,
      ...checks.flatMap(({ evidence, remedy = "" }) => [evidence, remedy]),
    ];
  };
  health.named.add([b ?? ""], network.now);
  // The first look reads files, for which simulated time does not wait.
  while (health.current() === undefined) await network.pass(1000);
  await network.pass(30_000, () => health.named.add([b ?? ""], network.now));
  network.peer("hub").largest = 1200;
  await network.pass(45_000, () => health.named.add([b ?? ""], network.now));
  // Files are read in real time, which simulated time does not wait for.
  const isTold = () => health.current()?.findings?.some(({ kind }) => kind === "large_packets_lost");
  for (let tries = 0; isTold() !== true && tries < 200; tries++) {
    await network.pass(5000, () => health.named.add([b ?? ""], network.now));
    await Bun.sleep(5);
  }
  const large = await examine();
  for (const peer of network.peers) peer.refusesIcmp = true;
  await network.pass(20_000, () => health.named.add([b ?? ""], network.now));
  const silent = await examine();
  over.abort();
  await network.pass(1000);
  await running;
  engine.close();
  expect([...met].filter((kind) => namesPeers[kind]).sort()).toEqual(
    allKinds.filter((kind) => namesPeers[kind]).sort(),
  );
  expect([...large, ...silent].filter((text) => overlayAddress.test(text))).toEqual([]);
});
