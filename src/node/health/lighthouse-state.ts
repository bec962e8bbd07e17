// What is known of one lighthouse, from its probes, the engine's tunnels and its log. Pure.

import { lastHandshake } from "./handshakes.ts";
import type { LighthouseState } from "./judge.ts";
import { brokenAfter, isProbed, type ProbeRecord } from "./prober.ts";

/** A lighthouse that answered within this time answers: it is probed every 10 s. */
export const freshMs = 15_000;

export type LighthouseSeen = {
  address: string;
  record: ProbeRecord | undefined;
  hasTunnel: boolean;
  reportsTunnels: boolean;
  /** The last lines of the engine's log. */
  log: readonly string[];
  /** Monotonic ms. */
  now: number;
  /** ms since 1970. */
  time: number;
};

export function lighthouseState(seen: LighthouseSeen): LighthouseState {
  const { address, record, hasTunnel, reportsTunnels, log, now, time } = seen;
  if (record === undefined) return "early";
  const { answeredAt, missed } = record;
  const isFresh = answeredAt !== undefined && now - answeredAt < freshMs;
  if (isFresh && missed < brokenAfter) return "answers";
  if (hasTunnel && !isProbed(record, now)) return missed >= brokenAfter ? "tunnel" : "early";
  // Also after a pause of this process: nothing is certain before the next probes.
  if (missed < brokenAfter) return "early";
  if (answeredAt !== undefined || reportsTunnels) return "lost";
  return lastHandshake(log, address, time) === "failed" ? "lost" : "unknown";
}
