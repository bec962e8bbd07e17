// Which relays a node chooses, and what becomes of its tunnels when one is lost. Pure decisions, without engines.

import { describe, expect, test } from "bun:test";
import { decide, initialHealing } from "../../../src/node/health/healing.ts";
import type { ObservedPeer, ObservedPeers } from "../../../src/node/health/observed-peers.ts";
import {
  chooseRelays,
  mostRelays,
  relayCandidates,
  type RelaySeen,
} from "../../../src/node/health/paths/relay-choice.ts";
import { withLocalChanges } from "../../../src/node/files/config/local-changes.ts";

const second = 1000;
const relays = ["10.77.0.1", "10.77.0.2", "10.77.0.3"];
const node = (at: number) => `10.77.${1 + Math.floor(at / 200)}.${1 + (at % 200)}`;
const seen = (own: string, states: Record<string, Partial<RelaySeen>> = {}, all = relays) =>
  new Map(
    relayCandidates(all, own).map((relay) => [relay, { rttMs: 20, isBroken: false, ...states[relay] }]),
  );

describe("a node chooses", () => {
  test("all relays while there are at most two", () => {
    expect(chooseRelays(undefined, seen("10.77.1.1", {}, relays.slice(0, 2)), 0)).toBeUndefined();
  });

  test("two of three, and 300 nodes spread evenly over them", () => {
    const used = new Map<string, number>();
    for (let at = 0; at < 300; at++) {
      const { chosen = [] } = chooseRelays(undefined, seen(node(at)), 0) ?? {};
      expect(new Set(chosen).size).toBe(mostRelays);
      for (const relay of chosen) used.set(relay, (used.get(relay) ?? 0) + 1);
    }
    for (const relay of relays) expect(used.get(relay)).toBeWithin(160, 240);
  });

  test("measures at most four of many, and after the loss of one spreads over all that are left", () => {
    const many = Array.from({ length: 10 }, (_, at) => `10.77.0.${at + 1}`);
    const gained = new Map<string, number>();
    for (let at = 0; at < 500; at++) {
      const own = node(at);
      expect(relayCandidates(many, own)).toHaveLength(4);
      const first = chooseRelays(undefined, seen(own, {}, many), 0);
      if (first === undefined || !first.chosen.includes("10.77.0.1")) continue;
      const lost = seen(own, { "10.77.0.1": { isBroken: true } }, many);
      const next = chooseRelays(first, lost, second);
      expect(next?.chosen).not.toContain("10.77.0.1");
      for (const relay of next?.chosen ?? [])
        if (!first.chosen.includes(relay)) gained.set(relay, (gained.get(relay) ?? 0) + 1);
    }
    expect(gained.size).toBe(9);
    const total = [...gained.values()].reduce((sum, each) => sum + each, 0);
    expect(Math.max(...gained.values())).toBeLessThan(total / 3);
  });

  test("a much shorter round trip once it is measured, and then stays with it while figures move a little", () => {
    const own = "10.77.1.1";
    const [a = "", b = "", c = ""] = relayCandidates(relays, own);
    const first = chooseRelays(undefined, seen(own), 0);
    expect(first?.chosen).toEqual([a, b]);
    const far = seen(own, { [a]: { rttMs: 180 } });
    expect(chooseRelays(first, far, 10 * second)).toEqual(first);
    const better = chooseRelays(first, far, 60 * second);
    expect(new Set(better?.chosen)).toEqual(new Set([b, c]));
    const nearly = seen(own, { [a]: { rttMs: 17 }, [b]: { rttMs: 21 } });
    expect(chooseRelays(better, nearly, 3600 * second)?.chosen).toEqual(better?.chosen ?? []);
  });

  test("nothing else while all relays are silent", () => {
    const own = "10.77.1.1";
    const first = chooseRelays(undefined, seen(own), 0);
    const silent = Object.fromEntries(relays.map((relay) => [relay, { isBroken: true }]));
    expect(chooseRelays(first, seen(own, silent), 5 * second)).toEqual(first);
  });
});

test("config.yml has the chosen relays that the control plane still names, else all of its own", () => {
  const config = { relay: { relays, am_relay: false } };
  const chosen = (...names: string[]) => withLocalChanges(config, { denied: [], relays: names })["relay"];
  expect(chosen("10.77.0.3", "10.77.0.1")).toEqual({ relays: ["10.77.0.1", "10.77.0.3"], am_relay: false });
  expect(chosen("10.77.0.3", "10.77.0.9")).toEqual({ relays: ["10.77.0.3"], am_relay: false });
  expect(chosen("10.77.0.9")).toEqual(config.relay);
});

describe("after the loss of a relay", () => {
  const now = 1_000_000;
  const relay = (address: string, isBroken: boolean): ObservedPeer => ({
    address,
    name: address,
    isLighthouse: false,
    isBroken,
    answeredAt: isBroken ? now - 6 * second : now - second,
    tunnel: undefined,
  });
  const peer = (at: number, through: string[], answeredAt: number | undefined): ObservedPeer => ({
    address: node(at),
    name: `n${at}`,
    isLighthouse: false,
    isBroken: false,
    answeredAt,
    tunnel: { index: at + 1, remote: undefined, relays: through, counter: 1, since: 0 },
  });
  const look = (peers: ObservedPeer[], at = now): ObservedPeers => ({
    now: at,
    own: "10.77.9.9",
    peers,
    relays,
    candidates: new Map(),
    neverDenied: [],
  });
  const closed = (actions: ReturnType<typeof decide>["actions"]) =>
    actions.flatMap((each) => (each.do === "close" ? [each.address] : []));
  const [one = "", two = ""] = relays;

  test("its tunnels are closed once each, at most five a second, with the relay as evidence", () => {
    const peers = Array.from({ length: 20 }, (_, at) => peer(at, [one], now - 5 * second));
    let state = initialHealing;
    const all: string[] = [];
    for (let at = 0; at < 30; at++) {
      const time = now + at * 250;
      const fresh = { ...relay(two, false), answeredAt: time };
      const next = decide(state, look([relay(one, true), fresh, ...peers], time));
      state = next.state;
      for (const action of next.actions)
        if (action.do === "close") expect(action.evidence).toMatchObject({ relay: one });
      expect(closed(next.actions).length).toBeLessThanOrEqual(5);
      all.push(...closed(next.actions));
    }
    expect(all.toSorted()).toEqual(peers.map(({ address }) => address).toSorted());
  });

  test("a tunnel that another relay carries already is left alone, and so are direct ones", () => {
    const direct = { ...peer(3, [one], now - 9 * second) };
    direct.tunnel = { index: 4, remote: "203.0.113.7:4242", relays: [one], counter: 1, since: 0 };
    const peers = [
      peer(1, [one, two], now + second),
      // It refuses ICMP, and may use the other relay.
      peer(2, [one, two], undefined),
      direct,
    ];
    const first = decide(initialHealing, look([relay(one, true), relay(two, false), ...peers]));
    const later = { ...relay(two, false), answeredAt: now + 4 * second };
    const next = decide(first.state, look([relay(one, true), later, ...peers], now + 5 * second));
    expect([...closed(first.actions), ...closed(next.actions)]).toEqual([]);
  });

  test("nothing is closed if no address answers: then this node itself has lost its network", () => {
    const peers = [peer(1, [one], now - 6 * second), relay(one, true), relay(two, true)];
    const first = decide(initialHealing, look(peers));
    expect(closed(decide(first.state, look(peers, now + 5 * second)).actions)).toEqual([]);
  });
});
