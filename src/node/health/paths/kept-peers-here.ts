// The kept peers of an organization of this machine: those whose underlay addresses it keeps for the time without a lighthouse
// (kept-peers.ts). Gives KeptPeers the machine's addresses and the engine's ports.

import { networkInterfaces } from "node:os";
import { portsOf } from "../../../platform/network/port-holder.ts";
import { applyChanges, type ApplyDeps } from "../apply-changes.ts";
import { KeptPeers, type KeptDeps } from "./kept-peers.ts";

/** `deps`: reload the engine. */
export function keptHere(
  place: { slug: string; directory: string },
  deps: ApplyDeps,
  process: Pick<KeptDeps, "monotonic" | "system" | "log">,
): KeptPeers {
  return new KeptPeers({
    ...place,
    ...ofThisMachine,
    ...process,
    apply: (peers) => applyChanges(place, { peers }, deps),
    async keepPort(port) {
      // Loaded on demand, as in applyChanges.
      const { keepPort } = await import("../../files/config/rewrite-config.ts");
      await keepPort(place, port, {
        command: deps.command,
        system: { ...deps.system, now: process.system.now },
      });
    },
  });
}

/** What KeptDeps needs of this machine. */
const ofThisMachine: Pick<KeptDeps, "ownAddresses" | "sourceFor" | "portsOf"> = {
  portsOf,
  ownAddresses: () =>
    Object.values(networkInterfaces()).flatMap((each = []) =>
      each.flatMap(({ cidr, internal }) => (internal || cidr === null ? [] : [cidr])),
    ),
  // The kernel chooses the address of a connected socket. No packet is sent, so any port will do.
  async sourceFor(host) {
    try {
      const hostname = host.includes(":") ? "::" : "0.0.0.0";
      const socket = await Bun.udpSocket({ hostname, connect: { hostname: host, port: 9 } });
      const { address } = socket.address;
      socket.close();
      return address;
    } catch {
      return undefined;
    }
  },
};
