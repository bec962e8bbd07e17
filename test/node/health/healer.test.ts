// Carrying out what healing decides, with a control socket and a configuration that are replaced, and going on in another
// process.

import { expect, test } from "bun:test";
import type { LocalChanges } from "../../../src/node/files/config/local-changes.ts";
import { Healer } from "../../../src/node/health/healer.ts";
import type { ObservedPeer, ObservedPeers } from "../../../src/node/health/observed-peers.ts";
import { readHealing, writeHealing } from "../../../src/node/health/saved-healing.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const second = 1000;
const minute = 60 * second;

function makeHealer(
  options: {
    fails?: number;
    tunnels?: number;
    /** Addresses by which the engine of this lighthouse knows nodes. */
    reported?: string[];
    inherited?: LocalChanges;
    saved?: Pick<Healer, "state" | "healings">;
  } = {},
) {
  const done: string[] = [];
  const said: string[] = [];
  let fails = options.fails ?? 0;
  /** Tunnels with one peer that are left to close; the next handshakes make as many. */
  const left = new Map<string, number>();
  const say = (text: string) => void said.push(text);
  const healer = new Healer(
    {
      slug: "acme",
      api: {
        async closeTunnel(address) {
          const count = left.get(address) ?? options.tunnels ?? 1;
          if (count === 0) return !left.delete(address);
          left.set(address, count - 1);
          done.push(`close ${address}`);
          return true;
        },
        createTunnel: async (address, remote) => (
          done.push(`create ${[address, remote].filter(Boolean).join(" ")}`),
          true
        ),
        queryLighthouse: async (address) =>
          options.reported?.includes(address) === true
            ? { [address]: { learned: [], reported: ["203.0.113.7:4242"], relay: [] } }
            : {},
      },
      apply: async (changes) => {
        if (fails-- > 0) throw new Error("the engine is busy");
        done.push(`apply ${JSON.stringify(changes)}`);
      },
      log: { warn: say, info: say },
    },
    options.inherited ?? { denied: [] },
    0,
    options.saved,
  );
  return { healer, done, said };
}

function look(now: number, index: number, answeredAt = 0): ObservedPeers {
  const peer = (change: Partial<ObservedPeer>): ObservedPeer => ({
    address: "10.77.0.7",
    name: "web",
    isLighthouse: false,
    isBroken: now - answeredAt > 13 * second,
    answeredAt,
    tunnel: { index, remote: "203.0.113.7:4242", relays: [], counter: 1, since: 0 },
    ...change,
  });
  const tunnel = { index: 1, remote: "203.0.113.1:4242", relays: [], counter: 1, since: 0 };
  const lighthouse = { address: "10.77.0.1", isLighthouse: true, isBroken: false, answeredAt: now, tunnel };
  return {
    now,
    peers: [peer({}), peer(lighthouse)],
    relays: ["10.77.0.1"],
    neverDenied: [],
    own: "10.77.0.9",
    candidates: new Map(),
  };
}

test("closing a dead tunnel closes the former ones with the peer too: the engine would go back to one", async () => {
  const { healer, done } = makeHealer({ tunnels: 3 });
  await healer.step(look(20 * second, 7));
  expect(done).toEqual(["close 10.77.0.7", "close 10.77.0.7", "close 10.77.0.7"]);
});

test("closes, denies by a reload, closes again so that the relay is used, and asks for another look meanwhile", async () => {
  const { healer, done, said } = makeHealer();
  expect(await healer.step(look(14 * second, 1))).toEqual(["10.77.0.7"]);
  expect(await healer.step(look(20 * second, 2))).toEqual(["10.77.0.7"]);
  expect(healer.noteOf("10.77.0.7")).toBe("direct path loses packets");
  expect(await healer.step(look(24 * second, 3, 23 * second))).toEqual([]);
  expect(done).toEqual(["close 10.77.0.7", 'apply {"denied":["203.0.113.7"]}', "close 10.77.0.7"]);
  expect(said).toEqual([
    "A tunnel is dead: closing it",
    "Closing a dead tunnel did not help: its direct path loses packets, so a relay is used for a while",
    "The peer answers through a relay",
  ]);
});

test("a change that fails is tried again with the next look", async () => {
  const { healer, done } = makeHealer({ fails: 1 });
  await healer.step(look(14 * second, 1));
  await healer.step(look(20 * second, 2));
  expect(done).toEqual(["close 10.77.0.7"]);
  await healer.step(look(21 * second, 2));
  expect(done.slice(1)).toEqual(['apply {"denied":["203.0.113.7"]}', "close 10.77.0.7"]);
});

test("an address that is denied while the denial of another one waits: both tunnels are closed afterwards", async () => {
  const { healer, done } = makeHealer({ fails: 2 });
  const both = (now: number, web: number, db: number): ObservedPeers => {
    const { peers, ...rest } = look(now, web);
    const [peer, ...others] = peers;
    if (peer === undefined) throw new Error("A peer");
    const tunnel = { index: db, remote: "203.0.113.8:4242", relays: [], counter: 1, since: 0 };
    return { ...rest, peers: [peer, { ...peer, address: "10.77.0.8", name: "db", tunnel }, ...others] };
  };
  await healer.step(both(14 * second, 1, 1));
  // The first denial, and its failure; then the second one, before the first could be applied.
  await healer.step(both(20 * second, 2, 1));
  await healer.step(both(21 * second, 2, 2));
  done.length = 0;
  await healer.step(both(25 * second, 2, 2));
  expect(done).toEqual([
    'apply {"denied":["203.0.113.7","203.0.113.8"]}',
    "close 10.77.0.7",
    "close 10.77.0.8",
  ]);
});

