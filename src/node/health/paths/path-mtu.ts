// Measures the largest packet that passes through the overlay to a peer and back.

import { defer } from "../../../base/defer.ts";
import type { NoEcho, OpenEcho } from "../../../platform/network/echo-socket.ts";
import type { System } from "../../../base/system.ts";

/** The MTU that the control plane renders by default. */
export const fullBytes = 1300;
/** Every IPv4 host takes packets of this size (RFC 791). */
const smallest = 576;
/** How long to wait for an answer: from the least time to this one, by the round trip. */
const answerMs = 1000;
const leastAnswerMs = 250;
/** How often a size is sent before it counts as lost. */
const tries = 2;
/** How often it is checked which answers have come. */
const lookMs = 20;
/** The result is exact to so many bytes. */
const smallestStep = 8;
/** Sizes that are sent at once. */
const atOnce = 8;
/** Headers of IPv4 and ICMP. */
const headerBytes = 28;

/** `bytes`: the largest packet that passes. `isFull`: it has the size of the interface's MTU. silent: not even a small one passes. */
export type Through = { bytes: number; isFull: boolean } | NoEcho | "silent";

type MeasuredPath = {
  /** Overlay addresses. */
  from: string;
  to: string;
  /** The MTU of the interface. */
  full?: number | undefined;
  /** The round trip of small packets, if it is known. */
  rttMs?: number | undefined;
};

/** Asks with the full size first, and only if that fails for smaller ones. */
export async function largestThrough(
  { from, to, full = fullBytes, rttMs = answerMs }: MeasuredPath,
  { open, system }: { open: OpenEcho; system: Pick<System, "sleep"> },
): Promise<Through> {
  const waitMs = Math.min(answerMs, leastAnswerMs + 4 * rttMs);
  const answered = new Set<number>();
  const socket = await open(from, ({ sequence }) => void answered.add(sequence));
  if (typeof socket === "string") return socket;
  using _ = defer(() => socket.close());
  // Sequence numbers have 16 bits. They begin at another number each time, so that no late answer to an earlier measurement counts.
  let sequence = Math.floor(performance.now()) % 30_000;
  /** The largest of some sizes that passes, 0 for none. They are sent at once: a loss is known after two waits. */
  const largestOf = async (sizes: readonly number[]) => {
    const passed = new Set<number>();
    for (let attempt = 0; attempt < tries && passed.size < sizes.length; attempt++) {
      const sent = sizes
        .filter((bytes) => !passed.has(bytes))
        .map((bytes) => ({ bytes, id: (sequence += 1) }));
      for (const { bytes, id } of sent) socket.send(to, id, new Uint8Array(bytes - headerBytes));
      for (let waited = 0; waited < waitMs && sent.some(({ id }) => !answered.has(id)); waited += lookMs)
        await system.sleep(lookMs);
      for (const { bytes, id } of sent) if (answered.has(id)) passed.add(bytes);
    }
    return Math.max(0, ...passed);
  };
  if ((await largestOf([full])) > 0) return { bytes: full, isFull: true };
  let low = await largestOf([smallest]);
  let step = full - smallest;
  if (low === 0) return "silent";
  // Each round tries sizes at equal distances between the largest that passed and the smallest that was lost.
  while (step > smallestStep) {
    step = Math.ceil(step / (atOnce + 1));
    const passes = low;
    const sizes = Array.from({ length: atOnce }, (_, at) => passes + (at + 1) * step);
    low = Math.max(low, await largestOf(sizes.filter((bytes) => bytes < full)));
  }
  // Rules out chance: the path may lose some packets of any size.
  return (await largestOf([full])) > 0 ? { bytes: full, isFull: true } : { bytes: low, isFull: false };
}
