// Which peers a drill's report names as lost: on a clock that the test moves, with peers that answer or do not.

import { expect, test } from "bun:test";
import { watchPeers } from "../../../src/node/drill/lost-peers.ts";
import type { OpenEcho } from "../../../src/platform/network/echo-socket.ts";

/** `answers`: whether a peer answers at this time, in ms since the begin of the drill. */
async function watch(peers: readonly string[], answers: (peer: string, at: number) => boolean) {
  const beginsInMs = 5000;
  let clock = 1_000_000;
  const start = clock;
  const openEcho: OpenEcho = async (_, onReply) => ({
    send(peer, sequence, payload) {
      if (answers(peer, clock - start - beginsInMs)) onReply({ sequence, payload });
      return true;
    },
    close: () => undefined,
  });
  const system = {
    monotonic: () => clock,
    sleep: async (ms: number) => void (clock += ms),
    random: (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes)),
  };
  const times = { beginsInMs, leftMs: () => start + beginsInMs + 15_000 - clock };
  const report = await watchPeers(peers, ["10.77.0.9"], times, { openEcho, system });
  return { ...report, tookMs: clock - start };
}

const [hub, peer] = ["10.77.0.1", "10.77.0.2"];

test("a peer that is silent during the drill is lost from its last answer to its next one", async () => {
  const { peers, losses } = await watch([hub, peer], (to, at) => to === peer || at < 0 || at >= 16_000);
  expect(peers).toBe(2);
  expect(losses).toEqual([{ peer: hub, from_ms: -500, until_ms: 16_000 }]);
});

test("nobody is lost where all answer, and a single packet that is lost is no loss", async () => {
  const { peers, losses, tookMs } = await watch(
    [hub, peer],
    (to, at) => to === hub || at < 3000 || at > 4500,
  );
  expect({ peers, losses }).toEqual({ peers: 2, losses: [] });
  expect(tookMs).toBeLessThan(30_000);
});

test("a peer that never answered is not watched; one that does not come back has no end", async () => {
  const { peers, losses } = await watch([hub, peer], (to, at) => to === hub && at < 2000);
  expect(peers).toBe(1);
  expect(losses).toEqual([{ peer: hub, from_ms: 1500, until_ms: null }]);
});

test("what was over before the drill is not of it", async () => {
  const { losses } = await watch([hub], (_, at) => at < -4500 || at >= -1000);
  expect(losses).toEqual([]);
});
