import { describe, expect, test } from "bun:test";
import type { EchoReply, OpenEcho } from "../../../src/platform/network/echo-socket.ts";
import { Prober } from "../../../src/node/health/prober.ts";
import {
  isBroken,
  isAnswering,
  isSettled,
  lossOf,
  type ProbeRecord,
} from "../../../src/node/health/probe-record.ts";

/** A network whose peers answer after `rtt` ms, unless they are silent, on a clock of its own. */
function makeNetwork() {
  const world = {
    now: 0,
    sent: new Array<{ at: number; to: string }>(),
    silent: new Set<string>(),
    forge: false,
    /** The system refuses to send. */
    refuses: false,
    from: "10.77.0.9" as string | undefined,
  };
  let onReply: (reply: EchoReply) => void = () => {};
  const late: { at: number; reply: EchoReply }[] = [];
  const open: OpenEcho = async (_, listener) => {
    onReply = listener;
    return {
      send(to, sequence, payload) {
        if (world.refuses) return false;
        world.sent.push({ at: world.now, to });
        const nonce = world.forge ? payload.map((byte) => byte ^ 1) : payload;
        if (!world.silent.has(to)) late.push({ at: world.now + 20, reply: { sequence, payload: nonce } });
        return true;
      },
      close() {},
    };
  };
  let seed = 0;
  const prober = new Prober({
    open,
    monotonic: () => world.now,
    random: (bytes) => new Uint8Array(bytes).fill((seed += 1)),
  });
  const pass = async (ms: number) => {
    const end = world.now + ms;
    while (world.now < end) {
      await prober.step(() => world.from);
      world.now += 10;
      for (const each of late.splice(0)) {
        if (each.at <= world.now) onReply(each.reply);
        else late.push(each);
      }
    }
  };
  const record = (address: string): ProbeRecord => prober.record(address) ?? expect.unreachable();
  return { world, prober, pass, record };
}

const [a, b] = ["10.77.0.1", "10.77.0.2"];

