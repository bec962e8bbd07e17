// The allow-list of engine settings that a control plane may write, with their types, for both sides: the server checks
// config_overrides by it, the node filters config.yml by it (filter-config.ts). No setting here gives access to files, a
// node's trust or the engine's shell (sshd). Rules about one machine are in node/.

import * as v from "valibot";
import { parseAddress, parseNetwork, withoutPort } from "../base/ip.ts";
import { PublicAddress } from "../protocol/values.ts";
import { isObject } from "../base/is-object.ts";
import { strictRecord } from "../base/strict-record.ts";
import { foreignText } from "../base/text.ts";

export const Cidr = v.pipe(
  foreignText(64),
  v.check(
    (text) => parseNetwork(text) !== undefined,
    "Enter a network such as 192.168.1.0/24: its first address, and the length of its prefix.",
  ),
  // The canonical text: the engine does not accept 192.168.1.0/024.
  v.transform((text) => parseNetwork(text)?.text ?? text),
);

/** A whole number within bounds; the setting may be absent. */
const wholeNumber = (min: number, max: number) =>
  v.optional(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max)));
const bool = v.boolean();
const yesOrNo = v.optional(bool);
/** A duration within bounds in ms: engines divide by some times, and allocate a slot for each tick of others. */
const duration = (minMs: number, maxMs: number, range: string) =>
  v.optional(
    v.pipe(
      foreignText(11),
      v.regex(/^\d{1,9}(ms|s|m|h)$/, "Enter a duration such as 30s or 12m."),
      v.check((text) => {
        const ms = parseInt(text, 10) * (unitMs[text.replace(/^\d+/, "")] ?? 0);
        return ms >= minMs && ms <= maxMs;
      }, `Enter a duration from ${range}.`),
    ),
  );
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const flowTime = duration(1000, 86_400_000, "1s to 24h");
const asciiText = v.pipe(foreignText(64), v.minLength(1), v.regex(/^[\x20-\x7e]*$/, "Printable ASCII only."));
/** A rule of the engine: with both true and false values, the list needs a default network. */
const allowList = v.optional(
  v.pipe(
    strictRecord(Cidr, v.boolean()),
    v.maxEntries(4000),
    v.check((list) => {
      const byFamily = Map.groupBy(Object.entries(list), ([cidr]) => cidr.includes(":"));
      return [...byFamily.values()].every(
        (networks) =>
          new Set(networks.map(([, allowed]) => allowed)).size < 2 ||
          networks.some(([cidr]) => cidr.endsWith("/0")),
      );
    }, "If some networks are allowed and others are not, add 0.0.0.0/0 (or ::/0) for all others."),
  ),
);
const hostAndPort = v.pipe(
  foreignText(270),
  v.regex(/^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]*):\d{1,5}$/, "Enter host:port."),
  v.check((text) => Number(text.split(":").at(-1)) <= 65_535, "A port is 65535 at most."),
);

const action = v.optional(v.picklist(["drop", "reject"]));
/** Whether it is one address with a port, and not that of every interface. */
const listensOnOneAddress = v.check((listen: string) => {
  const host = withoutPort(listen);
  const address = parseAddress(host);
  return host === "localhost" || (address !== undefined && address.value !== 0n);
}, "Metrics must listen on one address such as 127.0.0.1:9100, not on every interface.");

