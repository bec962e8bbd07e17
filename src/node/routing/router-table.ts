// The table of nftables that a router has: which requests for its networks are answered, what is forwarded, and which addresses
// are translated. Pure.

import { chainsOf, setOf } from "../../platform/nftables.ts";
import type { Offer } from "../../protocol/routing/advertised.ts";
import { probeMark } from "./route-probe.ts";

/** An offered network, the interface behind which it is, and this machine's address there. Undefined without a route. */
export type Watched = { offer: Offer; device: string | undefined; from: string | undefined };

export type Filter = {
  tunnel: string;
  /** The tunnel interfaces of all organizations that are routers here. */
  tunnels: readonly string[];
  /** The overlay's own networks. */
  overlays: readonly string[];
  watched: readonly Watched[];
  /** Networks that are not reached now. */
  down: ReadonlySet<string>;
  /** Networks of the certificate that this machine does not forward to. */
  closed: readonly string[];
  /** Interfaces over which IPv4 was not forwarded before: only what the router needs is forwarded there. */
  opened: readonly string[];
  /** IPv6 was not forwarded before, and is now. */
  opens6: boolean;
};

const isOf = ({ offer: { network } }: Watched, family: 4 | 6) => network.includes(":") === (family === 6);

/** The interfaces behind which there are networks of this family. */
export const devicesOf = (watched: readonly Watched[], family: 4 | 6): string[] => [
  ...new Set(watched.flatMap((each) => (isOf(each, family) ? (each.device ?? []) : []))),
];

/**
 * The body of the table; empty if the router needs no rule. The filters have priority -10, before the usual 0 of other tables; -100 and 100
 * are the usual priorities of the translation of destinations and sources.
 */
export function tableBody(filter: Filter): string {
  const { tunnel, overlays, watched, down, closed } = filter;
  const translated = watched.flatMap(({ offer: { network, behind } }) =>
    behind === undefined ? [] : [{ network, behind }],
  );
  const pairs = (from: "network" | "behind", to: "network" | "behind") =>
    setOf(translated.map((each) => `${each[from]} : ${each[to]}`));
  const gone = watched.flatMap(({ offer: { network } }) => (down.has(network) ? [network] : []));
  return chainsOf([
    {
      // Other nodes ask by an echo request with a mark whether a network is reached (route-probe.ts). Its mark is the first 64 bits
      // behind the 64 of the ICMP header. Without an answer they take another router.
      name: "reached",
      hook: "filter hook input priority -10",
      rules: [...gone, ...closed].map(
        (each) => `iifname "${tunnel}" icmp type echo-request @th,64,64 0x${probeMark(each)} drop`,
      ),
    },
    {
      name: "forwarded",
      hook: "filter hook forward priority -10",
      rules: [...forwarded4(filter), ...(filter.opens6 ? forwarded6(filter) : [])],
    },
    {
      name: "translated",
      hook: "nat hook prerouting priority -100",
      rules:
        translated.length === 0
          ? []
          : [`iifname "${tunnel}" dnat ip prefix to ip daddr map ${pairs("network", "behind")}`],
    },
    {
      name: "source",
      hook: "nat hook postrouting priority 100",
      rules: [
        ...(translated.length === 0
          ? []
          : [`oifname "${tunnel}" snat ip prefix to ip saddr map ${pairs("behind", "network")}`]),
        ...watched.flatMap((each) => masquerade(each, overlays)),
      ],
    },
  ]);
}

/** Packets from the overlay get this machine's address, so that hosts behind it need no route back. */
function masquerade(watched: Watched, overlays: readonly string[]): string[] {
  if (watched.offer.masquerade !== true || watched.device === undefined) return [];
  const keyword = isOf(watched, 6) ? "ip6" : "ip";
  const from = overlays.filter((overlay) => overlay.includes(":") === isOf(watched, 6));
  return [
    `${keyword} saddr ${setOf(from)} oifname "${watched.device}" ${keyword} daddr ${realNetwork(watched)} masquerade`,
  ];
}

const quoted = (names: readonly string[]) => setOf(names.map((name) => `"${name}"`));
/** The network as it is behind this machine: an offer may translate it. */
const realNetwork = ({ offer: { network, behind = network } }: Watched) => behind;

/**
 * The router switched forwarding on for the interfaces in `opened`. So what comes in there goes to tunnels alone, and from the
 * overlay only packets for the offered networks are let through.
 */
function forwarded4({ tunnel, tunnels, watched, opened }: Filter): string[] {
  const ofFamily = watched.filter((each) => isOf(each, 4));
  return [
    ...devicesOf(watched, 4)
      .filter((device) => opened.includes(device))
      .map((device) => `iifname "${device}" oifname != ${quoted(tunnels)} drop`),
    ...(opened.includes(tunnel)
      ? [`iifname "${tunnel}" ip daddr != ${setOf(ofFamily.map(realNetwork))} drop`]
      : []),
  ];
}

/** IPv6 forwarding is one setting for all interfaces, so these rules limit all of them. */
function forwarded6({ tunnel, tunnels, watched }: Filter): string[] {
  const ofFamily = watched.filter((each) => isOf(each, 6));
  const ipv6 = "meta nfproto ipv6";
  return [
    `${ipv6} iifname != ${quoted(tunnels)} oifname != ${quoted(tunnels)} drop`,
    `iifname "${tunnel}" ip6 daddr != ${setOf(ofFamily.map(realNetwork))} drop`,
    `${ipv6} oifname "${tunnel}" iifname != ${quoted(devicesOf(watched, 6))} drop`,
  ];
}
