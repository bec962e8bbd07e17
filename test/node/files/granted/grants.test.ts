// What an organization may take of a machine: every setting that takes something passes one decision, and overlay networks
// are compared with the machine at the registration and at each start.

import { describe, expect, test } from "bun:test";
import { ConfigOverrides } from "../../../../src/engine/allowed-settings.ts";
import { engineSettings } from "../../../support/engine-settings.ts";
import {
  grant,
  networkRefusal,
  overlapsWithMachine,
  takings,
} from "../../../../src/node/files/granted/grants.ts";
import type { Situation } from "../../../../src/node/files/granted/grant-asked.ts";
import type { Tenant } from "../../../../src/node/files/granted/machine-facts.ts";
import { noPermissions } from "../../../../src/node/files/permissions.ts";
import type { YamlMap, YamlValue } from "../../../../src/base/yaml.ts";
import { emptyMachine } from "../../../support/machine.ts";

/** Settings that take nothing of the machine beside the engine's own tunnels and its own interface, each with the reason. */
const harmless: Readonly<Record<string, string>> = {
  pki: "this program writes the paths; the rest decides whom the engine trusts in its own overlay",
  static_map: "how often names of lighthouses are resolved",
  punchy: "packets to peers",
  relay: "forwards packets of its own overlay",
  cipher: "of its tunnels",
  firewall: "of its own interface",
  handshakes: "times of its tunnels",
  tunnels: "times of its tunnels",
  timers: "times of its tunnels",
  logging: "what its own log holds",
  "sshd.enabled": "only false is allowed",
  preferred_ranges: "which of a peer's addresses it prefers",
  routines: "threads of the engine",
  "lighthouse.am_lighthouse": "answers in its own tunnels",
  "lighthouse.hosts": "whom it asks",
  "lighthouse.interval": "how often it reports",
  "lighthouse.remote_allow_list": "which addresses of peers it uses",
  "lighthouse.local_allow_list": "which addresses of this machine it tells its own lighthouses",
  "lighthouse.advertise_addrs": "which addresses it tells its own lighthouses",
  "listen.batch": "of its own socket",
  "listen.read_buffer": "of its own socket",
  "listen.write_buffer": "of its own socket",
  "listen.send_recv_error": "answers of its own socket",
  "listen.accept_recv_error": "answers of its own socket",
  "listen.udp_offloads": "of its own socket",
  "tun.disabled": "takes no interface",
  "tun.mtu": "of its own interface",
  "tun.tx_queue": "of its own interface",
  "tun.drop_local_broadcast": "of its own interface",
  "tun.drop_multicast": "of its own interface",
  "tun.use_system_route_table": "reads routes that root made",
  "tun.use_offloads": "of its own interface",
  "tun.routes": "never allowed",
  "stats.type": "which of the two listens or sends",
  "stats.interval": "how often",
  "stats.path": "of its own listener",
  "stats.namespace": "of its own metrics",
  "stats.subsystem": "of its own metrics",
  "stats.protocol": "how it sends",
  "stats.prefix": "of its own metrics",
  "stats.message_metrics": "which metrics",
  "stats.lighthouse_metrics": "which metrics",
};

const covers = (names: readonly string[], setting: string) =>
  names.filter((name) => setting === name || setting.startsWith(`${name}.`));

test("every setting that an organization can send passes the decision, or takes nothing of the machine", () => {
  const settings = engineSettings();
  for (const setting of settings) {
    const found = [...covers(Object.keys(takings), setting), ...covers(Object.keys(harmless), setting)];
    // A new setting: does it bind, write to or replace something of the machine? Then add it to `takings` in grants.ts.
    expect([setting, found.length]).toEqual([setting, 1]);
  }
  for (const name of [...Object.keys(takings), ...Object.keys(harmless)])
    expect([name, settings.some((setting) => covers([name], setting).length > 0)]).toEqual([name, true]);
  // What administrators can override is a part of it.
  expect(Object.keys(ConfigOverrides.entries).filter((key) => covers([key], key).length === 0)).toEqual([]);
});

const situation = (state: Partial<Situation["machine"]> = {}, permissions = {}): Situation => ({
  slug: "acme",
  machine: { ...emptyMachine, tenants: [], hosts: [], ...state },
  permissions: { ...noPermissions, ...permissions },
  networks: ["10.77.0.0/16"],
  addresses: ["10.77.0.5"],
});

