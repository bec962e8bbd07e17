// One peer as `agent peers` shows it: the engine's report of its tunnel, joined with the results of probes.

import { given } from "../../base/given.ts";
import { isBroken, lossOf, type ProbeRecord } from "./probe-record.ts";
import type { SeenTunnel } from "./tunnels.ts";

export type PeerReport = {
  name: string;
  /** Its overlay address. */
  address: string;
  /** unknown: this engine does not report its tunnels. none: there is no tunnel. */
  path: "direct" | "relayed" | "none" | "unknown";
  /** The peer's underlay address and port, for a direct tunnel; "TCP 443" for one over TCP. */
  remote?: string;
  /** The names of the relays, for a relayed one. */
  relays?: string[];
  /** The action of healing on its path. */
  note?: string;
  lighthouse?: true;
  /** This node itself: there is no tunnel to it. */
  this_machine?: true;
  /** broken: it answered and has stopped. not_probed: it never answered, or was not asked. */
  probe: "answers" | "broken" | "not_probed";
  rtt_ms?: number;
  /** Share of lost probes in the last minute, 0 to 1. */
  loss?: number;
  /** Since this tunnel was first seen. */
  age_s?: number;
  /** RFC 3339. */
  certificate_not_after?: string;
  /** The groups in its certificate. */
  groups?: readonly string[];
  fingerprint?: string;
};

export type PeersSeen = {
  peers: PeerReport[];
  reportsTunnels: boolean;
  engineVersion: string | undefined;
};

type PeerFacts = {
  address: string;
  name: string;
  isLighthouse: boolean;
  isOwn: boolean;
  tunnel: SeenTunnel | undefined;
  reportsTunnels: boolean;
  record: ProbeRecord | undefined;
  nameOf(address: string): string;
  /** How the underlay address of a tunnel is shown. */
  labelOf(remote: string): string;
  note?: string | undefined;
  /** Monotonic ms. */
  now: number;
};

export function describePeer(facts: PeerFacts): PeerReport {
  const { address, name, tunnel, record, now } = facts;
  const { notAfter, groups, fingerprint } = tunnel?.certificate ?? {};
  return {
    name,
    address,
    ...pathOf(facts),
    ...(facts.isLighthouse ? { lighthouse: true as const } : {}),
    ...(facts.isOwn ? { this_machine: true as const } : {}),
    ...given({ note: facts.note }),
    ...probeOf(record, now),
    ...(tunnel === undefined ? {} : { age_s: Math.floor((now - tunnel.since) / 1000) }),
    ...given({ certificate_not_after: notAfter, groups, fingerprint }),
  };
}

function pathOf({
  tunnel,
  reportsTunnels,
  nameOf,
  labelOf,
}: PeerFacts): Pick<PeerReport, "path" | "remote" | "relays"> {
  if (tunnel === undefined) return { path: reportsTunnels ? "none" : "unknown" };
  const { remote, relays } = tunnel;
  if (remote !== undefined) return { path: "direct", remote: labelOf(remote) };
  return { path: "relayed", relays: relays.map(nameOf) };
}

function probeOf(
  record: ProbeRecord | undefined,
  now: number,
): Pick<PeerReport, "probe" | "rtt_ms" | "loss"> {
  if (record?.answeredAt === undefined) return { probe: "not_probed" };
  const loss = lossOf(record, now);
  if (isBroken(record)) return { probe: "broken", ...given({ loss }) };
  // No probe within the last minute.
  if (loss === undefined || record.rttMs === undefined) return { probe: "not_probed" };
  // The last answer says nothing about a probe that was missed since.
  const rtt = record.missed > 0 ? {} : { rtt_ms: Math.round(record.rttMs * 100) / 100 };
  return { probe: "answers", ...rtt, loss };
}

/** Broken peers first, then lighthouses, then by name and address. */
export function orderPeers(peers: readonly PeerReport[]): PeerReport[] {
  const rank = ({ probe, lighthouse }: PeerReport) => {
    if (probe === "broken") return 0;
    return lighthouse === true ? 1 : 2;
  };
  return peers.toSorted(
    (a, b) => rank(a) - rank(b) || compareText(a.name, b.name) || compareText(a.address, b.address),
  );
}

function compareText(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** Whether nothing shows that the address is a node's: no name, tunnel or answer. A user may ask for any address in the overlay. */
export function isUnknown({ name, address, path, probe, lighthouse, this_machine }: PeerReport): boolean {
  const isSeen = probe !== "not_probed" || path === "direct" || path === "relayed";
  return name === address && !isSeen && lighthouse !== true && this_machine !== true;
}
