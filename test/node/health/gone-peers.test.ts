// A peer that was revoked or deleted is gone as soon as this node has the configuration or the names that say so.

import { expect, test } from "bun:test";
import { Inventory } from "../../../src/node/health/inventory.ts";
import { isUnknown } from "../../../src/node/health/shown-peer.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { ReplayedNetwork } from "../../support/replayed-network.ts";

/** A network in which b has answered and has stopped, with what `status`, `peers` and `whois` say of it. */
async function withSilentPeer(
  work: (network: ReplayedNetwork, told: () => Promise<unknown>) => Promise<void>,
) {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["hub", "b"]);
  const health = network.watch();
  const over = new AbortController();
  const running = health.run(over.signal);
  const { address } = network.peer("b");
  await network.pass(30_000, () => health.named.add([address], network.now));
  // The loop loads files when it begins, which simulated time does not wait for.
  while (health.current() === undefined) {
    await Bun.sleep(5);
    await network.pass(1000);
  }
  network.peer("b").isOn = false;
  await network.pass(70_000);
  const told = async () => {
    const asked = async (peer: string) => {
      const looking = health.readPeers(0, peer);
      await network.pass(100);
      return (await looking).peers.filter((each) => !isUnknown(each)).map(({ name }) => name);
    };
    return {
      status: health.current()?.broken,
      peers: health.peers().map(({ name }) => name),
      whois: [...(await asked("b")), ...(await asked(address))],
    };
  };
  expect(await told()).toEqual({ status: ["b"], peers: ["b", "hub"], whois: ["b", "b"] });
  await work(network, told);
  over.abort();
  await network.pass(1000);
  await running;
}

const gone = { status: [], peers: ["hub"], whois: [] };

test("by the names: it is no longer listed", async () => {
  await withSilentPeer(async (network, told) => {
    network.peer("b").isListed = false;
    network.list();
    await network.pass(11_000);
    expect(await told()).toEqual(gone);
  });
});

test("by the blocklist, at each of its addresses", async () => {
  await using world = await makeNodeWorld();
  const network = new ReplayedNetwork(await world.register(), ["hub"]);
  const [plain, sealed] = ["10.77.0.101", "fd00:77::65"];
  const tunnel = {
    vpnAddrs: [sealed, plain],
    localIndex: 7,
    messageCounter: 1,
    currentRemote: "203.0.113.7:4242",
    currentRelaysToMe: [],
    cert: { details: { name: "b", notAfter: "2027-02-18T12:00:00Z", groups: [] }, fingerprint: "of b" },
  };
  let tunnels = [tunnel];
  const inventory = new Inventory(network.place, {
    system: { now: Date.now },
    monotonic: () => network.now,
    engine: async () => ({ pid: 1, version: "1.12.0", ageMs: 0 }),
    tunnels: async () => tunnels,
  });
  await inventory.refresh(() => 0);
  expect([sealed, plain].map((each) => inventory.isBlocked(each))).toEqual([false, false]);
  tunnels = [];
  network.switchTo({ pki: { blocklist: ["of b"] } });
  await inventory.refresh(() => 0);
  expect([sealed, plain].map((each) => inventory.isBlocked(each))).toEqual([true, true]);
});

test("by the blocklist, before the names say so", async () => {
  await withSilentPeer(async (network, told) => {
    const { address } = network.peer("b");
    const config = {
      lighthouse: { hosts: [network.peer("hub").address] },
      // The simulated fingerprint is the address.
      pki: { blocklist: [address] },
    };
    network.switchTo(config);
    await network.pass(11_000);
    expect(await told()).toEqual(gone);
  });
});
