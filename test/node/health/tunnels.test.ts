import { expect, test } from "bun:test";
import { Tunnels, type EngineTunnel } from "../../../src/node/health/tunnels.ts";

const tunnel = (change: Partial<EngineTunnel> = {}): EngineTunnel => ({
  vpnAddrs: ["10.77.0.2"],
  localIndex: 1,
  messageCounter: 10,
  currentRemote: "192.0.2.2:4242",
  currentRelaysToMe: ["10.77.0.1"],
  cert: { details: { name: "b", notAfter: "2027-02-18T12:00:00Z", groups: [] }, fingerprint: "ab" },
  ...change,
});
const own = ["10.77.0.9"];
const none = () => 0;

test("a direct tunnel keeps the relays of its past, which do not count", () => {
  const tunnels = new Tunnels();
  tunnels.update([tunnel()], { own, now: 1000, probesTo: none });
  expect(tunnels.get("10.77.0.2")).toMatchObject({ name: "b", remote: "192.0.2.2:4242", since: 1000 });
  tunnels.update([tunnel({ currentRemote: "" })], { own, now: 2000, probesTo: none });
  expect(tunnels.get("10.77.0.2")).toMatchObject({ remote: undefined, relays: ["10.77.0.1"] });
});

test("the age begins again with another index, and a tunnel that is gone is forgotten", () => {
  const tunnels = new Tunnels();
  tunnels.update([tunnel()], { own, now: 1000, probesTo: none });
  tunnels.update([tunnel()], { own, now: 2000, probesTo: none });
  expect(tunnels.get("10.77.0.2")?.since).toBe(1000);
  tunnels.update([tunnel({ localIndex: 2 })], { own, now: 3000, probesTo: none });
  expect(tunnels.get("10.77.0.2")?.since).toBe(3000);
  tunnels.update([], { own, now: 4000, probesTo: none });
  expect(tunnels.all).toEqual([]);
});

test("this node itself is no peer", () => {
  const tunnels = new Tunnels();
  tunnels.update([tunnel({ vpnAddrs: own })], { own, now: 1000, probesTo: none });
  expect(tunnels.all).toEqual([]);
});

test("two nodes that probe each other do not count that as traffic; other packets do, for ten minutes", () => {
  const tunnels = new Tunnels();
  let counter = 10;
  let now = 0;
  const pass = (packets: number, probes: number) => {
    counter += packets;
    now += 10_000;
    tunnels.update([tunnel({ messageCounter: counter })], { own, now, probesTo: () => probes });
    const [seen] = tunnels.all;
    return seen !== undefined && tunnels.isActive(seen, now);
  };
  expect(pass(0, 0)).toBe(true);
  // Our probe and the answer to theirs, or the burst of one of the two sides.
  const quiet = Array.from({ length: 62 }, (_, at) => pass(at % 2 === 0 ? 2 : 5, at % 2 === 0 ? 1 : 0));
  expect(quiet.at(0)).toBe(true);
  expect(quiet.at(-1)).toBe(false);
  expect(pass(20, 1)).toBe(true);
});