test("a change that fails for an hour is tried with growing pauses", async () => {
  const { healer, said } = makeHealer({ fails: 10_000 });
  await healer.step(look(14 * second, 1));
  for (let now = 20 * second; now < 60 * minute; now += second) await healer.step(look(now, 2));
  const failures = said.filter((text) => text === "Cannot change the paths of tunnels");
  expect(failures.length).toBeGreaterThan(10);
  expect(failures.length).toBeLessThan(30);
});

test("what an earlier process denied without leaving its knowledge is tried again after five minutes", async () => {
  const { healer, done } = makeHealer({ inherited: { denied: ["203.0.113.9"] } });
  await healer.step(look(minute, 1, minute));
  expect(done).toEqual([]);
  await healer.step(look(5 * minute, 1, 5 * minute));
  expect(done).toEqual(['apply {"denied":[]}']);
});

test("the next run goes on with an attempt, its backoff and its denied addresses", async () => {
  using directory = temporaryDirectory();
  const first = makeHealer();
  await first.healer.step(look(14 * second, 1));
  await first.healer.step(look(20 * second, 2));
  writeHealing(directory.path, "acme", first.healer, {
    now: () => 1_000_000,
    monotonic: () => 20 * second,
  });
  // Ten seconds later, in a process whose clock began anew.
  const saved = readHealing(directory.path, "acme", { now: () => 1_010_000, monotonic: () => 500 });
  expect(saved?.state.denials[0]?.until).toBe(5 * minute - 10 * second + 500);
  const inherited = { denied: ["203.0.113.7"] };
  const next = makeHealer({ inherited, ...(saved === undefined ? {} : { saved }) });
  expect(next.healer.noteOf("10.77.0.7")).toBe("direct path loses packets");
  await next.healer.step(look(1000, 2, 900));
  expect(next.said).toEqual(["The peer answers through a relay"]);
  expect(next.done).toEqual([]);
  expect(next.healer.healings).toEqual([{ peer: "10.77.0.7", result: "relayed", silent_s: 0 }]);
});

test("without a saved state, and with a damaged one, healing begins anew", async () => {
  using directory = temporaryDirectory();
  const clock = { now: () => 0, monotonic: () => 0 };
  expect(readHealing(directory.path, "acme", clock)).toBeUndefined();
  await Bun.write(`${directory.path}/acme.healing.json`, '{"at":0}');
  expect(readHealing(directory.path, "acme", clock)).toBeUndefined();
});

test("a tunnel through a lost relay is closed and made again, before the relay's own tunnel", async () => {
  const { healer, done, said } = makeHealer();
  const at = (now: number): ObservedPeers => {
    const { peers, ...rest } = look(now, 1);
    const [peer, lighthouse] = peers;
    if (peer === undefined || lighthouse === undefined) throw new Error("Two peers");
    const address = "10.77.0.2";
    const relay = { ...lighthouse, address, isLighthouse: false, isBroken: true, answeredAt: 0 };
    const tunnel = { index: 5, remote: undefined, relays: [address], counter: 1, since: 0 };
    return { ...rest, relays: [address], peers: [{ ...peer, isBroken: false, tunnel }, lighthouse, relay] };
  };
  expect(await healer.step(at(14 * second))).toEqual(["10.77.0.1"]);
  await healer.step(at(16 * second));
  await healer.step(at(17 * second));
  expect(done).toContain("close 10.77.0.7");
  expect(done.slice(done.indexOf("close 10.77.0.7"))).toContain("create 10.77.0.7");
  expect(done).not.toContain("close 10.77.0.2");
  expect(said).toContain("The relay of a tunnel is lost: closing it");
  await healer.step(at(20 * second));
  expect(done.at(-1)).toBe("close 10.77.0.2");
  // Many tunnels leave one relay: the control plane is told once.
  expect(healer.healings).toMatchObject([{ peer: "10.77.0.2", result: "relay_left" }]);
});

test("a lighthouse that knows a node by one of its addresses makes their tunnel anew, after a pause if that had no effect", async () => {
  const reported = ["10.77.0.8", "fd77::8"];
  const { healer, done, said } = makeHealer({ reported });
  const tunnel = (index: number, host: number, remote?: string) => ({
    index,
    addresses: [`10.77.0.${host}`, `fd77::${host}`],
    remote,
  });
  const tunnels = [
    tunnel(1, 7, "203.0.113.7:4242"),
    tunnel(2, 8),
    { ...tunnel(3, 6), addresses: ["10.77.0.6"] },
  ];
  // Node 7 has not reported yet.
  await healer.completeAddresses(tunnels, 0);
  expect(done).toEqual([]);
  reported.push("10.77.0.7");
  await healer.completeAddresses(tunnels, 10 * second);
  const anew = ["close 10.77.0.7", "create fd77::7 203.0.113.7:4242"];
  expect(done).toEqual(anew);
  expect(said).toEqual(["Peers cannot find a node by one of its addresses: creating its tunnel again"]);
  await healer.completeAddresses([tunnel(4, 7)], 20 * second);
  expect(done).toEqual(anew);
  await healer.completeAddresses([tunnel(4, 7)], 30 * second);
  const again = [...anew, "close 10.77.0.7", "create fd77::7"];
  expect(done).toEqual(again);
  // The pauses grow until it is known by both.
  await healer.completeAddresses([tunnel(5, 7)], 50 * second);
  expect(done).toEqual(again);
  reported.push("fd77::7");
  await healer.completeAddresses([tunnel(5, 7)], 70 * second);
  reported.pop();
  await healer.completeAddresses([tunnel(6, 7)], 71 * second);
  expect(done).toEqual([...again, "close 10.77.0.7", "create fd77::7"]);
});
