import { describe, expect, test } from "bun:test";
import * as v from "valibot";
import {
  makeConfigView,
  type ConfigNode,
  type ConfigSource,
} from "../../../src/server/config/config-view.ts";
import { portWithOverrides } from "../../../src/server/config/config.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { deviceName } from "../../../src/engine/interface-names.ts";
import { listenPlaceIn } from "../../../src/engine/listen-place.ts";
import { ConfigOverrides } from "../../../src/engine/allowed-settings.ts";
import { allowedConfig } from "../../../src/engine/filter-config.ts";
import { mergeYaml, type YamlMap } from "../../../src/base/yaml.ts";
import { lighthouse, plain, source, renderConfig } from "../../support/config-source.ts";

function parsed(change: Partial<ConfigSource> = {}, node: Partial<ConfigNode> = {}) {
  return Bun.YAML.parse(renderConfig(makeConfigView({ ...source, ...change }), { ...plain, ...node }).text);
}

describe("config.yml", () => {
  test("is one document with all required settings", () => {
    expect(parsed()).toMatchObject({
      pki: {
        ca: "ca.crt",
        cert: "host.crt",
        key: "host.key",
        disconnect_invalid: true,
        blocklist: ["aa".repeat(32)],
      },
      static_host_map: { "10.77.0.1": ["203.0.113.9:4243"] },
      lighthouse: { am_lighthouse: false, hosts: ["10.77.0.1"] },
      relay: { am_relay: false, relays: ["10.77.0.1"] },
      listen: { host: "0.0.0.0", port: 0 },
      punchy: { punch: true },
      tun: { dev: deviceName("acme"), unsafe_routes: [] },
      firewall: { inbound: [{ port: "443", proto: "tcp", group: "123" }], outbound: [] },
      logging: { format: "json" },
      timers: { connection_alive_interval: 1 },
    });
  });

  test("each recheck of open flows changes a timeout by a millisecond, overrides included", () => {
    const timeoutOf = (flowRechecks: number, default_timeout?: string) => {
      const overrides = default_timeout === undefined ? {} : { firewall: { conntrack: { default_timeout } } };
      const { text } = renderConfig(makeConfigView({ ...source, overrides, flowRechecks }), plain);
      return /default_timeout: "(.*)"/.exec(text)?.[1];
    };
    expect(timeoutOf(0)).toBe("10m");
    expect([1, 2, 999, 1000, 1001].map((rechecks) => timeoutOf(rechecks))).toEqual([
      "600001ms",
      "600002ms",
      "600999ms",
      "600000ms",
      "600001ms",
    ]);
    expect(timeoutOf(1, "2h")).toBe("7200001ms");
    // Nodes accept nine digits.
    expect(timeoutOf(999, "999999999h")).toBe("999000999ms");
    expect(parsed({ flowRechecks: 1 })).toMatchObject({ firewall: { conntrack: { tcp_timeout: "12m" } } });
  });

  test("an empty blocklist is an empty list", () => {
    expect(parsed({ blocklist: [] })).toMatchObject({ pki: { blocklist: [] } });
  });

  test("a lighthouse queries no lighthouse and binds its public port", () => {
    expect(parsed({}, { ...lighthouse })).toMatchObject({
      lighthouse: { am_lighthouse: true, hosts: [] },
      relay: { am_relay: true, relays: [] },
      static_host_map: {},
      listen: { port: 4243 },
    });
  });

  test("a lighthouse without a public address is omitted: the engine would not start", () => {
    const hidden = { ...lighthouse, publicIp: null };
    expect(parsed({ hubs: [hidden] })).toMatchObject({ lighthouse: { hosts: [] }, static_host_map: {} });
  });

  test("IPv6 on the underlay opens the socket for both families", () => {
    expect(parsed({ hubs: [{ ...lighthouse, publicIp: "2001:db8::9" }] })).toMatchObject({
      static_host_map: { "10.77.0.1": ["[2001:db8::9]:4243"] },
      listen: { host: "::" },
    });
  });

  test.each([
    ["192.0.2.9", "0.0.0.0", "ip4"],
    ["2001:db8::9", "::", "ip"],
    // It may have A records, AAAA records or both, and other ones for other nodes.
    ["hub.example.org", "::", "ip"],
  ])("a lighthouse at %s: nodes and the lighthouse itself listen on %s", (publicIp, host, network) => {
    const hub = { ...lighthouse, publicIp };
    for (const overlayVersion of ["1.6.1", "1.10.3", "1.11.1", "1.12.0"]) {
      const hasMap = overlayVersion !== "1.6.1";
      for (const node of [{}, { ...hub }]) {
        const config = parsed({ hubs: [hub] }, { ...node, overlayVersion, pinsDefaults: false });
        expect(config).toMatchObject({ listen: { host }, ...(hasMap ? { static_map: { network } } : {}) });
      }
    }
  });

  test("a name restarts no engine of a node that an earlier version registered", () => {
    const pinned = (publicIp: string) =>
      parsed({ hubs: [{ ...lighthouse, publicIp }] }, { overlayVersion: "1.11.1", pinsDefaults: true });
    expect(pinned("hub.example.org")).toMatchObject({
      listen: { host: "0.0.0.0" },
      static_map: { network: "ip4" },
    });
    expect(pinned("2001:db8::9")).toMatchObject({ listen: { host: "::" }, static_map: { network: "ip" } });
  });

  test("subnets of another node become routes through it, own subnets do not", () => {
    const router = { ...lighthouse, id: 7, ip: "10.77.0.7", subnets: ["192.168.9.0/24", "fd99::/64"] };
    expect(parsed({ hubs: [router] })).toMatchObject({
      tun: { unsafe_routes: [{ route: "192.168.9.0/24", via: "10.77.0.7" }] },
    });
    expect(parsed({ hubs: [router] }, { id: 7 })).toMatchObject({ tun: { unsafe_routes: [] } });
  });

  test("the keys depend on the engine's version", () => {
    const old = parsed({}, { overlayVersion: "1.6.1" });
    expect(old).not.toHaveProperty("tunnels");
    expect(old).not.toHaveProperty("static_map");
    const router = { overlayVersion: "1.11.0", subnets: ["192.168.9.0/24"] };
    expect(parsed({ certificateVersion: "both" }, router)).toMatchObject({
      pki: { initiating_version: 1 },
      timers: { connection_alive_interval: 2 },
      firewall: { inbound: [{ local_cidr: "any" }] },
    });
    expect(parsed({ aliveInterval: 30 }, { overlayVersion: "1.11.0" })).toMatchObject({
      timers: { connection_alive_interval: 30 },
    });
  });

  test("overrides of the node win over those of the organization, maps are merged", () => {
    const config = parsed(
      { overrides: { tun: { mtu: 1400 }, punchy: { respond: false } } },
      { configOverrides: { tun: { mtu: 1280 } } },
    );
    expect(config).toMatchObject({
      tun: { mtu: 1280, dev: deviceName("acme") },
      punchy: { punch: true, respond: false },
    });
  });

  test("no text can inject YAML", () => {
    const nasty = '"\npki:\n  ca: evil\n# \u2028\u0085';
    const config = parsed({ hubs: [{ ...lighthouse, ip: nasty, publicIp: nasty }] });
    expect(config).toMatchObject({ pki: { ca: "ca.crt" }, lighthouse: { hosts: [nasty] } });
  });

  test("the digest changes exactly when the text changes", () => {
    const seen = new Map<string, string>();
    const variants: [Partial<ConfigSource>, Partial<ConfigNode>][] = [
      [{}, {}],
      [{ blocklist: [] }, {}],
      [{ hubs: [] }, {}],
      [{}, { listenPort: 5000 }],
      [{ nodeNames: new Map([[9, "unmentioned"]]) }, {}],
      [{}, { name: "another" }],
    ];
    for (const [change, node] of variants) {
      const { text, digest } = renderConfig(makeConfigView({ ...source, ...change }), { ...plain, ...node });
      expect(seen.get(text) ?? digest).toBe(digest);
      seen.set(text, digest);
    }
    expect(new Set(seen.values()).size).toBe(seen.size);
    expect(seen.size).toBe(4);
  });
});

