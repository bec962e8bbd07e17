// The list of peers for `agent peers`: which addresses are listed, and what is shown of each (shown-peer.ts).

import { remoteLabels } from "../files/tcp-state.ts";
import type { AssessmentInput } from "./assessment.ts";
import { isBroken } from "./probe-record.ts";
import { describePeer, orderPeers, type PeerReport } from "./shown-peer.ts";

/** How long a peer stays in the list after its last answer. */
const listedMs = 600_000;

/**
 * Lighthouses, peers with a tunnel, those that stopped answering or answered in the last ten minutes, and `named` ones (addresses). If
 * the engine does not report its tunnels, also the other lighthouses and relays. Without peers whose certificates are revoked.
 */
export function listPeers(input: AssessmentInput, named: readonly string[]): PeerReport[] {
  const { inventory, prober, healing, now } = input;
  const { snapshot, reportsTunnels, tunnels } = inventory;
  if (snapshot === undefined) return [];
  const { lighthouses, otherHubs, own, known } = snapshot.facts;
  const probed = prober
    .records()
    .filter(([, record]) => isBroken(record) || now - (record.answeredAt ?? -Infinity) < listedMs);
  const addresses = new Set([
    ...lighthouses,
    ...(reportsTunnels ? [] : otherHubs),
    ...tunnels.all.map(({ address }) => address),
    ...named,
    ...probed.map(([address]) => address),
  ]);
  const labelOf = remoteLabels(input.place.directory);
  const valid = [...addresses].filter((address) => !inventory.isBlocked(address));
  const reports = valid.map((address) =>
    describePeer({
      address,
      name: inventory.nameOf(address),
      isLighthouse: lighthouses.includes(address),
      isOwn: own.includes(address),
      tunnel: tunnels.get(address),
      reportsTunnels,
      record: prober.record(address),
      nameOf: (each) => inventory.nameOf(each),
      labelOf,
      note: healing?.noteOf(address),
      now,
    }),
  );
  if (known === undefined) return orderPeers(reports);
  // The control plane, and users, know nodes by their addresses outside of the sealed network (an IPv6 network that the seal gives its
  // nodes): `known` has these by the sealed ones. A node with reports of both addresses is listed once.
  const byAddress = new Map<string, PeerReport>();
  for (const each of reports) {
    const address = known.get(each.address) ?? each.address;
    if (!byAddress.has(address)) byAddress.set(address, { ...each, address });
  }
  return orderPeers([...byAddress.values()]);
}
