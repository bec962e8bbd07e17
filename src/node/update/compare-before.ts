// What an updated node compares with the time before its update, in addition to echoes (echo-peers.ts): how it reaches its peers,
// which handshakes fail, and the engine's memory. One peer may have a fault of its own: only a fault with most peers is the node's.
// Pure.

import { programProbes } from "../../protocol/updates/order.ts";
import { failedHandshakes, timedOutSince } from "../health/handshakes.ts";
import type { Verdict } from "./echo-peers.ts";

export type Tunnel = {
  address: string;
  isRelayed: boolean;
  /** Share of lost probes in the last minute, from 0 to 1. */
  loss: number;
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
const fewestPeers = 2;

/** Before the update. `memory` is added by the caller. `lines`: of the engine's log. `now`: ms since 1970. */
export function describeBefore(tunnels: readonly Tunnel[], lines: readonly string[], now: number): Before {
  const sum = tunnels.reduce((all, { loss }) => all + loss, 0);
  return {
    direct: tunnels.filter(({ isRelayed }) => !isRelayed).map(({ address }) => address),
    loss: tunnels.length === 0 ? 0 : sum / tunnels.length,
    failed: timedOutSince(lines, now - hourMs),
    tunnels: tunnels.length,
  };
}

/**
 * Whether most peers are relayed that were not, or do not complete handshakes that they did. `lines`: of the engine's log. Undefined:
 * nothing is worse.
 */
export function compareWithBefore(
  before: Before,
  tunnels: readonly Tunnel[],
  lines: readonly string[],
  now: number,
): Verdict {
  const directBefore = tunnels.filter(({ address }) => before.direct.includes(address));
  const relayed = directBefore.filter(({ isRelayed }) => isRelayed);
  if (relayed.length >= fewestPeers && relayed.length * 2 > directBefore.length)
    return {
      probe: `relayed share: ${relayed.map(({ address }) => address).join(", ")}`,
      reason: `${relayed.length} of ${directBefore.length} peers that it reached directly before are relayed`,
    };
  const failed = failedHandshakes(lines, now).filter((address) => !before.failed.includes(address));
  if (failed.length >= fewestPeers && failed.length * 2 > before.tunnels)
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

/** Whether the engine's memory grew too much. A leak shows in a short watch, too. */
export function compareMemory(beforeKb: number, nowKb: number): Verdict {
  if (nowKb - beforeKb <= Math.max(mostGrownKb, beforeKb * mostGrownShare)) return undefined;
  const inMb = (kilobytes: number) => Math.round(kilobytes / 1024);
  return {
    probe: programProbes.memory,
    reason: `The engine's memory grew from ${inMb(beforeKb)} to ${inMb(nowKb)} MB`,
  };
}
