// What each version of the overlay engine can do, and which versions are refused: the only file with engine versions,
// for node and control plane. Sources: Nebula's CHANGELOG.md, the reload code of each tag, and its security advisories.

export type EngineVersion = readonly [major: number, minor: number, patch: number];

/** The oldest supported engine. A node that reports no version gets a configuration for this one. */
export const oldestEngine: EngineVersion = [1, 6, 1];
export const recommendedEngine: EngineVersion = [1, 10, 3];

/** The first version with each feature. The comments are the table of docs/engines.md. */
export const firstVersions = {
  /** `static_map`: looks host names up again while it runs. Older engines refuse to start with an unknown name. */
  static_map: [1, 7, 0],
  /** A firewall rule for one of the networks behind a node: `local_cidr`. */
  local_cidr: [1, 7, 0],
  /** `punchy.respond_delay`: how long a node behind NAT waits before it answers. */
  respond_delay: [1, 7, 0],
  /** `firewall.inbound_action` and `firewall.outbound_action`: drop or reject. */
  firewall_actions: [1, 7, 0],
  /** Replaces its certificate inside existing tunnels. Older engines keep it for the life of a tunnel. */
  replace_certificate: [1, 7, 0],
  /** A reload applies `lighthouse.interval`. In older engines it never ends, and neither does any later one. */
  reload_interval: [1, 8, 0],
  /** A reload applies `tun.mtu`, `tun.routes` and `tun.unsafe_routes`. */
  reload_tun: [1, 9, 0],
  /** A reload applies `preferred_ranges`. */
  reload_preferred_ranges: [1, 9, 0],
  /** `tunnels`: closes inactive tunnels. */
  inactive_tunnels: [1, 9, 6],
  /** Certificates of version 2, `pki.initiating_version`, and IPv6 inside the overlay. */
  certificate_v2: [1, 10, 0],
  /** A rule covers the subnets behind its node only with `local_cidr`. Before, it always did. */
  explicit_local_cidr: [1, 10, 0],
  /** `listen.so_mark`: its packets have a mark, by which rules of the kernel keep them out of a default route to an exit. */
  packet_mark: [1, 10, 0],
  /** Revokes within 2.3 s even if tunnels are checked every 2 s instead of every second (measured). */
  slow_tunnel_checks: [1, 10, 0],
  /** A firewall rule for ICMP needs no port. */
  icmp_without_port: [1, 11, 0],
  /** A reload applies `punchy.punch`. */
  reload_punch: [1, 11, 0],
  /** A reload applies `stats`. */
  reload_stats: [1, 11, 0],
  /** A reload applies all of `relay`. Before, whether a node uses relays was decided at its start. */
  reload_relay: [1, 11, 0],
  /** A reload applies `lighthouse.serve_dns`. */
  reload_serve_dns: [1, 11, 0],
  /** A reload applies the subnets in the node's own certificate, also if no firewall rule changes. */
  reload_subnets: [1, 11, 0],
  /** `local_api`: a control socket, which applies reloads, tells tunnels and closes them. */
  local_api: [1, 12, 0],
  /** `tun.use_offloads` and `listen.udp_offloads`: fewer, larger packets between kernel and engine. */
  offloads: [1, 12, 0],
} as const satisfies Record<string, EngineVersion>;

export type EngineFeature = keyof typeof firstVersions;

/**
 * How a running engine takes a change of a setting: by a reload (always, or with a feature) or only at its start. The
 * longest path counts. Engines ignore sections that are not here.
 */
