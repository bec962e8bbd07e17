// The allow-list of engine settings that a control plane may write.

import { expect, test } from "bun:test";
import * as v from "valibot";
import { allowedConfig } from "../../src/engine/filter-config.ts";
import { joinHostPort } from "../../src/base/ip.ts";
import { PublicAddress } from "../../src/protocol/values.ts";
import type { YamlMap } from "../../src/base/yaml.ts";

function allow(config: YamlMap): { config: YamlMap; keys: string[] } {
  const keys: string[] = [];
  return { config: allowedConfig(config, (key) => void keys.push(key)), keys };
}

const fingerprint = "a".repeat(64);

test("known settings are kept unchanged, and nothing is reported", () => {
  const config: YamlMap = {
    pki: {
      ca: "ca.crt",
      cert: "host.crt",
      key: "host.key",
      disconnect_invalid: true,
      blocklist: [fingerprint],
    },
    static_host_map: { "10.77.0.1": ["203.0.113.7:4242", "lighthouse.example:4242", "[2001:db8::1]:4242"] },
    lighthouse: { am_lighthouse: false, interval: 10, hosts: ["10.77.0.1"] },
    listen: { host: "0.0.0.0", port: 0 },
    tun: { dev: "ov-0", unsafe_routes: [{ route: "192.168.1.0/24", via: "10.77.0.2" }], routes: [] },
    firewall: {
      inbound: [
        { port: "any", proto: "icmp", host: "any" },
        { port: 22, proto: "tcp", groups: ["123", "a b"] },
      ],
      outbound: [{ port: "8000-8010", proto: "any", cidr: "10.0.0.0/8", local_cidr: "any" }],
    },
    sshd: { enabled: false },
    timers: { connection_alive_interval: 2 },
  };
  expect(allow(config)).toEqual({ config, keys: [] });
});

const dangerous: [string, YamlMap][] = [
  ["sshd.enabled", { sshd: { enabled: true } }],
  ["sshd.listen", { sshd: { enabled: false, listen: "0.0.0.0:2222" } }],
  ["sshd.authorized_users", { sshd: { authorized_users: [{ user: "root", keys: ["ssh-ed25519 A"] }] } }],
  ["sshd", { sshd: "yes" }],
  ["local_api", { local_api: { control: { path: "/etc/cron.d/x", group: "users" } } }],
  ["pki.blacklist", { pki: { blacklist: [] } }],
  ["pki.disconnect_invalid", { pki: { disconnect_invalid: "no" } }],
  ["pki.blocklist[0]", { pki: { blocklist: ["nonsense"] } }],
  ["pki.blocklist", { pki: { blocklist: "none" } }],
  ["logging.level", { logging: { level: "shouting" } }],
  ["logging.file", { logging: { file: "/etc/passwd" } }],
  ["timers.connection_alive_interval", { timers: { connection_alive_interval: 0 } }],
  ["timers.connection_alive_interval", { timers: { connection_alive_interval: 31 } }],
  ["timers.connection_alive_interval", { timers: { connection_alive_interval: 1.5 } }],
  ["tun.dev", { tun: { dev: "../../x" } }],
  ["tun.routes[0]", { tun: { routes: [{ route: "0.0.0.0/0", mtu: 1300 }] } }],
  ["tun.unsafe_routes[0]", { tun: { unsafe_routes: [{ route: "nonsense", via: "10.77.0.2" }] } }],
  [
    "tun.unsafe_routes[0]",
    { tun: { unsafe_routes: [{ route: "10.1.0.0/16", via: "10.77.0.2", run: "x" }] } },
  ],
  ["tun.cpu_affinity", { tun: { cpu_affinity: [0] } }],
  ["lighthouse.local_allow_list", { lighthouse: { local_allow_list: { interfaces: { "(a+)+$": true } } } }],
  ["lighthouse.calculated_remotes", { lighthouse: { calculated_remotes: {} } }],
  ["stats", { stats: { type: "prometheus", interval: "10s", listen: ":9100", path: "/m" } }],
  ["stats", { stats: { type: "prometheus", interval: "10s", listen: "0:9100", path: "/m" } }],
  ["stats", { stats: { type: "prometheus", interval: "10s", listen: "[::]:9100", path: "/m" } }],
  ["stats", { stats: { type: "prometheus", interval: "10s", listen: "host.example:9100", path: "/m" } }],
  ["static_host_map.nonsense", { static_host_map: { nonsense: ["192.0.2.1:4242"] } }],
  ["static_host_map.10.77.0.1[0]", { static_host_map: { "10.77.0.1": [":4242"] } }],
  ["firewall.inbound[0]", { firewall: { inbound: [{ port: "any", proto: "any", groups: [123] }] } }],
  ["firewall.inbound[0]", { firewall: { inbound: [{ port: "any", proto: "any", host: "a", until: "x" }] } }],
  ["cipher", { cipher: "none" }],
  ["punchy", { punchy: true }],
  ["dns", { dns: {} }],
  ["handshakes.try_interval", { handshakes: { try_interval: "0s" } }],
  ["firewall.conntrack", { firewall: { conntrack: { udp_timeout: "0s" } } }],
  ["firewall.conntrack", { firewall: { conntrack: { tcp_timeout: "2562047h", udp_timeout: "1s" } } }],
  ["firewall.conntrack", { firewall: { conntrack: { default_timeout: "1ms" } } }],
  // The engine sends such a line to a service of this machine.
  [
    "stats",
    {
      stats: {
        type: "graphite",
        interval: "1s",
        protocol: "tcp",
        host: "127.0.0.1:6379",
        prefix: "EVAL \"redis.call('flushall')\" 0 ",
      },
    },
  ],
  ["static_map.cadence", { static_map: { cadence: "0s" } }],
  ["__proto__x", { __proto__x: {} }],
  ["constructor", { constructor: {} }],
];

