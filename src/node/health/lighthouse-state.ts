// What is known of one lighthouse or router, from its probes, the engine's tunnels and its log. Pure.

import { lastHandshake } from "./handshakes.ts";
import type { LighthouseState } from "./judge.ts";
import { brokenAfter, isAnswering, isBroken, type ProbeRecord } from "./prober.ts";

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
  if (isAnswering(record, now)) return "answers";
  // Also after a pause of this process: nothing is certain before the next probes.
  if (record.missed < brokenAfter) return "early";
  if (isBroken(record)) return "lost";
  if (hasTunnel) return "tunnel";
  return reportsTunnels || lastHandshake(log, address, time) === "failed" ? "lost" : "unknown";
}