const reloads: Readonly<Record<string, "always" | "start" | EngineFeature>> = {
  pki: "always",
  static_host_map: "always",
  static_map: "always",
  lighthouse: "always",
  "lighthouse.am_lighthouse": "start",
  "lighthouse.interval": "reload_interval",
  "lighthouse.serve_dns": "reload_serve_dns",
  listen: "start",
  "listen.read_buffer": "always",
  "listen.write_buffer": "always",
  "listen.send_recv_error": "always",
  "listen.accept_recv_error": "always",
  "listen.so_mark": "always",
  punchy: "always",
  "punchy.punch": "reload_punch",
  relay: "reload_relay",
  "relay.relays": "always",
  tun: "start",
  "tun.mtu": "reload_tun",
  "tun.routes": "reload_tun",
  "tun.unsafe_routes": "reload_tun",
  firewall: "always",
  "firewall.conntrack.routine_cache_timeout": "start",
  tunnels: "always",
  handshakes: "start",
  timers: "start",
  cipher: "start",
  routines: "start",
  logging: "always",
  sshd: "always",
  "sshd.sandbox_dir": "start",
  stats: "reload_stats",
  "stats.message_metrics": "start",
  "stats.lighthouse_metrics": "start",
  preferred_ranges: "reload_preferred_ranges",
  local_api: "always",
};

/** Whether a reload applies a change of this setting, a path such as "tun.mtu". An unknown version counts as the oldest. */
export function takesReload(path: string, engine: EngineVersion | string | undefined): boolean {
  let longest = "";
  for (const known of Object.keys(reloads))
    if ((path === known || path.startsWith(`${known}.`)) && known.length > longest.length) longest = known;
  const how = reloads[longest] ?? "always";
  return how === "always" || (how !== "start" && can(engine, how));
}

/** An unknown version counts as the oldest. Parse the version first where many features are asked for. */
export function can(engine: EngineVersion | string | null | undefined, feature: EngineFeature): boolean {
  const version = typeof engine === "object" && engine !== null ? engine : parseEngineVersion(engine);
  return compareEngines(version, firstVersions[feature]) >= 0;
}

/** A digit for each feature: 1 if the engine has it. Engines of the same class get the same configuration. */
export function engineClass(version: string | null): string {
  const engine = parseEngineVersion(version);
  return Object.values(firstVersions)
    .map((first) => Number(compareEngines(engine, first) >= 0))
    .join("");
}

export type Advisory = { id: string; severity: "high" | "medium"; fixed_in: string };

/** Published vulnerabilities, each in the versions from `first` up to, but not including, `fixed`. */
const advisories: readonly {
  id: string;
  severity: Advisory["severity"];
  first: EngineVersion;
  fixed: EngineVersion;
  /** No configuration helps: do not run this engine. */
  isRefused?: true;
}[] = [
  // Accepts packets with a foreign source address.
  { id: "CVE-2025-62820", severity: "high", first: [1, 9, 4], fixed: [1, 9, 7], isRefused: true },
  { id: "CVE-2026-25793", severity: "medium", first: [1, 7, 0], fixed: [1, 10, 3] },
];

/** The published vulnerabilities of an engine. A text without a version counts as the oldest engine. */
export function advisoriesFor(version: string): Advisory[] {
  return advisories
    .filter((each) => isAffected(parseEngineVersion(version), each))
    .map(({ id, severity, fixed }) => ({ id, severity, fixed_in: fixed.join(".") }));
}

/** Whether this engine must not run, because no configuration makes it safe. */
export function isRefusedEngine(engine: EngineVersion): boolean {
  return advisories.some((each) => each.isRefused === true && isAffected(engine, each));
}

export function isOlderThan(engine: EngineVersion, other: EngineVersion): boolean {
  return compareEngines(engine, other) < 0;
}

/** Text without a version counts as the oldest engine. */
export function parseEngineVersion(text: string | null | undefined): EngineVersion {
  const match = /^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?/.exec(text ?? "");
  return match === null ? oldestEngine : [Number(match[1]), Number(match[2]), Number(match[3] ?? 0)];
}

function isAffected(engine: EngineVersion, { first, fixed }: (typeof advisories)[number]): boolean {
  return compareEngines(engine, first) >= 0 && compareEngines(engine, fixed) < 0;
}

/** Negative if `a` is the older one, 0 if both are the same. */
function compareEngines(a: EngineVersion, b: EngineVersion): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
}
