// In server mode check-auth heals, and `status --check` looks from another process: both must say the same.

import { expect, test } from "bun:test";
import { Healer, knownHealing } from "../../../src/node/health/healer.ts";
import { initialHealing, type HealingState } from "../../../src/node/health/healing.ts";
import { OrganizationHealth, type HealthDeps } from "../../../src/node/health/organization-health.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { quietEngine } from "../../support/quiet-engine.ts";

const peer = "10.77.0.7";
const state: HealingState = {
  ...initialHealing,
  peers: {
    [peer]: { attempt: undefined, failures: 3, notBefore: 0, denials: 0, deniedAt: 0, healed: undefined },
  },
  denials: [{ peer: "10.77.0.8", underlay: "203.0.113.8", until: 1e12 }],
};

test("what a healer knows is told without it", () => {
  const healer = new Healer(
    {
      slug: "acme",
      api: {
        closeTunnel: async () => false,
        createTunnel: async () => false,
        queryLighthouse: async () => ({}),
      },
      apply: async () => {},
      log: { warn() {}, info() {} },
    },
    { denied: ["203.0.113.8"] },
    0,
    { state, healings: [] },
  );
  const known = knownHealing(state);
  expect(known.givenUp).toEqual([peer]);
  expect(known.noteOf("10.77.0.8")).toBe("direct path loses packets");
  for (const address of [peer, "10.77.0.8", "10.77.0.9"])
    expect(known.noteOf(address)).toBe(healer.noteOf(address));
});

test("a look from another process is degraded by a tunnel that nothing has healed, and says so beside the peer", async () => {
  await using world = await makeNodeWorld();
  const place = await world.register();
  const look = async (known: Pick<HealthDeps, "known">) => {
    const now = 1_000_000;
    const health = new OrganizationHealth(place, {
      ...quietEngine,
      ...known,
      system: world.system,
      monotonic: () => now,
      tunnels: async () => [
        {
          vpnAddrs: [peer],
          localIndex: 1,
          messageCounter: 5,
          currentRemote: "203.0.113.7:4242",
          currentRelaysToMe: [],
        },
      ],
    });
    const record = {
      answeredAt: now - 60_000,
      rttMs: 1,
      missed: 9,
      since: 0,
      index: undefined,
      sent: 9,
      history: [],
    };
    health.prober.restore(peer, record);
    await health.check(0, "lighthouses");
    const dead = health.current()?.findings?.find(({ kind }) => kind === "tunnels_dead");
    return { dead: dead?.what, note: health.peers()[0]?.note };
  };
  const without = await look({});
  expect(without.dead).toBeUndefined();
  expect(await look({ known: knownHealing(state) })).toEqual({
    dead: `Tunnels stay dead after 3 attempts to heal each: ${peer}`,
    note: "several attempts to heal it had no effect",
  });
});
