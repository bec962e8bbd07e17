// What is done about dead tunnels, on a simulated clock: the decision alone, without engines.

import { describe, expect, test } from "bun:test";
import {
  decide,
  givenUp,
  initialHealing,
  mostDenials,
  urgentFor,
  type Action,
  type HealingState,
} from "../../../src/node/health/healing.ts";
import type { ObservedPeer, ObservedPeers } from "../../../src/node/health/observed-peers.ts";

const second = 1000;
const minute = 60 * second;

const lighthouse = (now: number): ObservedPeer => ({
  address: "10.77.0.1",
  name: "lighthouse",
  isLighthouse: true,
  isBroken: false,
  answeredAt: now - second,
  tunnel: { index: 1, remote: "203.0.113.1:4242", relays: [], counter: 1, since: 0 },
});

/** A world of one peer whose answers depend on what was done. */
class World {
  now = 1_000_000;
  state: HealingState = initialHealing;
  actions: { at: number; action: Action }[] = [];
  seen: Partial<ObservedPeers> = {};
  answeredAt: number | undefined = this.now;
  index = 7;
  remote: string | undefined = "203.0.113.7:4242";
  isOnline = true;
  readonly start = this.now;

  readonly answers: (world: World) => boolean;

  constructor(answers: (world: World) => boolean) {
    this.answers = answers;
  }

  get denied(): readonly string[] {
    return this.state.denials.map(({ underlay }) => underlay);
  }

  peer(): ObservedPeer {
    const silent = this.now - (this.answeredAt ?? this.now);
    return {
      address: "10.77.0.7",
      name: "web",
      isLighthouse: false,
      isBroken: this.answeredAt !== undefined && silent > 13 * second,
      answeredAt: this.answeredAt,
      tunnel: this.isOnline
        ? { index: this.index, remote: this.remote, relays: [], counter: this.now, since: 0 }
        : undefined,
    };
  }

  step(ms = second): Action[] {
    this.now += ms;
    if (this.answers(this)) this.answeredAt = this.now;
    const seen: ObservedPeers = {
      now: this.now,
      peers: [lighthouse(this.now), this.peer()],
      relays: ["10.77.0.1"],
      neverDenied: ["203.0.113.1"],
      own: "10.77.0.9",
      candidates: new Map(),
      ...this.seen,
    };
    const { state, actions } = decide(this.state, seen);
    this.state = state;
    for (const action of actions) {
      this.actions.push({ at: (this.now - this.start) / second, action });
      if (action.do === "close") this.index += 1;
    }
    return actions;
  }

  run(ms: number): this {
    for (const end = this.now + ms; this.now < end;) this.step();
    return this;
  }

  count(kind: Action["do"], what?: string): number {
    return this.actions.filter(
      ({ action }) =>
        action.do === kind && (what === undefined || (action.do === "tell" && action.what === what)),
    ).length;
  }
}

describe("lost tunnel state", () => {
  test("is closed within 15 s of silence, and told as healed", () => {
    const world = new World(({ index, now, start }) => now - start < 5 * second || index > 7).run(minute);
    const [first] = world.actions;
    expect(first?.action).toMatchObject({
      do: "close",
      address: "10.77.0.7",
      evidence: { peer: "web", remote: "203.0.113.7:4242", silentS: 14, witness: "10.77.0.1" },
    });
    expect(world.count("close")).toBe(1);
    expect(world.count("tell", "healed")).toBe(1);
    expect(world.denied).toEqual([]);
  });
});

