// How an import treats each setting of an engine's configuration. A setting that is missing here is reported as
// unknown; a test compares this with the settings that nodes accept, and with the engines' own examples.

import { brand } from "../../brand.ts";
import { ConfigOverrides, settingsIn } from "../../engine/allowed-settings.ts";

/** What the import does with a setting, in words; `used`: it is imported. */
export type Fate = { used: boolean; detail: string };

const imported = (detail: string): Fate => ({ used: true, detail });
const leftOut = (detail: string): Fate => ({ used: false, detail });

const overridable = leftOut("not imported: config_overrides of the organization or the node can set it");
const byMachine = leftOut("not imported: each machine decides it");
const fixed = leftOut("not imported: it is the same on all nodes here");
const unsupported = leftOut("not imported: there is no equal here");
const rules = leftOut(
  `not imported: create the rules that you need by \`${brand.executable} admin rule create\``,
);

/** What becomes of each key, by its path, and of all keys below it. */
const fates: ReadonlyMap<string, Fate> = new Map(
  Object.entries({
    "pki.ca": imported("CAs of the network (files are read by themselves)"),
    "pki.cert": imported("the host that the configuration is of"),
    "pki.key": leftOut("not read: private keys of hosts stay on their machines"),
    "pki.blocklist": imported("blocked certificates"),
    "pki.blacklist": imported("blocked certificates"),
    "pki.disconnect_invalid": fixed,
    "pki.initiating_version": leftOut("not imported: the organization's certificate version decides it"),
    static_host_map: imported("public addresses"),
    "lighthouse.hosts": imported("lighthouses"),
    "lighthouse.am_lighthouse": imported("whether the host is a lighthouse"),
    "lighthouse.advertise_addrs": imported("public address of the host, if no static_host_map has one"),
    "lighthouse.remote_allow_ranges": unsupported,
    "lighthouse.calculated_remotes": unsupported,
    "relay.relays": imported("relays"),
    "relay.am_relay": imported("whether the host is a relay"),
    "listen.port": leftOut("not imported: give it by --listen-port when the machine registers"),
    "listen.windows_bypass_wdf": unsupported,
    "listen.rebind_on_network_change": unsupported,
    cipher: imported("must be aes, as on all nodes here"),
    local_range: unsupported,
    sshd: leftOut("not imported: nodes have no shell of the engine"),
    "tun.unsafe_routes": imported("subnets of the nodes that the routes go through"),
    "tun.dev": byMachine,
    "tun.routes": unsupported,
    "tun.user": unsupported,
    "tun.network_category": unsupported,
    "tun.windows_bypass_wdf": unsupported,
    "tun.use_system_route_table_buffer_size": unsupported,
    "tun.pin_threads": unsupported,
    "tun.pin_threads_key": unsupported,
    "tun.cpu_affinity": unsupported,
    "logging.format": fixed,
    "logging.disable_timestamp": fixed,
    "logging.timestamp_format": fixed,
    "handshakes.query_buffer": unsupported,
    "handshakes.wait_rotation": unsupported,
    "timers.pending_deletion_interval": unsupported,
    "timers.requery_wait_duration": unsupported,
    counters: unsupported,
    local_api: byMachine,
    dns: byMachine,
    "firewall.inbound": rules,
    "firewall.outbound": rules,
    "firewall.default_local_cidr_any": unsupported,
    "firewall.conntrack.max_connections": unsupported,
  }),
);
/** Former forms of settings: a single value in place of a section. */
const formerSettings: ReadonlyMap<string, Fate> = new Map([
  ["punchy", overridable],
  ["punch_back", overridable],
]);

const overrides = new Set(settingsIn(ConfigOverrides));
const sections = new Set(
  [...fates.keys(), ...formerSettings.keys(), ...overrides].map((path) => path.split(".")[0]),
);

/** Whether a top-level key is one of the engine's. */
export const isEngineSection = (name: string): boolean => sections.has(name);

/** Undefined for a setting that no engine is known to have. */
export function fateOf(path: readonly string[]): Fate | undefined {
  const formerFate = formerSettings.get(path.join("."));
  if (formerFate !== undefined) return formerFate;
  for (let length = path.length; length > 0; length--) {
    const text = path.slice(0, length).join(".");
    const found = fates.get(text) ?? (overrides.has(text) ? overridable : undefined);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Settings whose keys are values, such as networks. */
const withValueKeys = new Set([
  "static_host_map",
  "lighthouse.remote_allow_list",
  "lighthouse.local_allow_list",
  "lighthouse.remote_allow_ranges",
  "lighthouse.calculated_remotes",
]);

/** Whether the keys below it are values, not settings. */
export const hasValueKeys = (path: readonly string[]): boolean => withValueKeys.has(path.join("."));
