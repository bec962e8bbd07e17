// Measures whether packets that are sent at once pass as well as packets one by one.

import { defer } from "../../../base/defer.ts";
import type { System } from "../../../base/system.ts";
import type { NoEcho, OpenEcho } from "../../../platform/network/echo-socket.ts";

export type BurstResult = "pass" | "lost" | "unknown" | NoEcho;

const count = 16;
const bursts = 4;
const answerMs = 1000;
/** How long a packet that goes alone waits for the answer to the one before. */
const aloneMs = 250;
const lookMs = 20;
/** Headers of IPv4 and ICMP. */
const headerBytes = 28;

/**
 * lost: in four bursts less than half of them pass,
 * and three quarters of the others.
 */
export async function packetsTogether(
  from: string,
  to: string,
  open: OpenEcho,
  system: Pick<System, "sleep">,
  bytes: number,
): Promise<BurstResult> {
  const answered = new Set<number>();
  const socket = await open(from, ({ sequence }) => void answered.add(sequence));
  if (typeof socket === "string") return socket;
  let sequence = Math.floor(performance.now()) % 30_000;
  const passedOf = (sent: readonly number[]) => sent.filter((each) => answered.has(each)).length;
  const answers = async (sent: readonly number[], withinMs: number) => {
    for (let waited = 0; waited < withinMs && passedOf(sent) < sent.length; waited += lookMs)
      await system.sleep(lookMs);
  };
  const send = async (areAlone: boolean) => {
    const sent = Array.from({ length: count }, () => (sequence += 1));
    for (const each of sent) {
      socket.send(to, each, new Uint8Array(bytes - headerBytes));
      if (!areAlone) continue;
      await system.sleep(lookMs);
      // An engine that is late would take it together with the next one.
      await answers([each], aloneMs);
    }
    await answers(sent, answerMs);
    return passedOf(sent);
  };
  using _ = defer(() => socket.close());
  let [together, alone] = [0, 0];
  for (let burst = 0; burst < bursts; burst++) {
    together += await send(false);
    // Two, because the engine may be quick enough to take some packets of a burst one by one.
    if (burst === 1 && together >= (2 * count * 3) / 4) return "pass";
    alone += burst === 0 ? 0 : await send(true);
  }
  if (alone < (count * (bursts - 1) * 3) / 4) return "unknown";
  return together < (count * bursts) / 2 ? "lost" : "pass";
}