describe("a path that is lost in one direction", () => {
  const oneWay = (repaired = Number.POSITIVE_INFINITY) =>
    new World(
      ({ now, start, denied }) => now - start < 5 * second || denied.length > 0 || now - start > repaired,
    );

  test("leads to the relay within 30 s, and is tried again after 5, 10, 20 … 60 minutes", () => {
    const world = oneWay().run(5 * 60 * minute);
    const denials = world.actions.filter(({ action }) => action.do === "tell" && action.what === "denied");
    const lifts = world.actions.filter(({ action }) => action.do === "tell" && action.what === "lifted");
    expect(denials[0]?.at).toBeLessThan(5 + 30);
    const times = lifts.map(({ at }, index) => Math.round((at - (denials[index]?.at ?? 0)) / 60));
    expect(times.slice(0, 5)).toEqual([5, 10, 20, 40, 60]);
  });

  test("stays direct once it is repaired", () => {
    const world = oneWay(3 * minute).run(60 * minute);
    expect(world.count("tell", "denied")).toBe(1);
    expect(world.count("tell", "lifted")).toBe(1);
    expect(world.denied).toEqual([]);
  });

  test("a death soon after a closing that helped is denied without another closing", () => {
    // The engine goes back to the direct address after the first answers.
    const world = new World(
      ({ now, start, index, denied, state }) =>
        now - start < 5 * second ||
        denied.length > 0 ||
        (index > 7 && now - (state.peers["10.77.0.7"]?.notBefore ?? 0) < -50 * second),
    ).run(2 * minute);
    expect(world.count("close")).toBe(1);
    expect(world.count("tell", "healed")).toBe(1);
    expect(world.count("tell", "relayed")).toBe(1);
  });

  test("a death soon after a closing that helped is denied, also if the peer's port has changed", () => {
    const world = new World(
      ({ now, start, index, denied, state }) =>
        now - start < 5 * second ||
        denied.length > 0 ||
        (index > 7 && now - (state.peers["10.77.0.7"]?.notBefore ?? 0) < -50 * second),
    );
    for (let at = 0; at < 120; at++) {
      if (world.count("tell", "healed") > 0) world.remote = "203.0.113.7:51234";
      world.step();
    }
    expect(world.count("close")).toBe(1);
    expect(world.count("tell", "relayed")).toBe(1);
  });

  test("after a closing that helped, the tunnel is looked at each second: the dead path may come back", () => {
    const world = new World(({ now, start, index }) => now - start < 5 * second || index > 7).run(
      30 * second,
    );
    const healedAt = world.state.peers["10.77.0.7"]?.healed?.at ?? expect.unreachable();
    const urgentAt = (now: number, isBroken: boolean) =>
      urgentFor(world.state, { now, peers: [{ ...world.peer(), isBroken }] });
    expect(urgentAt(healedAt + 19 * second, false)).toEqual(["10.77.0.7"]);
    expect(urgentAt(healedAt + 21 * second, false)).toEqual([]);
    // The list of tunnels that calls it relayed may be old.
    expect(urgentAt(healedAt + 2 * minute, true)).toEqual(["10.77.0.7"]);
    expect(urgentAt(healedAt + 4 * minute, true)).toEqual([]);
  });

  test("a handshake that takes longer than 5 s is waited for", () => {
    const world = oneWay();
    for (let at = 0; at < 60; at++) {
      const closedAt = world.actions.find(({ action }) => action.do === "close")?.at ?? Infinity;
      const seconds = (world.now - world.start) / second;
      world.isOnline = seconds < closedAt || seconds > closedAt + 8;
      world.step();
    }
    expect(world.count("tell", "no effect")).toBe(0);
    expect(world.count("tell", "relayed")).toBe(1);
  });

  for (const [what, seen] of [
    ["without a relay", { relays: [] }],
    ["if the peer is the relay itself", { relays: ["10.77.0.7"] }],
    ["if a lighthouse has the same address", { neverDenied: ["203.0.113.7"] }],
  ] as const) {
    test(`nothing is denied ${what}`, () => {
      const world = oneWay();
      world.seen = seen;
      world.run(30 * minute);
      expect(world.count("close")).toBeGreaterThan(0);
      expect(world.count("tell", "denied")).toBe(0);
    });
  }

  test("nothing is denied if a peer that answers has the same address: behind one router, or a forged one", () => {
    const world = oneWay();
    for (const end = world.now + 30 * minute; world.now < end;) {
      const neighbor: ObservedPeer = {
        ...lighthouse(world.now),
        address: "10.77.0.8",
        isLighthouse: false,
        tunnel: { index: 3, remote: "203.0.113.7:51234", relays: [], counter: 1, since: 0 },
      };
      world.seen = { peers: [lighthouse(world.now), world.peer(), neighbor] };
      world.step();
    }
    expect(world.count("close")).toBeGreaterThan(0);
    expect(world.count("tell", "denied")).toBe(0);
  });

  test("a denial without effect is lifted at once", () => {
    const world = new World(({ now, start }) => now - start < 5 * second).run(2 * minute);
    expect(world.count("tell", "denied")).toBeGreaterThan(0);
    expect(world.denied).toEqual([]);
  });
});