test("a device name is valid on Linux and differs by organization", () => {
  expect(deviceName("a".repeat(40)).length).toBeLessThanOrEqual(15);
  expect(deviceName("acme")).not.toBe(deviceName("acme2"));
});

test("a node that peers must find has a fixed port", () => {
  const portOf = (node: ConfigNode) => portWithOverrides(node, {});
  expect(portOf({ ...plain, listenPort: 7 })).toBe(7);
  expect(portOf(plain)).toBe(0);
  expect(portOf({ ...plain, isLighthouse: true })).toBe(4242);
  expect(portOf({ ...plain, publicIp: "203.0.113.1", externalPort: 999 })).toBe(999);
});

test("an engine listens where the overrides of the node say, else those of its organization", () => {
  const ofAll = { listen: { host: "192.0.2.1", port: 7 } };
  const own = { ...plain, configOverrides: { listen: { host: "::" } } };
  const placeOf = (node: ConfigNode) =>
    listenPlaceIn(readYaml(renderConfig(makeConfigView({ ...source, overrides: ofAll }), node).text, ""));
  expect(placeOf(plain)).toEqual({ host: "192.0.2.1", port: 7 });
  expect(placeOf(own)).toEqual({ port: 7 });
  for (const node of [plain, own]) expect(portWithOverrides(node, ofAll)).toBe(7);
});

