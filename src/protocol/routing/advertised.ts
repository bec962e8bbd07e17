// Networks that root of a machine offers to route, and their options on the control plane. Both sides use it.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { formatAddress, networkContains, parseAddress, parseNetwork } from "../../base/ip.ts";
import { wholeWithin, listOf } from "../values.ts";

/** Maximum of subnets of one node: its certificate holds them. */
export const maxSubnets = 64;

const Network = v.pipe(
  foreignText(64),
  v.check((text) => parseNetwork(text)?.text === text, "A network is required."),
);
const Address = v.pipe(
  foreignText(45),
  v.check((text) => parseAddress(text) !== undefined, "An address is required."),
);

/** One offered network, as the node reports it. */
export const Advertised = v.object({
  /** The network as other nodes see it. */
  network: Network,
  /** What it is on the router, if addresses are translated one to one. */
  behind: v.exactOptional(Network),
  masquerade: v.exactOptional(v.boolean()),
  /** Must answer pings for the network to be reached. */
  watch: v.exactOptional(Address),
  /**
   * Absent: it works. down: what is behind does not answer. failed: the machine could not be made ready. A newer node may say another
   * word.
   */
  state: v.exactOptional(foreignText(16)),
  /** Why it is not ready. */
  why: v.exactOptional(foreignText(200)),
});
export type Advertised = v.InferOutput<typeof Advertised>;
export const AdvertisedList = listOf(Advertised, maxSubnets);

/** What root of a machine offers to route. */
export type Offer = Pick<Advertised, "network" | "behind" | "masquerade" | "watch">;

/**
 * `NETWORK[=BEHIND][@WATCH][+masquerade]`: the network as others see it, what it is here if addresses are translated, the address
 * that must answer, and whether the router's address stands for those of the overlay. Undefined for other text.
 */
export function parseOffer(text: string): Offer | undefined {
  const [, seenText = "", behindText, watchText, masquerade] =
    /^([\d.:a-f/]+)(?:=([\d.:a-f/]+))?(?:@([\d.:a-f]+))?(\+masquerade)?$/i.exec(text.trim()) ?? [];
  const network = parseNetwork(seenText);
  const behind = behindText === undefined ? undefined : parseNetwork(behindText);
  const watch = watchText === undefined ? undefined : parseAddress(watchText);
  if (network === undefined || network.prefix === 0) return undefined;
  // Addresses are translated one to one, IPv4 only.
  if (behindText !== undefined && (behind?.family !== 4 || network.family !== 4)) return undefined;
  if (behind !== undefined && behind.prefix !== network.prefix) return undefined;
  if (watchText !== undefined && (watch === undefined || !networkContains(behind ?? network, watch)))
    return undefined;
  return {
    network: network.text,
    ...(behind === undefined ? {} : { behind: behind.text }),
    ...(watch === undefined ? {} : { watch: formatAddress(watch) }),
    ...(masquerade === undefined ? {} : { masquerade: true }),
  };
}

/** Lower is preferred. */
export const defaultMetric = 100;
export const maxMetric = 1000;
/** Added to the metric of a router in maintenance: others go first, and it is used only while none of them works. */
const maintenanceMetric = 1_000_000;

/** Options of a node's routes, by the text of the network. Options with their initial values are absent. */
export const RouteOptions = v.record(
  v.string(),
  v.object({
    metric: v.exactOptional(wholeWithin(0, maxMetric)),
    maintenance: v.exactOptional(v.boolean()),
  }),
);
export type RouteOptions = v.InferOutput<typeof RouteOptions>;

/** The metric by which nodes choose: lower goes first. */
export function costOf({ metric = defaultMetric, maintenance = false }: RouteOptions[string] = {}): number {
  return metric + (maintenance ? maintenanceMetric : 0);
}