test("attempts without effect come after 1 and 2 minutes, then this node gives up until the peer answers", () => {
  let back = false;
  const world = new World(({ now, start }) => now - start < 5 * second || back);
  world.seen = { relays: [] };
  world.run(9 * minute);
  const closed = world.actions.filter(({ action }) => action.do === "close").map(({ at }) => at);
  expect(closed).toHaveLength(3);
  expect(closed.map((at, index) => Math.round((at - (closed[index - 1] ?? at)) / 60))).toEqual([0, 1, 2]);
  expect(world.count("tell", "given up")).toBe(1);
  expect(givenUp(world.state)).toEqual(["10.77.0.7"]);
  back = true;
  world.run(minute);
  expect(givenUp(world.state)).toEqual([]);
});

test("nothing is closed while no peer answers: this node itself may be off line", () => {
  const world = new World(({ now, start }) => now - start < 5 * second);
  const lastAnswer = world.start + 4 * second;
  for (let at = 0; at < 300; at++) {
    // The engine leaves a tunnel in which nothing comes back.
    if (at > 25) world.isOnline = false;
    const peer = world.peer();
    const { tunnel, isBroken } = peer;
    const hub = { ...lighthouse(0), isBroken, answeredAt: lastAnswer };
    world.seen = { peers: [tunnel === undefined ? { ...hub, tunnel } : hub, peer] };
    world.step();
  }
  expect(world.count("close")).toBe(0);
});

test("a tunnel that the engine keeps for 30 s of silence shows that this node is connected: it is closed", () => {
  const world = new World(({ now, start }) => now - start < 5 * second);
  for (let at = 0; at < 45; at++) {
    world.seen = { peers: [world.peer()] };
    world.step();
    expect([at, world.count("close")]).toEqual([at, at < 33 ? 0 : 1]);
  }
});

test("a peer without a tunnel is off, not dead", () => {
  const world = new World(({ now, start }) => now - start < 5 * second);
  world.isOnline = false;
  expect(world.run(20 * minute).count("close")).toBe(0);
});

test("100 peers that refuse ICMP for 24 hours: no tunnel is closed", () => {
  let state = initialHealing;
  const all: Action[] = [];
  const quiet = Array.from({ length: 100 }, (_, at): ObservedPeer => ({
    address: `10.77.1.${at}`,
    name: `node-${at}`,
    isLighthouse: false,
    isBroken: false,
    answeredAt: undefined,
    tunnel: { index: at, remote: `198.51.100.${at}:4242`, relays: [], counter: at, since: 0 },
  }));
  for (let now = 0; now < 24 * 60 * minute; now += 5 * second) {
    const { state: next, actions } = decide(state, {
      now,
      peers: [lighthouse(now), ...quiet],
      relays: ["10.77.0.1"],
      neverDenied: [],
      own: "10.77.0.9",
      candidates: new Map(),
    });
    state = next;
    all.push(...actions);
  }
  expect(all).toEqual([]);
}, 120_000);

