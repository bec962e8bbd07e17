// The import knows every setting of the engines: each is used, or it says why not.

import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { engineSettings } from "../../support/engine-settings.ts";
import { fateOf } from "../../../src/server/import-export/engine-keys.ts";
import { readConfigs } from "../../../src/server/import-export/hand-config.ts";
import { readPlacedYaml } from "../../../src/server/import-export/placed-yaml.ts";

/** Of the engines' examples and source from 1.6 to 1.12, also former names. */
const ofEngines =
  `pki.ca pki.cert pki.key pki.blocklist pki.blacklist pki.disconnect_invalid pki.initiating_version
static_host_map static_map.cadence static_map.network static_map.lookup_timeout
lighthouse.am_lighthouse lighthouse.hosts lighthouse.interval lighthouse.serve_dns lighthouse.dns.host lighthouse.dns.port
lighthouse.remote_allow_list lighthouse.remote_allow_ranges lighthouse.local_allow_list lighthouse.advertise_addrs
lighthouse.calculated_remotes
listen.host listen.port listen.batch listen.read_buffer listen.write_buffer listen.send_recv_error listen.accept_recv_error
listen.so_mark listen.windows_bypass_wdf listen.rebind_on_network_change listen.udp_offloads
routines punchy punch_back punchy.punch punchy.respond punchy.delay punchy.respond_delay punchy.target_all_remotes
relay.relays relay.am_relay relay.use_relays cipher preferred_ranges local_range
tun.disabled tun.dev tun.drop_local_broadcast tun.drop_multicast tun.tx_queue tun.mtu tun.routes tun.unsafe_routes
tun.use_system_route_table tun.use_system_route_table_buffer_size tun.network_category tun.windows_bypass_wdf
tun.use_offloads tun.pin_threads tun.pin_threads_key tun.cpu_affinity
firewall.inbound firewall.outbound firewall.inbound_action firewall.outbound_action firewall.default_local_cidr_any
firewall.conntrack.tcp_timeout firewall.conntrack.udp_timeout firewall.conntrack.default_timeout
firewall.conntrack.routine_cache_timeout firewall.conntrack.max_connections tun.user
handshakes.try_interval handshakes.retries handshakes.trigger_buffer handshakes.query_buffer
tunnels.drop_inactive tunnels.inactivity_timeout
logging.level logging.format logging.disable_timestamp logging.timestamp_format
sshd.enabled sshd.listen sshd.host_key sshd.authorized_users sshd.trusted_cas sshd.sandbox_dir
stats.type stats.interval stats.listen stats.path stats.namespace stats.subsystem stats.protocol stats.host stats.prefix
stats.message_metrics stats.lighthouse_metrics
timers.connection_alive_interval timers.pending_deletion_interval timers.requery_wait_duration
counters.try_promote counters.requery_every_packets local_api.control.enabled local_api.control.socket dns.identity`.split(
    /\s+/,
  );

describe("each setting of an engine is used by the import, or has a reason why not", () => {
  /** Sections of sections, such as lighthouse.dns, of which the parts are listed. */
  const parts = (path: string) => ofEngines.filter((each) => each.startsWith(`${path}.`));
  test.each([...new Set([...ofEngines, ...engineSettings().filter((path) => parts(path).length === 0)])])(
    "%s",
    (path) => {
      expect(fateOf(path.split("."))?.detail).toMatch(/\w/);
    },
  );

  test("a setting that no engine has is reported as such", () => {
    for (const path of ["pki.blockist", "lighthouse.host", "tun.mttu", "firewall_x.inbound", "constructor"])
      expect(fateOf(path.split("."))).toBeUndefined();
  });
});

test("every key of a file is reported with its line", () => {
  const text = `pki:
  ca: ca.crt
  blockist: [aa]
lighthouse:
  dns: {host: 10.0.0.1}
  hosts:
    - 10.42.0.1
firewall:
  inbound:
    - {port: any, proto: any, host: any}
tun:
extra: {more: 1}
`;
  const { keys } = readConfigs([{ file: "a.yml", root: readPlacedYaml(text, "a.yml") }]);
  expect(keys.map(({ line, key, used }) => `${line} ${key} ${used}`)).toEqual([
    "2 pki.ca true",
    "3 pki.blockist false",
    "5 lighthouse.dns.host false",
    "6 lighthouse.hosts true",
    "9 firewall.inbound false",
    "11 tun false",
    "12 extra.more false",
  ]);
  expect(keys.map(({ detail }) => detail).filter((each) => each.includes("no engine"))).toHaveLength(2);
});

test("the example of an engine that is installed holds no unknown setting", () => {
  const path = "/usr/share/doc/nebula/examples/config.yml";
  if (!existsSync(path)) return;
  const root = readPlacedYaml(readFileSync(path, "utf8"), "config.yml");
  const { keys } = readConfigs([{ file: "config.yml", root }]);
  expect(keys.length).toBeGreaterThan(25);
  expect(keys.filter(({ detail }) => detail.includes("no engine"))).toEqual([]);
});
