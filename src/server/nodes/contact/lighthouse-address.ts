// Whether a lighthouse still has the address at which nodes look for it, by the address of its check-in.

import {
  holdsNetwork,
  isPrivate,
  maskNetwork,
  networksOverlap,
  parseAddress,
  parseNetwork,
  parseNetworks,
  type Network,
} from "../../../base/ip.ts";
import type { CheckinAnswer, CheckinRequest } from "../../../protocol/checkin.ts";
import type { ServerOptions } from "../../options.ts";
import { findNode } from "../../store/nodes.ts";

/**
 * The configured address of a lighthouse that now calls from another one, `seen`. Its address may have changed, as
 * providers change those of households, and only nodes that start again would notice. Empty for all other nodes.
 */
export async function elsewhereOf(
  db: ServerOptions["db"],
  { id }: { id: number },
  nodeId: number,
  seen: string,
  { others }: CheckinRequest,
): Promise<Pick<CheckinAnswer, "elsewhere">> {
  // By `others` a lighthouse asks whether other nodes are online. No other node sends it, so none costs the query below.
  if (others !== true) return {};
  // A failure here must not fail the check-in.
  const node = await findNode(db, id, nodeId).catch(() => undefined);
  const publicIp = node?.isLighthouse === true ? node.publicIp : null;
  if (publicIp === null) return {};
  const [configured, calling] = [placeOf(publicIp), placeOf(seen)];
  if (configured === undefined || calling === undefined || configured.family !== calling.family) return {};
  // A machine calls from temporary addresses of its IPv6 network (RFC 8981).
  if (networksOverlap(configured, calling)) return {};
  return { elsewhere: { public_ip: publicIp, seen } };
}

/** Where an address is in the internet: the IPv4 address itself, or the IPv6 /64. Undefined for private and local ones. */
function placeOf(address: string): Network | undefined {
  const parsed = parseAddress(address);
  const text = parsed === undefined ? undefined : maskNetwork(`${address}/${parsed.family === 4 ? 32 : 64}`);
  const network = text === undefined ? undefined : parseNetwork(text);
  return network === undefined || isPrivate(network) || isOfMachine(network) ? undefined : network;
}

/** Addresses that mean something on one machine or link alone: unspecified, loopback and link-local ones. */
const ofMachines = parseNetworks(["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/64", "fe80::/10"]);
const isOfMachine = (network: Network) => ofMachines.some((each) => holdsNetwork(each, network));
