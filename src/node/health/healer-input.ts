// Makes the input of healing (observed-peers.ts) from the inventory and the answers to probes.

import { withoutPort } from "../../base/ip.ts";
import type { AssessmentInput } from "./assessment.ts";
import type { Facts } from "./configured-facts.ts";
import type { ObservedPeer, ObservedPeers } from "./observed-peers.ts";
import { isBroken } from "./probe-record.ts";
import { relaysToMeasure } from "./probe-targets.ts";

/** The peers for the healer. Undefined without an engine that reports its tunnels: then nothing can be healed. */
export function healerInput(input: AssessmentInput): ObservedPeers | undefined {
  const { inventory, prober, now } = input;
  const { snapshot, reportsTunnels, tunnels } = inventory;
  if (snapshot === undefined || !reportsTunnels) return undefined;
  const { facts } = snapshot;
  const addresses = new Set([
    ...prober.records().map(([address]) => address),
    ...tunnels.all.map(({ address }) => address),
  ]);
  const hubs = [...facts.lighthouses, ...facts.relays];
  const hubRemotes = hubs.flatMap((address) => tunnels.get(address)?.remote ?? []);
  return {
    now,
    own: facts.own[0] ?? "",
    peers: [...addresses].map((address) => observedPeer(address, facts, input)),
    relays: facts.relays,
    candidates: new Map(
      relaysToMeasure(facts).map((relay) => {
        const record = prober.record(relay);
        return [relay, { rttMs: record?.rttMs, isBroken: record !== undefined && isBroken(record) }];
      }),
    ),
    neverDenied: [...facts.underlays, ...hubRemotes.map(withoutPort)],
  };
}

function observedPeer(
  address: string,
  { lighthouses }: Facts,
  { inventory, prober }: AssessmentInput,
): ObservedPeer {
  const record = prober.record(address);
  return {
    address,
    name: inventory.nameOf(address),
    isLighthouse: lighthouses.includes(address),
    isBroken: record !== undefined && isBroken(record),
    answeredAt: record?.answeredAt,
    tunnel: inventory.tunnels.get(address),
  };
}
