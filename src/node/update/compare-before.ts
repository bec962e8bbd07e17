// What a node compares with the time before its change, in addition to echoes: how it reaches its peers, and which handshakes fail. Pure.
// One peer may have a fault of its own: only what concerns most of them is the node's.

import { programProbes } from "../../protocol/updates/order.ts";
import { failedHandshakes, timedOutSince } from "../health/handshakes.ts";
import type { Verdict } from "./echo-peers.ts";

export type Tunnel = {
  address: string;
  isRelayed: boolean;
  /** Share of lost probes in the last minute. */ loss: number;
};

export type Before = {
  /** Peers with a direct tunnel. */
  direct: string[];
  /** Mean share of lost probes. */
  loss: number;
  /** Peers with which a handshake failed in the hour before. */
  failed: string[];
  /** How many peers had a tunnel. */
  tunnels: number;
  /** Memory of the engine, in kilobytes. */
  memory?: number | undefined;
};

const hourMs = 3_600_000;
/** Fewer peers prove nothing: their own networks may have changed. */
const fewest = 2;

export function describeBefore(tunnels: readonly Tunnel[], lines: readonly string[], now: number): Before {
  const sum = tunnels.reduce((all, { loss }) => all + loss, 0);
  return {
    direct: tunnels.filter(({ isRelayed }) => !isRelayed).map(({ address }) => address),
    loss: tunnels.length === 0 ? 0 : sum / tunnels.length,
    failed: timedOutSince(lines, now - hourMs),
    tunnels: tunnels.length,
  };
}

/** Whether most peers are relayed that were not, or do not complete handshakes that they did. */
export function compareWithBefore(
  before: Before,
  tunnels: readonly Tunnel[],
  lines: readonly string[],
  now: number,
): Verdict {
  const stillThere = tunnels.filter(({ address }) => before.direct.includes(address));
  const relayed = stillThere.filter(({ isRelayed }) => isRelayed);
  if (relayed.length >= fewest && relayed.length * 2 > stillThere.length)
    return {
      probe: `relayed share: ${relayed.map(({ address }) => address).join(", ")}`,
      reason: `${relayed.length} of ${stillThere.length} peers that it reached directly before are relayed`,
    };
  const failed = failedHandshakes(lines, now).filter((address) => !before.failed.includes(address));
  if (failed.length >= fewest && failed.length * 2 > before.tunnels)
    return {
      probe: `handshakes with ${failed.join(", ")}`,
      reason: `Handshakes with ${failed.length} peers fail, with which none failed in the hour before`,
    };
  return undefined;
}

/**
 * The engine's memory may grow by the larger of these two, compared with the former engine, which knew the same peers: a share
 * of what that had, or kilobytes.
 */
const mostGrownShare = 0.25;
const mostGrownKb = 40 * 1024;

/** In kilobytes. A leak shows in a short watch, too. */
export function compareMemory(before: number, now: number): Verdict {
  if (now - before <= Math.max(mostGrownKb, before * mostGrownShare)) return undefined;
  const [fromMb, toMb] = [before, now].map((kilobytes) => Math.round(kilobytes / 1024));
  return { probe: programProbes.memory, reason: `The engine's memory grew from ${fromMb} to ${toMb} MB` };
}