const listen = {
  host: v.optional(v.union([PublicAddress, v.literal("::"), v.literal("[::]")])),
  port: wholeNumber(0, 65_535),
  batch: wholeNumber(1, 1024),
  read_buffer: wholeNumber(0, 1_073_741_824),
  write_buffer: wholeNumber(0, 1_073_741_824),
  send_recv_error: v.optional(v.picklist(["always", "never", "private"])),
  accept_recv_error: v.optional(v.picklist(["always", "never", "private"])),
  so_mark: wholeNumber(0, 4_294_967_295),
  udp_offloads: yesOrNo,
};
const tun = {
  dev: v.optional(
    v.pipe(foreignText(15), v.regex(/^[A-Za-z0-9_.-]+$/, "A device name has 1 to 15 characters.")),
  ),
  disabled: yesOrNo,
  mtu: wholeNumber(1280, 9000),
  tx_queue: wholeNumber(1, 100_000),
  drop_local_broadcast: yesOrNo,
  drop_multicast: yesOrNo,
  use_system_route_table: yesOrNo,
  use_offloads: yesOrNo,
};
const punchy = {
  punch: yesOrNo,
  respond: yesOrNo,
  delay: duration(0, 60_000, "0s to 1m"),
  respond_delay: duration(0, 60_000, "0s to 1m"),
  target_all_remotes: yesOrNo,
};
const relay = { use_relays: yesOrNo };
const lighthouse = {
  interval: wholeNumber(0, 86_400),
  serve_dns: yesOrNo,
  dns: v.optional(v.strictObject({ host: v.optional(PublicAddress), port: wholeNumber(1, 65_535) })),
  remote_allow_list: allowList,
  local_allow_list: allowList,
  advertise_addrs: v.optional(v.pipe(v.array(hostAndPort), v.maxLength(16))),
};
const staticMap = {
  cadence: duration(1000, 86_400_000, "1s to 24h"),
  network: v.optional(v.picklist(["ip", "ip4", "ip6"])),
  lookup_timeout: duration(1, 60_000, "1ms to 1m"),
};
const firewall = {
  inbound_action: action,
  outbound_action: action,
  conntrack: v.optional(
    v.strictObject({
      tcp_timeout: duration(60_000, 604_800_000, "1m to 168h"),
      udp_timeout: flowTime,
      default_timeout: flowTime,
      // 0s disables the cache.
      routine_cache_timeout: duration(0, 3_600_000, "0s to 1h"),
    }),
  ),
};
const handshakes = {
  try_interval: duration(10, 60_000, "10ms to 1m"),
  retries: wholeNumber(1, 1000),
  trigger_buffer: wholeNumber(1, 65_536),
};
const tunnels = { drop_inactive: yesOrNo, inactivity_timeout: duration(1000, 86_400_000, "1s to 24h") };
const logging = {
  level: v.optional(v.picklist(["panic", "fatal", "error", "warning", "info", "debug"])),
};
const timers = { connection_alive_interval: wholeNumber(1, 30) };
const stats = v.pipe(
  v.strictObject({
    type: v.picklist(["prometheus", "graphite"]),
    interval: v.pipe(foreignText(7), v.regex(/^[1-9]\d{0,5}(s|m)$/, "Enter a duration such as 10s.")),
    listen: v.optional(v.pipe(hostAndPort, listensOnOneAddress)),
    path: v.optional(v.pipe(foreignText(64), v.regex(/^\/[\w./-]*$/, "A path begins with /."))),
    namespace: v.optional(asciiText),
    subsystem: v.optional(asciiText),
    protocol: v.optional(v.picklist(["tcp", "udp"])),
    host: v.optional(hostAndPort),
    // Each line that the engine sends to `host` begins with it: with spaces it could be a command of another service.
    prefix: v.optional(
      v.pipe(
        foreignText(64),
        v.regex(/^[\w.:-]{1,64}$/, "A prefix has 1 to 64 letters, digits, dots, colons, - and _."),
      ),
    ),
    message_metrics: yesOrNo,
    lighthouse_metrics: yesOrNo,
  }),
  v.check(
    ({ type, listen, path }) => type !== "prometheus" || (listen !== undefined && path !== undefined),
    "Prometheus needs listen and path.",
  ),
  v.check(({ type, host }) => type !== "graphite" || host !== undefined, "Graphite needs host."),
);
const preferredRanges = v.optional(v.pipe(v.array(Cidr), v.maxLength(64)));
const routines = wholeNumber(1, 64);

/** Settings by name. The refusal of another name says which there are, in the order of declaration. */
const settings = <E extends v.ObjectEntries>(entries: E) =>
  v.strictObject(entries, ({ expected, message }) =>
    expected === "never" ? `This setting is unknown. Known are ${Object.keys(entries).join(", ")}.` : message,
  );

/** The settings that an administrator may change by the API. */
export const ConfigOverrides = settings({
  listen: v.optional(settings(listen)),
  tun: v.optional(settings(tun)),
  punchy: v.optional(settings(punchy)),
  relay: v.optional(settings(relay)),
  lighthouse: v.optional(settings(lighthouse)),
  static_map: v.optional(settings(staticMap)),
  firewall: v.optional(settings(firewall)),
  handshakes: v.optional(settings(handshakes)),
  tunnels: v.optional(settings(tunnels)),
  logging: v.optional(settings(logging)),
  stats: v.optional(stats),
  timers: v.optional(settings(timers)),
  preferred_ranges: preferredRanges,
  routines,
});
export type ConfigOverrides = v.InferOutput<typeof ConfigOverrides>;

