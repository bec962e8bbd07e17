// Measures the largest packet that passes through the overlay to a peer and back.

import type { NoEcho, OpenEcho } from "../../platform/echo-socket.ts";
import type { System } from "../../system.ts";

/** As the control plane renders it. */
const fullBytes = 1300;
const smallest = 576;
const answerMs = 1000;
const tries = 2;
/** Headers of IPv4 and ICMP. */
const headerBytes = 28;

export type Through = { bytes: number; isFull: boolean } | NoEcho | "silent";

/** Asks with the full size first, and only if that fails for smaller ones. */
export async function largestThrough(
  from: string,
  to: string,
  open: OpenEcho,
  system: Pick<System, "sleep">,
): Promise<Through> {
  const answered = new Set<number>();
  const socket = await open(from, ({ sequence }) => void answered.add(sequence));
  if (typeof socket === "string") return socket;
  let sequence = Math.floor(performance.now()) % 30_000;
  const passes = async (bytes: number) => {
    for (let attempt = 0; attempt < tries; attempt++) {
      const mine = (sequence += 1);
      socket.send(to, mine, new Uint8Array(bytes - headerBytes));
      for (let waited = 0; waited < answerMs; waited += 20) {
        if (answered.has(mine)) return true;
        await system.sleep(20);
      }
    }
    return false;
  };
  try {
    if (await passes(fullBytes)) return { bytes: fullBytes, isFull: true };
    if (!(await passes(smallest))) return "silent";
    let [low, high] = [smallest, fullBytes];
    while (high - low > 8) {
      const middle = Math.floor((low + high) / 2);
      if (await passes(middle)) low = middle;
      else high = middle;
    }
    return { bytes: low, isFull: false };
  } finally {
    socket.close();
  }
}
