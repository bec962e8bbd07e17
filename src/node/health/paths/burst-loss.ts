// Measures whether packets that are sent at once pass as well as packets one by one.

import { defer } from "../../../base/defer.ts";
import type { System } from "../../../base/system.ts";
import type { NoEcho, OpenEcho } from "../../../platform/network/echo-socket.ts";

export type BurstLoss = "pass" | "lost" | "unknown" | NoEcho;

/** Packets in a burst. */
const count = 16;
const bursts = 4;
/** From this share of answered packets on, packets pass. */
const passShare = 3 / 4;
/** Below this share, packets are lost. */
const lostShare = 1 / 2;
const answerMs = 1000;
/** How long a packet that goes alone waits for the answer to the last one. */
const aloneMs = 250;
/** How often it is checked which answers have come. */
const lookMs = 20;
/** Headers of IPv4 and ICMP. */
const headerBytes = 28;

/**
 * `from`, `to`: overlay addresses. `bytes`: of one packet. A burst is `count` packets at once. After each burst but the first, as
 * many go one by one, to compare:
 * - after two bursts, `passShare` of their packets passed: `pass`, without more packets;
 * - at the end, less than `passShare` of those one by one passed: `unknown`, since the path loses packets anyway;
 * - else less than `lostShare` of the bursts passed: `lost`.
 */
export async function measureBurstLoss(
  { from, to, bytes }: { from: string; to: string; bytes: number },
  { open, system }: { open: OpenEcho; system: Pick<System, "sleep"> },
): Promise<BurstLoss> {
  const answered = new Set<number>();
  const socket = await open(from, ({ sequence }) => void answered.add(sequence));
  if (typeof socket === "string") return socket;
  using _ = defer(() => socket.close());
  // Sequence numbers have 16 bits. They begin at another number each time, so that no late answer to an earlier measurement counts.
  let sequence = Math.floor(performance.now()) % 30_000;
  const passedOf = (sent: readonly number[]) => sent.filter((each) => answered.has(each)).length;
  const waitForAnswers = async (sent: readonly number[], withinMs: number) => {
    for (let waited = 0; waited < withinMs && passedOf(sent) < sent.length; waited += lookMs)
      await system.sleep(lookMs);
  };
  /** Sends `count` packets. Returns how many passed. */
  const send = async ({ oneByOne }: { oneByOne: boolean }) => {
    const sent = Array.from({ length: count }, () => (sequence += 1));
    for (const each of sent) {
      socket.send(to, each, new Uint8Array(bytes - headerBytes));
      if (!oneByOne) continue;
      await system.sleep(lookMs);
      // A slow engine would take it together with the next one.
      await waitForAnswers([each], aloneMs);
    }
    await waitForAnswers(sent, answerMs);
    return passedOf(sent);
  };
  let together = 0;
  let alone = 0;
  for (let burst = 0; burst < bursts; burst++) {
    together += await send({ oneByOne: false });
    // Two bursts, because the engine may be quick enough to take some packets of a burst one by one.
    if (burst === 1 && together >= 2 * count * passShare) return "pass";
    // Most paths pass after two bursts, and need no comparison: it begins with the second one.
    if (burst > 0) alone += await send({ oneByOne: true });
  }
  if (alone < (bursts - 1) * count * passShare) return "unknown";
  return together < bursts * count * lostShare ? "lost" : "pass";
}