type Leaf = v.GenericSchema<unknown, unknown>;
/**
 * A value that a schema checks as a whole; a map that is checked setting by setting (`map`); or items of one kind (`each`): a map
 * with `key` as the schema of its keys, else a list.
 */
export type Allowed = Leaf | { map: Readonly<Record<string, Allowed>> } | { each: Allowed; key?: Leaf };

const Address = v.pipe(
  foreignText(45),
  v.check((address) => parseAddress(address) !== undefined, "Enter an IP address."),
);
const underlay = v.pipe(
  hostAndPort,
  v.check((each) => v.is(PublicAddress, withoutPort(each)), "Enter an address or a DNS name, and a port."),
);
const Fingerprint = v.pipe(foreignText(64), v.regex(/^[0-9a-f]{64}$/, "Enter a SHA-256 fingerprint."));
const ownFile = "A node uses its own file.";
const name = v.pipe(foreignText(255), v.minLength(1));

/** Strict: the engine matches host, group, groups and cidr as alternatives, and an unknown field may narrow a rule. */
const FirewallRule = v.strictObject({
  port: v.optional(
    v.union([v.pipe(foreignText(11), v.regex(/^(any|fragment|\d{1,5}(-\d{1,5})?)$/)), v.number()]),
  ),
  proto: v.picklist(["any", "tcp", "udp", "icmp"]),
  host: v.optional(name),
  group: v.optional(name),
  // A number as a group makes the engine exit.
  groups: v.optional(v.array(name)),
  cidr: v.optional(v.union([v.literal("any"), Cidr])),
  local_cidr: v.optional(v.union([v.literal("any"), Cidr])),
  ca_name: v.optional(name),
  ca_sha: v.optional(Fingerprint),
});

const UnsafeRoute = v.strictObject({
  route: Cidr,
  via: v.union([Address, v.array(v.strictObject({ gateway: Address, weight: wholeNumber(0, 1000) }))]),
  mtu: wholeNumber(500, 9000),
  metric: wholeNumber(0, 4_294_967_295),
  install: yesOrNo,
});

/** The settings of config.yml that a control plane may write. */
export const engineConfig: Readonly<Record<string, Allowed>> = {
  pki: {
    map: {
      // Settings of our control plane. The node writes its own paths in any case.
      ca: v.literal("ca.crt", ownFile),
      cert: v.literal("host.crt", ownFile),
      key: v.literal("host.key", ownFile),
      disconnect_invalid: v.literal(true),
      initiating_version: v.picklist([1, 2]),
      blocklist: { each: Fingerprint },
    },
  },
  static_host_map: { each: { each: underlay }, key: Address },
  static_map: { map: staticMap },
  lighthouse: { map: { ...lighthouse, am_lighthouse: bool, hosts: { each: Address } } },
  listen: { map: listen },
  punchy: { map: punchy },
  relay: { map: { ...relay, am_relay: bool, relays: { each: Address } } },
  cipher: v.picklist(["aes", "chachapoly"]),
  // `routes`, an MTU for a part of the overlay, is not used: the list must be empty.
  tun: { map: { ...tun, routes: { each: v.never() }, unsafe_routes: { each: UnsafeRoute } } },
  firewall: { map: { ...firewall, inbound: { each: FirewallRule }, outbound: { each: FirewallRule } } },
  handshakes: { map: handshakes },
  tunnels: { map: tunnels },
  timers: { map: timers },
  logging: { map: { ...logging, format: v.picklist(["json", "text"]) } },
  sshd: { map: { enabled: v.literal(false) } },
  stats,
  preferred_ranges: preferredRanges,
  routines,
};

/** The paths of the settings in a schema. Maps with keys of their own, such as allow lists, are one setting. */
export function settingsIn(schema: object, path = ""): string[] {
  if ("wrapped" in schema && isObject(schema.wrapped)) return settingsIn(schema.wrapped, path);
  if (!("entries" in schema) || !isObject(schema.entries)) return [path];
  return Object.entries(schema.entries).flatMap(([name, each]) =>
    isObject(each) ? settingsIn(each, path === "" ? name : `${path}.${name}`) : [],
  );
}