describe("config_overrides", () => {
  test.each([
    { pki: { disconnect_invalid: false } },
    { pki: {} },
    { sshd: { enabled: true } },
    { static_host_map: {} },
    { lighthouse: { hosts: [] } },
    { lighthouse: { am_lighthouse: true } },
    { firewall: { inbound: [] } },
    { tun: { unsafe_routes: [] } },
    { tun: { dev: "far-too-long-a-name" } },
    { timers: { connection_alive_interval: 31 } },
    { punchy: true },
    { lighthouse: { remote_allow_list: [] } },
    { logging: { level: "loud" } },
    { unknown: 1 },
  ])("%p is refused", (overrides) => expect(v.safeParse(ConfigOverrides, overrides).success).toBe(false));

  test.each([
    {},
    { tun: { mtu: 1400 } },
    { logging: { level: "debug" } },
    { preferred_ranges: ["192.168.0.0/16"] },
    { lighthouse: { remote_allow_list: { "10.0.0.0/8": false, "0.0.0.0/0": true } } },
    { stats: { type: "prometheus", interval: "10s", listen: "127.0.0.1:8080", path: "/metrics" } },
  ])("%p is accepted", (overrides) => expect(v.safeParse(ConfigOverrides, overrides).success).toBe(true));

  const renderings: [string, Partial<ConfigSource>, Partial<ConfigNode>][] = [
    ["a plain node", {}, {}],
    [
      "a lighthouse and relay",
      {},
      { isLighthouse: true, isRelay: true, publicIp: "2001:db8::7", externalPort: 4250 },
    ],
    ["a node on macOS", {}, { platform: "darwin-arm64" }],
    [
      "a router",
      { hubs: [{ ...lighthouse, publicIp: "lh.example", subnets: ["192.168.9.0/24", "fd00:9::/64"] }] },
      { subnets: ["192.168.1.0/24"] },
    ],
    ["certificates of both versions", { certificateVersion: "both", aliveInterval: 30 }, {}],
    ["certificates of version 2", { certificateVersion: 2 }, {}],
    [
      "overrides of every kind",
      {
        overrides: {
          listen: { host: "::", batch: 64, so_mark: 7, send_recv_error: "never" },
          lighthouse: {
            serve_dns: true,
            dns: { host: "10.77.0.1", port: 53 },
            advertise_addrs: ["203.0.113.1:4242"],
          },
          stats: { type: "graphite", interval: "10s", host: "127.0.0.1:2003", protocol: "tcp" },
          preferred_ranges: ["192.168.0.0/16"],
        },
      },
      {
        configOverrides: {
          routines: 4,
          tun: { mtu: 1400, use_system_route_table: true },
          logging: { level: "debug" },
        },
      },
    ],
  ];
  for (const [what, change, node] of renderings) {
    test(`nodes accept everything that is rendered for ${what}`, () => {
      for (const overlayVersion of [null, "1.6.1", "1.7.2", "1.9.7", "1.10.3", "1.11.1", "1.12.0"]) {
        const text = renderConfig(makeConfigView({ ...source, ...change }), {
          ...plain,
          ...node,
          overlayVersion,
        }).text;
        const config = v.parse(v.record(v.string(), v.any()), Bun.YAML.parse(text));
        const left: string[] = [];
        expect(allowedConfig(config, (key) => void left.push(key))).toEqual(config);
        expect(left).toEqual([]);
      }
    });
  }

  test("merging changes neither side", () => {
    const base = { tun: { mtu: 1300 } };
    expect(mergeYaml(base, { tun: { mtu: 1400 }, routines: 2 })).toEqual({ tun: { mtu: 1400 }, routines: 2 });
    expect(base).toEqual({ tun: { mtu: 1300 } });
  });
});

test("an excess names the limit that a configuration exceeds, and is unset just below it", () => {
  const excess = (change: Partial<ConfigSource>, node: Partial<ConfigNode> = {}) =>
    renderConfig(makeConfigView({ ...source, ...change }), { ...plain, ...node }).excess;
  const print = (index: number) => index.toString(16).padStart(64, "0");
  const blocklist = Array.from({ length: 100_000 }, (_, index) => print(index));
  expect(excess({})).toBeUndefined();
  expect(excess({ blocklist })).toBeUndefined();
  expect(excess({ blocklist: [...blocklist, ...blocklist] })).toMatch(/^\d+ bytes; the maximum is 8388608$/);
  const ranges = (count: number) => ({
    overrides: { preferred_ranges: Array<string>(count).fill("10.0.0.0/8") },
  });
  expect(excess(ranges(199_000))).toBeUndefined();
  expect(excess(ranges(200_000))).toMatch(/^20\d{4} YAML nodes; the maximum is 199900$/);
  let deep: YamlMap = {};
  for (let level = 0; level < 40; level++) deep = { deep };
  expect(excess({}, { configOverrides: { deep } })).toBe("42 levels; the maximum is 32");
});

test("nodes accept the largest configuration that has no excess", () => {
  const count = 199_700;
  const overrides = { preferred_ranges: Array<string>(count).fill("10.0.0.0/8") };
  const { text, excess } = renderConfig(makeConfigView({ ...source, overrides }), plain);
  expect(excess).toBeUndefined();
  expect(readYaml(text, "It")["preferred_ranges"]).toHaveLength(count);
});
