// What the kernel must have so that the packets of this machine take the way to an exit: rules that choose a routing table,
// the routes of that table, and a table of nftables. Pure: apply-plan.ts compares it with what is there.
//
// Only private networks stay with the machine's own routes: a network that a DHCP server calls local, or routes that it
// sends, must not lead packets for the internet past the exit (CVE-2024-3661).

import {
  holdsNetwork,
  isPrivate,
  maskNetwork,
  parseAddress,
  parseNetworks,
  privateNetworks,
} from "../../base/ip.ts";
import { chainsOf, setOf, versioned, type Chain } from "../../platform/nftables.ts";

/** The number of our routing table: no other program may have routes there. */
export const exitTable = 7783;
/** Our rules have priorities from the first to the last of these: no other program may have rules there. */
export const firstPriority = 7700;
export const lastPriority = 7709;

export type ExitFacts = {
  /** The tunnel's interface, and this node's addresses in the overlay. */
  device: string;
  own: { ip: string; ip6: string | undefined };
  /** Undefined: this node may use none. Then `strict` blocks all. */
  exit: { ip: string; ip6: string | undefined } | undefined;
  /** The interface is there. */
  hasDevice: boolean;
  /** Without a working exit, packets are dropped. */
  strict: boolean;
  /** Private networks that the machine is in stay reachable. */
  lan: boolean;
  /** The mark of the engine's packets. */
  mark: number;
  /** Addresses of control planes, lighthouses and relays of all organizations, "192.0.2.1/32". */
  hosts: readonly string[];
  /** Networks and interfaces of the machine's other organizations. */
  others: { networks: readonly string[]; devices: readonly string[] };
  /** The overlay's own networks. */
  overlay: readonly string[];
  /** Addresses of the machine's interfaces with prefixes, without overlays. */
  attached: readonly string[];
  nameServers: readonly string[];
};

export type Family = 4 | 6;
/** `rules`: the words of `ip rule` behind the priority, by family. `routes`: those of `ip route`. `nft`: the body of a table. */
export type ExitPlan = {
  rules: Record<Family, readonly (readonly [priority: number, words: string])[]>;
  routes: Record<Family, readonly string[]>;
  nft: string | undefined;
};

export const noPlan: ExitPlan = { rules: { 4: [], 6: [] }, routes: { 4: [], 6: [] }, nft: undefined };

/** Hosts that are reached beside the exit: each costs every packet a comparison. */
const mostHosts = 100;
const families = [4, 6] as const;
const familyOf = (text: string): Family => (text.includes(":") ? 6 : 4);
const ofFamily = (family: Family, texts: readonly string[]) =>
  [...new Set(texts)].filter((each) => familyOf(each) === family);

export function planExit(facts: ExitFacts): ExitPlan {
  const forBoth = <T>(make: (family: Family) => T) => ({ 4: make(4), 6: make(6) });
  return {
    rules: forBoth((family) => (isTaken(facts, family) ? rulesOf(facts, family) : [])),
    routes: forBoth((family) => (isTaken(facts, family) ? routesOf(facts, family) : [])),
    nft: bodyOf(facts),
  };
}

/** Whether the exit carries packets of the family. */
const isCarried = ({ own, exit }: ExitFacts, family: Family) =>
  exit !== undefined && (family === 4 || (own.ip6 !== undefined && exit.ip6 !== undefined));
/** Whether packets of the family leave the machine's own routes. IPv6 that the exit does not carry stays there, or is blocked by `strict`. */
const isTaken = (facts: ExitFacts, family: Family) => facts.strict || isCarried(facts, family);

/** Multicast and link-local addresses have no other way than the link. */
const onLink = { 4: ["169.254.0.0/16", "224.0.0.0/4", "255.255.255.255"], 6: ["fe80::/10", "ff00::/8"] };

function rulesOf(facts: ExitFacts, family: Family): [number, string][] {
  const { hosts, others, lan, overlay, mark } = facts;
  const local = privateNetworks().flatMap((each) => (each.family === family ? [each.text] : []));
  const lookupMain = (priority: number, networks: readonly string[], more = ""): [number, string][] =>
    networks.map((each) => [priority, `to ${each.replace(/\/(32|128)$/, "")} lookup main${more}`]);
  return [
    [firstPriority, `fwmark 0x${mark.toString(16)} lookup main`],
    ...lookupMain(firstPriority + 1, ofFamily(family, hosts).slice(0, mostHosts)),
    ...lookupMain(firstPriority + 2, ofFamily(family, others.networks)),
    // Default routes do not count here, so packets to addresses outside the machine's networks go to the exit.
    ...lookupMain(firstPriority + 3, ofFamily(family, overlay), " suppress_prefixlength 0"),
    ...lookupMain(firstPriority + 4, lan ? [...local, ...onLink[family]] : [], " suppress_prefixlength 0"),
    [firstPriority + 5, `lookup ${exitTable}`],
  ];
}

