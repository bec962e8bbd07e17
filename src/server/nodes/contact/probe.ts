// Uses the address of a check-in for two answers. Whether the node's port is reachable: one UDP datagram of at most
// 32 bytes, at most 6 a minute, so that the server cannot be used to flood others. And whether a lighthouse still has
// the address at which nodes look for it.

import { defer } from "../../../base/defer.ts";
import {
  holdsNetwork,
  isPrivate,
  maskNetwork,
  networksOverlap,
  parseAddress,
  parseNetworks,
  parseNetwork,
  type Network,
} from "../../../base/ip.ts";
import type { CheckinAnswer, CheckinRequest } from "../../../protocol/checkin.ts";
import { makeThrottle } from "../../http/throttle.ts";
import type { ServerOptions } from "../../options.ts";
import { findNode } from "../../store/nodes.ts";

const perMinute = 6;
const rules = { limits: [{ times: perMinute, withinMs: 60_000 }], reason: "Too many probes." } as const;

export type Probes = {
  send(nodeId: number, address: string, probe: { port: number; nonce: string }): Promise<void>;
};

/** `now`: a monotonic clock. */
export function makeProbes(now: () => number): Probes {
  const sent = makeThrottle(now, { node: rules, address: rules });
  return {
    async send(nodeId, address, { port, nonce }) {
      // Empty after a disconnect.
      if (address === "") return;
      const node = String(nodeId);
      // Beyond the limit nothing is sent; the check-in is still answered.
      if (sent.counted("node", node) >= perMinute || sent.counted("address", address) >= perMinute) return;
      sent.count("node", node);
      sent.count("address", address);
      // Without a route the node receives nothing, which is the right result; the check-in is still answered.
      await datagram(address, port, nonce).catch(() => undefined);
    },
  };
}

async function datagram(address: string, port: number, text: string): Promise<void> {
  const socket = await Bun.udpSocket({ hostname: address.includes(":") ? "::" : "0.0.0.0" });
  using _ = defer(() => socket.close());
  socket.send(text, port, address);
}

/**
 * The configured address of a lighthouse that now calls from another one. Its address may have changed, as that of a
 * household does, and only nodes that start again would notice.
 */
export async function elsewhereOf(
  db: ServerOptions["db"],
  { id }: { id: number },
  nodeId: number,
  seen: string,
  { others }: CheckinRequest,
): Promise<Pick<CheckinAnswer, "elsewhere">> {
  if (others !== true) return {};
  const node = await findNode(db, id, nodeId).catch(() => undefined);
  const publicIp = node?.isLighthouse === true ? node.publicIp : null;
  if (publicIp === null) return {};
  const [looked, calls] = [placeOf(publicIp), placeOf(seen)];
  if (looked === undefined || calls === undefined || looked.family !== calls.family) return {};
  // A machine calls from temporary addresses of its IPv6 network (RFC 8981).
  if (networksOverlap(looked, calls)) return {};
  return { elsewhere: { public_ip: publicIp, seen } };
}

/** An address of the internet: an IPv4 address, or an IPv6 /64. */
function placeOf(address: string): Network | undefined {
  const parsed = parseAddress(address);
  const text = parsed === undefined ? undefined : maskNetwork(`${address}/${parsed.family === 4 ? 32 : 64}`);
  const network = text === undefined ? undefined : parseNetwork(text);
  return network === undefined || isPrivate(network) || isOfMachine(network) ? undefined : network;
}

const ofMachines = parseNetworks(["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/64", "fe80::/10"]);
const isOfMachine = (network: Network) => ofMachines.some((each) => holdsNetwork(each, network));