for (const [key, config] of dangerous) {
  test(`${JSON.stringify(config)} is left out and named`, () => {
    const rest: YamlMap = { cipher: "aes", relay: { am_relay: false } };
    const { config: kept, keys } = allow({ ...rest, ...config });
    expect(keys).toEqual([key]);
    const [section = ""] = Object.keys(config);
    const left = Object.hasOwn(kept, section) ? kept[section] : {};
    expect(JSON.stringify(left ?? {})).not.toMatch(
      /root|cron|2222|9100|0\.0\.0\.0|nonsense|interfaces|123|until|EVAL/,
    );
    expect(kept["relay"]).toEqual({ am_relay: false });
  });
}

test("only the invalid items of a list are left out", () => {
  const { config } = allow({
    pki: { blocklist: [fingerprint, 7, "x", "b".repeat(64)] },
    static_host_map: { "10.77.0.1": ["192.0.2.1:4242", "999.1.1.1:1"], x: [] },
  });
  expect(config).toEqual({
    pki: { blocklist: [fingerprint, "b".repeat(64)] },
    static_host_map: { "10.77.0.1": ["192.0.2.1:4242"] },
  });
});

test("every public address that the API accepts is one that nodes accept, and none is IPv4 in disguise", () => {
  const accepted = (address: string) => v.is(PublicAddress, address);
  const kept = (address: string) => {
    const { keys } = allow({ static_host_map: { "10.77.0.1": [joinHostPort(address, 4242)] } });
    return keys.length === 0;
  };
  const usual = [
    "192.0.2.1",
    "2001:db8::9",
    "FD00::1",
    "::1",
    "hub.example.org",
    "a.b-c",
    "64:ff9b::c000:201",
    "ffff::1:2",
  ];
  expect(usual.filter((each) => !accepted(each) || !kept(each))).toEqual([]);
  const odd = [
    "::ffff:10.77.0.1",
    "::ffff:a4d:1",
    "0:0:0:0:0:FFFF:a4d:1",
    "64:ff9b::192.0.2.1",
    "fe80::1%eth0",
  ];
  expect(odd.filter(accepted)).toEqual([]);
});