test("at most ten closings a minute and twenty denied addresses", () => {
  let state = initialHealing;
  const closings: number[] = [];
  let most = 0;
  const start = 1_000_000;
  const indexes = new Map<string, number>();
  for (let now = start; now < start + 9 * minute; now += second) {
    const peers = Array.from({ length: 100 }, (_, at): ObservedPeer => {
      const address = `10.77.1.${at}`;
      return {
        address,
        name: address,
        isLighthouse: false,
        isBroken: true,
        answeredAt: start - 14 * second,
        tunnel: {
          index: indexes.get(address) ?? at,
          remote: `198.51.100.${at}:4242`,
          relays: [],
          counter: 1,
          since: 0,
        },
      };
    });
    const seen = {
      now,
      peers: [lighthouse(now), ...peers],
      relays: ["10.77.0.1"],
      neverDenied: [],
      own: "10.77.0.9",
      candidates: new Map(),
    };
    const { state: next, actions } = decide(state, seen);
    state = next;
    for (const action of actions) {
      if (action.do !== "close") continue;
      closings.push(now);
      indexes.set(action.address, 1000 + closings.length);
    }
    most = Math.max(most, state.denials.length);
    expect(closings.filter((at) => now - at < minute).length).toBeLessThanOrEqual(10);
    expect(state.denials.length).toBeLessThanOrEqual(mostDenials);
  }
  expect(closings.length).toBeGreaterThan(50);
  expect(most).toBeGreaterThan(5);
});

describe("a relayed tunnel", () => {
  const relayed = (counter: number, address = "10.77.0.7"): ObservedPeer => ({
    address,
    name: "web",
    isLighthouse: false,
    isBroken: false,
    answeredAt: undefined,
    tunnel: { index: 7, remote: undefined, relays: [], counter, since: 0 },
  });
  const look = (state: HealingState, now: number, ...peers: ObservedPeer[]) =>
    decide(state, { now, peers, relays: [], neverDenied: [], own: "10.77.0.9", candidates: new Map() }).state;

  test("tries the direct path often while it is quiet, and by the engine's default while it is busy", () => {
    let state = look(initialHealing, 1_000_000, relayed(5));
    expect(state.tryPromote).toBe(2);
    state = look(state, 1_010_000, relayed(7));
    expect(state.tryPromote).toBe(2);
    state = look(state, 1_020_000, relayed(7000));
    expect(state.tryPromote).toBeUndefined();
    // Quiet again, but not reloaded every few seconds.
    state = look(state, 1_030_000, relayed(7001));
    expect(state.tryPromote).toBeUndefined();
    state = look(state, 1_090_000, relayed(7002));
    expect(state.tryPromote).toBe(2);
    state = look(state, 1_160_000);
    expect(state.tryPromote).toBeUndefined();
  });

  test("tries the direct path within seconds after another tunnel became direct", () => {
    let state = look(initialHealing, 1_000_000, relayed(5));
    // Direct for over a minute: the default comes back, and just after it a tunnel is relayed again.
    state = look(state, 1_061_000);
    expect(state.tryPromote).toBeUndefined();
    state = look(state, 1_062_000, relayed(5));
    expect(state.tryPromote).toBeUndefined();
    state = look(state, 1_077_000, relayed(6));
    expect(state.tryPromote).toBe(2);
  });

  test("of a peer whose address is denied does not", () => {
    const denials = [{ peer: "10.77.0.7", underlay: "203.0.113.7", until: 9_000_000 }];
    expect(look({ ...initialHealing, denials }, 1_000_000, relayed(5)).tryPromote).toBeUndefined();
  });
});

test("an attempt asks for another look soon", () => {
  const world = new World(({ now, start }) => now - start < 5 * second).run(20 * second);
  expect(urgentFor(world.state, { now: world.now, peers: [world.peer()] })).toEqual(["10.77.0.7"]);
});