/** Above the metric of any other default route of the table: the kernel prefers the lowest. */
const lastMetric = 4_278_198_272;

function routesOf(facts: ExitFacts, family: Family): string[] {
  const way = facts.hasDevice && isCarried(facts, family) ? [`default dev ${facts.device}`] : [];
  // The kernel removes the first route together with the interface. Then the second one rejects packets.
  return [...way, ...(facts.strict ? [`unreachable default metric ${lastMetric}`] : [])];
}

// nftables

/** The networks that stay local: private ones that the machine is in. */
export function localNetworks(attached: readonly string[]): string[] {
  const masked = attached.flatMap((each) => maskNetwork(each) ?? []);
  return [...new Set(parseNetworks(masked).flatMap((each) => (isPrivate(each) ? [each.text] : [])))].sort();
}

/** Name servers of IPv4 whose questions are sent to the exit's IPv4 address instead: all but those on loopback and in overlays. */
function redirected({ nameServers, overlay, others }: ExitFacts): string[] {
  const inside = parseNetworks([...overlay, ...others.networks, "127.0.0.0/8"]);
  return ofFamily(4, nameServers).filter((each) => {
    const address = parseAddress(each);
    const own = address && { ...address, prefix: 32, text: each };
    return own !== undefined && !inside.some((network) => holdsNetwork(network, own));
  });
}

function bodyOf(facts: ExitFacts): string | undefined {
  const chains = [...nameChains(facts), ...(facts.strict ? blockChains(facts) : [])];
  return chains.length === 0 ? undefined : versioned(chainsOf(chains));
}

/**
 * Sends questions for names to the exit, which has a name server: one in this machine's network would see what is looked up. At the
 * priorities -100 and 100 the kernel translates targets and sources.
 */
function nameChains(facts: ExitFacts): Chain[] {
  const servers = redirected(facts);
  const { device, own, exit } = facts;
  if (servers.length === 0 || exit === undefined) return [];
  const question = "meta l4proto { tcp, udp } th dport 53";
  return [
    {
      name: "names",
      hook: "nat hook output priority -100",
      rules: [`ip daddr ${setOf(servers)} ${question} dnat ip to ${exit.ip}`],
    },
    {
      name: "source",
      hook: "nat hook postrouting priority 100",
      rules: [
        `oifname "${device}" ip daddr ${exit.ip} ip saddr != ${own.ip} ${question} snat ip to ${own.ip}`,
      ],
    },
  ];
}

function blockChains(facts: ExitFacts): Chain[] {
  const { device, others, hosts, lan, attached, mark, overlay } = facts;
  const devices = ["lo", device, ...others.devices].map((each) => `"${each}"`);
  const local = lan ? localNetworks(attached) : [];
  const to = (networks: readonly string[], verdict: "accept" | "drop") =>
    families.flatMap((family) => {
      const texts = ofFamily(family, networks);
      return texts.length === 0 ? [] : [`${family === 4 ? "ip" : "ip6"} daddr ${setOf(texts)} ${verdict}`];
    });
  const common = [
    `oifname ${setOf([...new Set(devices)])} accept`,
    ...to(hosts.slice(0, mostHosts), "accept"),
    // Overlay networks have no way but their interfaces.
    ...to(overlay, "drop"),
    // Questions for names do not stay in the local network.
    "meta l4proto { tcp, udp } th dport { 53, 853 } drop",
    ...to(local, "accept"),
  ];
  const out = [
    `meta mark ${mark} accept`,
    ...common,
    // DHCP of IPv4 and IPv6, and what IPv6 needs of its link: the network itself must stay in use.
    "udp sport 68 udp dport 67 accept",
    "udp sport 546 udp dport 547 accept",
    "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-report, mld2-listener-report } accept",
    ...(lan
      ? ["ip daddr { 224.0.0.0/4, 255.255.255.255 } accept", "ip6 daddr { fe80::/10, ff02::/16 } accept"]
      : []),
    "drop",
  ];
  // 10: after the filters of other programs, which have priority 0. A packet that either drops is dropped.
  return [
    { name: "output", hook: "filter hook output priority 10", rules: out },
    { name: "forward", hook: "filter hook forward priority 10", rules: [...common, "drop"] },
  ];
}