describe("the prober", () => {
  test("probes each address every 10 s and measures the round trip", async () => {
    const { world, prober, pass, record } = makeNetwork();
    prober.setTargets([a, b]);
    await pass(60_000);
    expect(world.sent.filter(({ to }) => to === a)).toHaveLength(6);
    expect(record(a).rttMs).toBe(20);
    expect(lossOf(record(a), world.now)).toBe(0);
  });

  test("counts how many probes an address got since the last question, also after it is probed no more", async () => {
    const { prober, pass } = makeNetwork();
    prober.setTargets([a]);
    await pass(20_000);
    expect([prober.sentSince(a), prober.sentSince(a), prober.sentSince(b)]).toEqual([2, 0, 0]);
    await pass(10_000);
    prober.setTargets([]);
    expect(prober.sentSince(a)).toBe(1);
  });

  test("counts no probe as sent that the system refused, but as missed: its peer is not reached", async () => {
    const { world, prober, pass, record } = makeNetwork();
    prober.setTargets([a]);
    await pass(5000);
    expect(prober.sentSince(a)).toBe(1);
    world.refuses = true;
    await pass(15_000);
    world.from = undefined;
    await pass(15_000);
    expect([prober.sentSince(a), isBroken(record(a))]).toEqual([0, true]);
    world.refuses = false;
    world.from = "10.77.0.9";
    await pass(15_000);
    expect(prober.sentSince(a)).toBeGreaterThan(0);
    expect(isBroken(record(a))).toBe(false);
  });

  test("probes an urgent address at its own pace, and then at the usual one again", async () => {
    const { world, prober, pass } = makeNetwork();
    prober.setTargets([a, b]);
    await pass(100);
    prober.setTargets([a, b], new Map([[a, 2000]]));
    await pass(20_000);
    const sentTo = (to: string) => world.sent.filter((each) => each.to === to).length;
    expect([sentTo(a), sentTo(b)]).toEqual([10, 3]);
    prober.setTargets([a, b]);
    await pass(20_000);
    expect([sentTo(a), sentTo(b)]).toEqual([12, 5]);
  });

  test("sends three probes at 1 s after a miss, then one every 10 s; the peer is broken after the fourth miss", async () => {
    const { world, prober, pass, record } = makeNetwork();
    prober.setTargets([a]);
    await pass(5000);
    world.silent.add(a);
    world.sent.length = 0;
    await pass(9500);
    expect(world.sent.map(({ at }) => at)).toEqual([10_000, 11_000, 12_000, 13_000]);
    expect(isBroken(record(a))).toBe(true);
    expect(world.now - (record(a).answeredAt ?? 0)).toBeLessThan(15_000);
    await pass(20_000);
    expect(world.sent.map(({ at }) => at).slice(4)).toEqual([23_000, 33_000]);
    world.silent.delete(a);
    await pass(10_000);
    expect(isBroken(record(a))).toBe(false);
  });

  test("a peer that never answered is not broken; one that stopped stays so for hours, until it answers", async () => {
    const { world, prober, pass, record } = makeNetwork();
    world.silent.add(a);
    prober.setTargets([a, b]);
    await pass(30_000);
    expect(isBroken(record(a))).toBe(false);
    expect(isAnswering(record(b), world.now)).toBe(true);
    world.silent.add(b);
    await pass(30_000);
    for (let hour = 0; hour < 3; hour++) {
      world.now += 3_600_000;
      await pass(20_000);
      expect([isBroken(record(b)), isAnswering(record(b), world.now)]).toEqual([true, false]);
    }
    world.silent.delete(b);
    await pass(15_000);
    expect([isBroken(record(b)), isAnswering(record(b), world.now)]).toEqual([false, true]);
  });

  test("ignores an answer with another nonce, which another peer could send", async () => {
    const { world, prober, pass, record } = makeNetwork();
    world.forge = true;
    prober.setTargets([a]);
    await pass(5000);
    expect(record(a).answeredAt).toBeUndefined();
    expect(record(a).missed).toBe(4);
  });

  test("remembers an address that is no longer probed, and goes on from there", async () => {
    const { world, prober, pass, record } = makeNetwork();
    prober.setTargets([a]);
    await pass(1000);
    prober.setTargets([]);
    world.sent.length = 0;
    await pass(30_000);
    expect(world.sent).toEqual([]);
    expect(record(a).answeredAt).toBeGreaterThan(0);
    world.now += 86_400_000;
    prober.setTargets([b]);
    expect(record(a).answeredAt).toBeGreaterThan(0);
    prober.forget(a);
    expect(prober.record(a)).toBeUndefined();
  });

  test("hurry probes a peer at once, with a burst", async () => {
    const { world, prober, pass } = makeNetwork();
    prober.setTargets([a]);
    await pass(2000);
    world.sent.length = 0;
    prober.hurry([a]);
    await pass(100);
    expect(world.sent).toHaveLength(1);
  });

  test("hurry does not make a silent peer look alive, and three more misses settle the question", async () => {
    const { world, prober, pass, record } = makeNetwork();
    prober.setTargets([a]);
    await pass(1000);
    world.silent.add(a);
    await pass(15_000);
    expect(isBroken(record(a))).toBe(true);
    world.sent.length = 0;
    const from = world.now;
    prober.hurry([a]);
    for (let each = 0; each < 29; each++) {
      await pass(100);
      expect([isBroken(record(a)), isSettled(record(a), from)]).toEqual([true, false]);
    }
    await pass(200);
    expect(isSettled(record(a), from)).toBe(true);
    expect(world.sent).toHaveLength(3);
    world.silent.delete(a);
    const again = world.now;
    prober.hurry([a]);
    await pass(100);
    expect([isBroken(record(a)), isSettled(record(a), again)]).toEqual([false, true]);
  });

  test("says that ICMP is denied, and tries again", async () => {
    let now = 0;
    let opened = 0;
    const prober = new Prober({
      open: async () => ((opened += 1), "denied"),
      monotonic: () => now,
      random: (bytes) => new Uint8Array(bytes),
    });
    prober.setTargets([a]);
    for (; now < 25_000; now += 500) await prober.step(() => "10.77.0.9");
    expect(prober.problem("10.77.0.9")).toBe("denied");
    expect(opened).toBeGreaterThan(1);
  });
});
