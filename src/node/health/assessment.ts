// Joins what is there (inventory.ts) with what answers probes (prober.ts): for `status`, for `peers`, and for the healer.
// It changes nothing.

import { formatTime } from "../../duration.ts";
import { withoutPort } from "../../ip.ts";
import type { Facts } from "./facts.ts";
import type { Healer } from "./healer.ts";
import type { Inventory } from "./inventory.ts";
import { judge, type Health, type LighthouseState } from "./judge.ts";
import { lighthouseState } from "./lighthouse-state.ts";
import { describePeer, orderPeers, type PeerReport } from "./peer-report.ts";
import { relaysToMeasure } from "./probe-targets.ts";
import { isBroken, isProbed, type Prober } from "./prober.ts";
import type { PeerSeen, Seen } from "./seen.ts";

export type Basis = {
  inventory: Inventory;
  prober: Pick<Prober, "record" | "records" | "problem">;
  /** What was done about dead tunnels. */
  healing: Pick<Healer, "noteOf" | "givenUp"> | undefined;
  /** The last lines of the engine's log. */
  log: readonly string[];
  /** Monotonic ms. */
  now: number;
  /** ms since 1970. */
  time: number;
};

const mostBroken = 20;

/** Undefined if no engine runs, or before the first look. */
export function assessHealth(basis: Basis): Health | undefined {
  const { inventory, prober, now, time } = basis;
  const { present, reportsTunnels, tunnels } = inventory;
  if (present === undefined) return undefined;
  const { facts, engine, lookedAt } = present;
  const nameOf = (address: string) => inventory.nameOf(address);
  const lighthouses = facts.lighthouses.map((address) => ({
    name: nameOf(address),
    state: stateOfLighthouse(address, basis),
  }));
  const peers = prober
    .records()
    .filter(([address, record]) => !facts.lighthouses.includes(address) && isProbed(record, now))
    .map(([address, record]) => ({ name: nameOf(address), broken: isBroken(record, now) }));
  const judgement = judge({
    lighthouses,
    isLighthouse: facts.isLighthouse,
    probed: peers,
    stuck: stuckPeers(basis).map(nameOf),
    hasOthers: inventory.hasOthers,
    isExpired: time >= facts.certificateEnd,
    engineVersion: engine.version,
    reportsTunnels,
    isDenied: facts.own.every((from) => prober.problem(from) === "denied"),
  });
  const silent = [
    ...lighthouses.filter(({ state }) => state === "lost"),
    ...peers.filter((each) => each.broken),
  ];
  const direct = tunnels.all.filter(({ remote }) => remote !== undefined).length;
  return {
    ...judgement,
    lighthouses: {
      answering: lighthouses.filter(({ state }) => state === "answers" || state === "tunnel").length,
      of: lighthouses.length,
    },
    ...(reportsTunnels ? { tunnels: { direct, relayed: tunnels.all.length - direct } } : {}),
    broken: silent.map(({ name }) => name).slice(0, mostBroken),
    ...(engine.version === undefined ? {} : { engine_version: engine.version }),
    ...(facts.isLighthouse ? { is_lighthouse: true as const } : {}),
    checked_at: formatTime(lookedAt),
  };
}

function stateOfLighthouse(address: string, { inventory, prober, log, now, time }: Basis): LighthouseState {
  return lighthouseState({
    address,
    record: prober.record(address),
    hasTunnel: inventory.tunnels.get(address) !== undefined,
    reportsTunnels: inventory.reportsTunnels,
    log,
    now,
    time,
  });
}

/** A peer that is off has no tunnel: only one that is there and does not answer counts. */
function stuckPeers({ healing, inventory, prober, now }: Basis): string[] {
  return (healing?.givenUp ?? []).filter((address) => {
    const record = prober.record(address);
    return record !== undefined && isBroken(record, now) && inventory.tunnels.get(address) !== undefined;
  });
}

/**
 * Lighthouses, peers with a tunnel (of a lighthouse whose engine does not report them: other hubs), those that answered in the last ten minutes, and `named` ones.
 */
export function listPeers(basis: Basis, named: readonly string[]): PeerReport[] {
  const { inventory, prober, healing, now } = basis;
  const { present, reportsTunnels, tunnels } = inventory;
  if (present === undefined) return [];
  const { lighthouses, otherHubs, own } = present.facts;
  const probed = prober.records().filter(([, record]) => isProbed(record, now));
  const addresses = new Set([
    ...lighthouses,
    ...(reportsTunnels ? [] : otherHubs),
    ...tunnels.all.map(({ address }) => address),
    ...named,
    ...probed.map(([address]) => address),
  ]);
  const reports = [...addresses].map((address) =>
    describePeer({
      address,
      name: inventory.nameOf(address),
      isLighthouse: lighthouses.includes(address),
      isOwn: own.includes(address),
      tunnel: tunnels.get(address),
      reportsTunnels,
      record: prober.record(address),
      nameOf: (each) => inventory.nameOf(each),
      note: healing?.noteOf(address),
      now,
    }),
  );
  return orderPeers(reports);
}

/** What the healer decides from; undefined without an engine that reports its tunnels. */
export function seenByHealer(basis: Basis): Seen | undefined {
  const { inventory, prober, now } = basis;
  const { present, reportsTunnels, tunnels } = inventory;
  if (present === undefined || !reportsTunnels) return undefined;
  const { facts } = present;
  const addresses = new Set([
    ...prober.records().map(([address]) => address),
    ...tunnels.all.map(({ address }) => address),
  ]);
  const special = [...facts.lighthouses, ...facts.relays];
  const remotes = special.flatMap((address) => tunnels.get(address)?.remote ?? []);
  return {
    now,
    own: facts.own[0] ?? "",
    peers: [...addresses].map((address) => seenPeer(address, facts, basis)),
    relays: facts.relays,
    candidates: new Map(
      relaysToMeasure(facts).map((relay) => {
        const record = prober.record(relay);
        return [relay, { rttMs: record?.rttMs, isBroken: record !== undefined && isBroken(record, now) }];
      }),
    ),
    kept: [...facts.underlays, ...remotes.map(withoutPort)],
  };
}

function seenPeer(address: string, { lighthouses }: Facts, { inventory, prober, now }: Basis): PeerSeen {
  const record = prober.record(address);
  return {
    address,
    name: inventory.nameOf(address),
    isLighthouse: lighthouses.includes(address),
    isBroken: record !== undefined && isBroken(record, now),
    answeredAt: record?.answeredAt,
    tunnel: inventory.tunnels.get(address),
  };
}