/** For each taking, what must not be granted on an empty machine. */
const hostile: Readonly<Record<string, YamlMap>> = {
  static_host_map: { static_host_map: { "10.77.0.1": ["127.0.0.1:4242"] } },
  "tun.dev": { tun: { dev: "br0" } },
  "tun.unsafe_routes": { tun: { unsafe_routes: [{ route: "168.63.129.16/32", via: "10.77.0.9" }] } },
  "listen.host": { listen: { host: "127.0.0.1" } },
  "listen.port": { listen: { port: 53 } },
  "listen.so_mark": { listen: { so_mark: 51_820 } },
  "lighthouse.dns": { lighthouse: { dns: { host: "127.0.0.53", port: 53 } } },
  "lighthouse.serve_dns": { lighthouse: { serve_dns: true } },
  "stats.listen": { stats: { listen: "127.0.0.1:5432" } },
  "stats.host": { stats: { host: "127.0.0.1:11211" } },
};

test.each(Object.keys(takings))("%s is left out and named where nothing permits it", (name) => {
  const wanted = hostile[name] ?? {};
  const { granted, leftOut } = grant(wanted, situation());
  expect(leftOut).toHaveLength(1);
  expect(leftOut[0]?.key.startsWith(name.split(".")[0] ?? "")).toBe(true);
  const values = (value: YamlValue): YamlValue[] =>
    typeof value === "object" && value !== null ? Object.values(value).flatMap(values) : [value];
  for (const value of values(wanted)) expect(values(granted)).not.toContain(value);
});

test("grant does not change what it was given", () => {
  for (const wanted of Object.values(hostile)) {
    const before = structuredClone(wanted);
    grant(wanted, situation());
    expect(wanted).toEqual(before);
  }
});

describe("overlay networks", () => {
  const lan = { addresses: [{ device: "eth0", address: "10.77.3.4/24" }] };
  const whole = { addresses: [{ device: "eth0", address: "10.77.3.4/16" }] };
  const vpn = { routes: [{ device: "wg0", network: "10.0.0.0/8" }] };
  const part = { routes: [{ device: "eth0", network: "10.77.9.0/24" }] };
  const server = { nameServers: ["10.77.0.53"] };

  test.each([
    [
      "an equal network of an interface",
      whole,
      "it takes over 10.77.0.0/16, a network of this machine's interface eth0",
    ],
    [
      "a network of an interface inside it",
      lan,
      "it takes over 10.77.3.0/24, a network of this machine's interface eth0",
    ],
    ["a route inside it", part, "it takes over 10.77.9.0/24, a route of this machine through eth0"],
    ["a name server inside it", server, "it takes over 10.77.0.53/32, a name server of this machine"],
  ])("that take over %s are a collision at the registration, unless root permits it", (_, state, reason) => {
    expect(networkRefusal(situation(state))).toEqual({ code: "collision", network: "10.77.0.0/16", reason });
    expect(networkRefusal(situation(state, { overlaps: ["10.77.0.0/16"] }))).toBeUndefined();
    expect(networkRefusal(situation(state, { overlaps: ["10.78.0.0/16"] }))).toBeDefined();
  });

  test("inside a wider route are no collision, and are known as such", () => {
    expect(networkRefusal(situation(vpn))).toBeUndefined();
    expect(overlapsWithMachine(situation(vpn))).toEqual([
      {
        overlay: "10.77.0.0/16",
        with: "10.0.0.0/8",
        name: "a route of this machine through wg0",
        isWider: true,
      },
    ]);
  });

  test("inside or around a route of another organization are refused after the registration", () => {
    const tenant = (slug: string, networks: string[], routes: string[]): Tenant => ({
      slug,
      networks,
      addresses: [],
      routes,
      inForce: {},
    });
    const other = tenant("other", ["10.88.0.0/16"], ["10.0.0.0/8"]);
    const moved = { tenants: [tenant("acme", ["10.66.0.0/16"], []), other] };
    expect(networkRefusal(situation(moved))).toEqual({
      code: "untrusted_answer",
      network: "10.77.0.0/16",
      reason: 'it lies in 10.0.0.0/8, a route of the organization "other"',
    });
    expect(networkRefusal(situation(moved, { overlaps: ["10.77.0.0/16"] }))).toBeUndefined();
    // Whoever registers the machine accepts the overlay's network.
    expect(networkRefusal(situation({ tenants: [other] }))).toBeUndefined();
  });

  test("of the machine's own organizations are no networks of the machine", () => {
    const tenant = (slug: string, device: string): Tenant => ({
      slug,
      networks: ["10.77.0.0/16"],
      addresses: ["10.77.0.5"],
      routes: [],
      inForce: { device },
    });
    const own = {
      tenants: [tenant("acme", "nebula1"), tenant("other", "utun")],
      addresses: [
        { device: "nebula1", address: "10.77.1.1/16" },
        { device: "ov-third", address: "10.77.0.9/16" },
        // macOS chooses the name itself.
        { device: "utun7", address: "10.77.0.5/16" },
      ],
      routes: [{ device: "utun7", network: "10.77.8.0/24" }],
    };
    expect(overlapsWithMachine(situation(own))).toEqual([]);
  });
});
