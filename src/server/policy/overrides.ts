// config_overrides of organizations and nodes: the allow-list of engine settings an administrator may set through the
// API, each with its type. Nothing here reaches `pki`, who a node trusts, the routes, or a shell of the engine (sshd).

import * as v from "valibot";
import { Cidr } from "./firewall.ts";
import { PublicAddress } from "../../protocol.ts";

const whole = (min: number, max: number) =>
  v.optional(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max)));
const yesOrNo = v.optional(v.boolean());
const duration = v.optional(
  v.pipe(v.string(), v.regex(/^\d{1,9}(ms|s|m|h)$/, "Enter a duration such as 30s or 12m.")),
);
const text = (max: number) =>
  v.pipe(v.string(), v.minLength(1), v.maxLength(max), v.regex(/^[\x20-\x7e]*$/, "Printable ASCII only."));
/** The engine's own condition: what is in none of the networks must follow from them. */
const allowList = v.optional(
  v.pipe(
    v.record(Cidr, v.boolean()),
    v.check((list) => {
      const [ipv4 = [], ipv6 = []] = [".", ":"].map((mark) =>
        Object.entries(list).filter(([cidr]) => cidr.includes(mark)),
      );
      return [ipv4, ipv6].every(
        (networks) =>
          new Set(networks.map(([, allowed]) => allowed)).size < 2 ||
          networks.some(([cidr]) => cidr.endsWith("/0")),
      );
    }, "Where some networks are allowed and others are not, 0.0.0.0/0 (or ::/0) says what holds for the rest."),
  ),
);
const hostAndPort = v.pipe(
  v.string(),
  v.maxLength(270),
  v.regex(/^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]*):\d{1,5}$/, "Enter host:port."),
  v.check((text) => Number(text.split(":").at(-1)) <= 65_535, "A port is 65535 at most."),
);
const action = v.optional(v.picklist(["drop", "reject"]));

export const ConfigOverrides = v.strictObject({
  listen: v.optional(
    v.strictObject({
      host: v.optional(v.union([PublicAddress, v.literal("::"), v.literal("[::]")])),
      port: whole(0, 65_535),
      batch: whole(1, 1024),
      read_buffer: whole(0, 1_073_741_824),
      write_buffer: whole(0, 1_073_741_824),
      send_recv_error: v.optional(v.picklist(["always", "never", "private"])),
      accept_recv_error: v.optional(v.picklist(["always", "never", "private"])),
      so_mark: whole(0, 4_294_967_295),
    }),
  ),
  tun: v.optional(
    v.strictObject({
      dev: v.optional(
        v.pipe(v.string(), v.regex(/^[A-Za-z0-9_.-]{1,15}$/, "A device name has 1 to 15 characters.")),
      ),
      disabled: yesOrNo,
      mtu: whole(1280, 9000),
      tx_queue: whole(1, 100_000),
      drop_local_broadcast: yesOrNo,
      drop_multicast: yesOrNo,
      use_system_route_table: yesOrNo,
    }),
  ),
  punchy: v.optional(
    v.strictObject({
      punch: yesOrNo,
      respond: yesOrNo,
      delay: duration,
      respond_delay: duration,
      target_all_remotes: yesOrNo,
    }),
  ),
  relay: v.optional(v.strictObject({ use_relays: yesOrNo })),
  lighthouse: v.optional(
    v.strictObject({
      interval: whole(0, 86_400),
      serve_dns: yesOrNo,
      dns: v.optional(v.strictObject({ host: v.optional(PublicAddress), port: whole(1, 65_535) })),
      remote_allow_list: allowList,
      local_allow_list: allowList,
      advertise_addrs: v.optional(v.pipe(v.array(hostAndPort), v.maxLength(16))),
    }),
  ),
  static_map: v.optional(
    v.strictObject({
      cadence: duration,
      network: v.optional(v.picklist(["ip", "ip4", "ip6"])),
      lookup_timeout: duration,
    }),
  ),
  firewall: v.optional(
    v.strictObject({
      inbound_action: action,
      outbound_action: action,
      conntrack: v.optional(
        v.strictObject({
          tcp_timeout: duration,
          udp_timeout: duration,
          default_timeout: duration,
          routine_cache_timeout: duration,
        }),
      ),
    }),
  ),
  handshakes: v.optional(
    v.strictObject({ try_interval: duration, retries: whole(1, 1000), trigger_buffer: whole(1, 65_536) }),
  ),
  tunnels: v.optional(v.strictObject({ drop_inactive: yesOrNo, inactivity_timeout: duration })),
  logging: v.optional(
    v.strictObject({
      level: v.optional(v.picklist(["panic", "fatal", "error", "warning", "info", "debug"])),
    }),
  ),
  stats: v.optional(
    v.pipe(
      v.strictObject({
        type: v.picklist(["prometheus", "graphite"]),
        interval: v.pipe(v.string(), v.regex(/^[1-9]\d{0,5}(s|m)$/, "Enter a duration such as 10s.")),
        listen: v.optional(hostAndPort),
        path: v.optional(v.pipe(v.string(), v.regex(/^\/[\w./-]{0,63}$/, "A path begins with /."))),
        namespace: v.optional(text(64)),
        subsystem: v.optional(text(64)),
        protocol: v.optional(v.picklist(["tcp", "udp"])),
        host: v.optional(hostAndPort),
        prefix: v.optional(text(64)),
        message_metrics: yesOrNo,
        lighthouse_metrics: yesOrNo,
      }),
      v.check(
        ({ type, listen, path }) => type !== "prometheus" || (listen !== undefined && path !== undefined),
        "Prometheus needs listen and path.",
      ),
      v.check(({ type, host }) => type !== "graphite" || host !== undefined, "Graphite needs host."),
    ),
  ),
  timers: v.optional(v.strictObject({ connection_alive_interval: whole(1, 30) })),
  preferred_ranges: v.optional(v.pipe(v.array(Cidr), v.maxLength(64))),
  routines: whole(1, 64),
});
const ownTimeout = v.optional(v.string(), "0s");
const Conntrack = v.object({
  firewall: v.optional(
    v.object({
      conntrack: v.optional(
        v.object({ tcp_timeout: ownTimeout, udp_timeout: ownTimeout, default_timeout: ownTimeout }),
      ),
    }),
  ),
});
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** How long a flow stays open without a packet where these overrides (JSON) are in force, ms; 0 where they do not say. */
export function flowMs(overrides: string): number {
  const { firewall } = v.parse(Conntrack, JSON.parse(overrides));
  const times = Object.values(firewall?.conntrack ?? {});
  return Math.max(0, ...times.map((time) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? 0)));
}

export type ConfigOverrides = v.InferOutput<typeof ConfigOverrides>;
