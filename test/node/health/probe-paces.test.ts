import { expect, test } from "bun:test";
import { pacesOf } from "../../../src/node/health/probe-paces.ts";
import { Tunnels, type EngineTunnel } from "../../../src/node/health/tunnels.ts";

const now = 1_000_000;
const tunnel = (at: number, counter: number, more: Partial<EngineTunnel> = {}): EngineTunnel => ({
  vpnAddrs: [`10.77.0.${at}`],
  localIndex: at,
  messageCounter: counter,
  currentRemote: `192.0.2.${at}:4242`,
  currentRelaysToMe: [],
  ...more,
});

test("the eight busiest peers and the relays in use are probed more often, idle ones are not", () => {
  const tunnels = new Tunnels();
  const relayed = (counter: number) =>
    tunnel(20, counter, { currentRemote: "", currentRelaysToMe: ["10.77.0.1"] });
  const direct = Array.from({ length: 9 }, (_, at) => at + 2);
  tunnels.update([relayed(1), ...direct.map((at) => tunnel(at, 1))], {
    own: [],
    now: now - 100_000,
    probesTo: () => 0,
  });
  expect(pacesOf(tunnels.all, now)).toEqual(new Map());
  tunnels.update([relayed(99), ...direct.map((at) => tunnel(at, at === 2 ? 1 : 99))], {
    own: [],
    now,
    probesTo: () => 0,
  });
  const paces = pacesOf(tunnels.all, now);
  expect(paces.get("10.77.0.1")).toBe(2000);
  expect(paces.get("10.77.0.2")).toBeUndefined();
  expect([...paces.values()].filter((each) => each === 4000)).toHaveLength(8);
});

test("whose silence may mean that UDP is blocked is probed every eight seconds, and more often while it carries traffic", () => {
  const tunnels = new Tunnels();
  tunnels.update([tunnel(2, 1)], { own: [], now: now - 100_000, probesTo: () => 0 });
  expect(pacesOf(tunnels.all, now, ["10.77.0.2"])).toEqual(new Map([["10.77.0.2", 8000]]));
  tunnels.update([tunnel(2, 99)], { own: [], now, probesTo: () => 0 });
  expect(pacesOf(tunnels.all, now, ["10.77.0.2"])).toEqual(new Map([["10.77.0.2", 4000]]));
});

test("two nodes that probe each other every 4 s are idle to each other", () => {
  const tunnels = new Tunnels();
  let counter = 1;
  tunnels.update([tunnel(2, counter)], { own: [], now, probesTo: () => 0 });
  for (let at = now + 10_000; at < now + 700_000; at += 10_000) {
    // Ours, and answers to three probes of the peer.
    counter += 2 * 3;
    tunnels.update([tunnel(2, counter)], { own: [], now: at, probesTo: () => 3 });
  }
  expect(pacesOf(tunnels.all, now + 700_000)).toEqual(new Map());
});
