// Single settings of a control plane's configuration that depend on this machine: interfaces, ports, listeners, paths.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { deviceName } from "../../../src/engine/interface-names.ts";
import type { Machine } from "../../../src/node/files/granted/machine-facts.ts";
import { readSent } from "../../../src/node/files/config/sent-config.ts";
import { stringifyYaml, type YamlMap } from "../../../src/base/yaml.ts";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { parsePermissions } from "../../../src/node/files/granted/permission-flags.ts";
import { writePermissions } from "../../../src/node/files/permissions.ts";
import { followDeps, makeControl } from "../../support/node.ts";
import { emptyMachine, machineAt, tcp, udp } from "../../support/machine.ts";
import { useSentConfig } from "../../support/sent-config.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const here = useSentConfig();
const { read, placeOther } = here;

const sent = (config: YamlMap, state: Partial<Machine> = {}) => {
  const { directory, slug } = here.organization;
  const {
    config: kept,
    leftOut,
    kept: inForce,
  } = readSent(stringifyYaml({ pki: {}, ...config }), {
    directory,
    slug,
    seal: undefined,
    hostCrt: read("host.crt"),
    machine: machineAt(here.world.root, state),
  });
  return { kept, keys: leftOut.map(({ key }) => key), inForce };
};

test("interface, port and network of another organization are left out", () => {
  placeOther("tun: {dev: neb7}\nlisten: {port: 4244}\nlighthouse: {dns: {port: 5353}}\n");
  const own = deviceName("acme");
  for (const dev of ["neb7", deviceName("other"), deviceName("third"), "lo", ".."]) {
    const { kept, keys } = sent({ tun: { dev } });
    expect([kept["tun"], keys]).toEqual([{ dev: "ov-acme" }, ["tun.dev"]]);
  }
  expect(sent({ tun: { dev: own } }).keys).toEqual([]);
  expect(sent({ tun: { dev: "ov-eight" } }).keys).toEqual([]);
  for (const port of [4244, 5353]) {
    expect(sent({ listen: { port } })).toMatchObject({
      kept: { listen: { port: 0 } },
      keys: ["listen.port"],
    });
    expect(sent({ lighthouse: { serve_dns: true, dns: { port } } }).keys).toEqual(["lighthouse.dns.port"]);
  }
  expect(sent({ listen: { port: 4245 } }).keys).toEqual([]);
  const routes = { unsafe_routes: [{ route: "10.77.3.0/24", via: "10.77.0.9" }] };
  expect(sent({ tun: routes }).kept["tun"]).toEqual({ dev: "ov-acme", unsafe_routes: [] });
});

test("without a usable name the interface has our own one, not the kernel's next tun0", () => {
  const damaged: YamlMap[] = [
    {},
    { tun: null },
    { tun: 7 },
    { tun: [] },
    { tun: { mtu: 1300 } },
    ...["ov-%d", "", "a/b", "x".repeat(16), null, 7, {}].map((dev) => ({ tun: { dev } })),
  ];
  for (const config of damaged)
    expect([config, sent(config).kept["tun"]]).toMatchObject([config, { dev: "ov-acme" }]);
  // macOS numbers its interfaces itself.
  for (const config of [{}, { tun: { dev: "utun9" } }, { tun: { dev: "eth0" } }])
    expect(sent(config, { namesInterfaces: false }).kept["tun"] ?? {}).toEqual({});
});

test("a machine whose kernel has no IPv6 listens on IPv4 instead of both", () => {
  const { directory, slug } = here.organization;
  const text = stringifyYaml({ pki: {}, listen: { host: "::", port: 4242 } });
  for (const [has, host] of [
    [true, "::"],
    [false, "0.0.0.0"],
  ] as const) {
    const { config, leftOut } = readSent(text, {
      directory,
      slug,
      seal: undefined,
      hostCrt: "",
      machine: machineAt(here.world.root, { hasIpv6: has }),
    });
    expect([config["listen"], leftOut]).toEqual([{ host, port: 4242 }, []]);
  }
});

test("an interface has a name of ours, one that root allowed, or the one in force", () => {
  for (const dev of ["eth1", "br0", "docker0", "wg0", "nebula1", "tun0", "vpn-acme", "utun9"])
    expect([dev, sent({ tun: { dev } }).keys]).toEqual([dev, ["tun.dev"]]);
  for (const dev of ["ov-acme", "ov-x"]) expect([dev, sent({ tun: { dev } }).keys]).toEqual([dev, []]);
  expect(sent({ tun: { dev: "ov-x" } }, { interfaces: ["ov-x"] }).keys).toEqual(["tun.dev"]);
  writePermissions(here.organization.directory, { interfaces: ["nebula1"] });
  expect(sent({ tun: { dev: "nebula1" } }).keys).toEqual([]);
  expect(sent({ tun: { dev: "nebula1" } }, { interfaces: ["nebula1"] }).keys).toEqual(["tun.dev"]);
  writeFileSync(join(here.organization.directory, "config.yml"), "tun: {dev: wg0}\n");
  expect(sent({ tun: { dev: "wg0" } }, { interfaces: ["wg0"] })).toMatchObject({
    keys: [],
    kept: { tun: { dev: "wg0" } },
    inForce: [{ key: "tun.dev wg0", flag: "allow-interfaces", entry: "wg0" }],
  });
});

test("the engine's port is free, none of ours, and 1024 or above unless root allowed it or it is in force", () => {
  const port = (number: number, state: Partial<Machine> = {}) => {
    const { kept, keys } = sent({ listen: { port: number } }, state);
    return [kept["listen"], keys];
  };
  const here443 = { sockets: () => [udp(443), udp(4242, "127.0.0.1"), tcp(4243)] };
  expect(port(443)).toEqual([{ port: 0 }, ["listen.port"]]);
  expect(port(4242, here443)).toEqual([{ port: 0 }, ["listen.port"]]);
  expect(port(4243, here443)).toEqual([{ port: 4243 }, []]);
  expect(port(0, here443)).toEqual([{ port: 0 }, []]);
  writePermissions(here.organization.directory, { listeners: [":443"] });
  expect(port(443)).toEqual([{ port: 443 }, []]);
  expect(port(443, here443)).toEqual([{ port: 0 }, ["listen.port"]]);
  writePermissions(here.organization.directory, { listeners: [] });
  writeFileSync(join(here.organization.directory, "config.yml"), "listen: {port: 443}\n");
  expect(sent({ listen: { port: 443 } }, here443)).toMatchObject({
    kept: { listen: { port: 443 } },
    keys: [],
    inForce: [{ key: "listen.port 443", flag: "allow-listeners", entry: ":443" }],
  });
});

test("a port that a program gave up is taken at the next turn", async () => {
  let sockets = [udp(4300)];
  here.world.system.machineState = async () => ({ ...emptyMachine, sockets: () => sockets });
  here.tamper((config) => ({ ...config, listen: { host: "0.0.0.0", port: 4300 } }));
  const { leftOut } = await here.sync();
  expect(leftOut).toEqual([
    { key: "listen.port", reason: "another program of this machine has taken UDP port 4300" },
  ]);
  expect(here.section("listen")["port"]).toBe(0);
  const system = { ...here.world.system, fetch: () => Promise.reject(new Error("away")) };
  const control = makeControl();
  const deps = followDeps({ ...here.world, system }, here.organization, control);
  const turn = () =>
    followOrganization(here.organization, deps, { signal: AbortSignal.timeout(5000), leftS: () => 0 });
  await turn();
  expect([here.section("listen")["port"], control.asked]).toEqual([0, []]);
  sockets = [];
  await turn();
  expect(here.section("listen")["port"]).toBe(4300);
  // Now the engine has it.
  sockets = [udp(4300)];
  await turn();
  expect([here.section("listen")["port"], control.asked.length]).toEqual([4300, 1]);
});

test("the engine listens on every address, or on one of this machine's interfaces", () => {
  const state = { addresses: [{ device: "eth0", address: "192.168.1.20/24" }] };
  const own = here.organization.config.ip_address;
  for (const host of ["0.0.0.0", "::", "192.168.1.20"])
    expect([host, sent({ listen: { host } }, state).keys]).toEqual([host, []]);
  for (const host of ["127.0.0.1", "127.0.0.53", "::1", "localhost", "192.168.1.21", own, "host.example"])
    expect([host, sent({ listen: { host } }, state)]).toMatchObject([
      host,
      { keys: ["listen.host"], kept: { listen: {} } },
    ]);
  expect(sent({ listen: { so_mark: 51820 } }).keys).toEqual(["listen.so_mark"]);
});

test("an address that the machine has no longer stays, with the permission that it would need", () => {
  const { directory } = here.organization;
  for (const [host, port, entry] of [
    ["192.168.1.21", 4300, "192.168.1.21:4300"],
    ["fd00::21", 0, "[fd00::21]:4242"],
  ] as const) {
    const listen = { host, port };
    writeFileSync(join(directory, "config.yml"), stringifyYaml({ listen }));
    expect(sent({ listen })).toMatchObject({
      kept: { listen },
      keys: [],
      inForce: [{ key: `listen.host ${host}`, flag: "allow-listeners", entry }],
    });
    const place = { configRoot: here.world.root, slug: "acme" };
    writePermissions(
      directory,
      parsePermissions((flag) => (flag === "allow-listeners" ? entry : undefined), place),
    );
    expect(sent({ listen })).toMatchObject({ kept: { listen }, keys: [], inForce: [] });
  }
});

test("port and interface that this organization already uses stay, even if another one has the same", () => {
  writeFileSync(join(here.organization.directory, "config.yml"), "tun: {dev: mine}\nlisten: {port: 4244}\n");
  placeOther("tun: {dev: theirs}\nlisten: {port: 4244}\n");
  expect(sent({ listen: { port: 4244 }, tun: { dev: "mine" } }).keys).toEqual([]);
});

const statsAt = (listen: string, state: Partial<Machine> = {}) =>
  sent({ stats: { type: "prometheus", interval: "10s", path: "/m", listen } }, state).keys;

test("metrics listen only on this node's own address, or where root allowed it", () => {
  const own = here.organization.config.ip_address;
  expect(statsAt(`${own}:9100`)).toEqual([]);
  // The port of another program, on all addresses or on this one.
  for (const sockets of [[tcp(9100)], [tcp(9100, own)]])
    expect(statsAt(`${own}:9100`, { sockets: () => sockets })).toEqual(["stats.listen"]);
  expect(statsAt(`${own}:9100`, { sockets: () => [tcp(9100, "192.0.2.1"), udp(9100)] })).toEqual([]);
  const others = ["127.0.0.1:5432", "127.9.9.9:1", "[::1]:9100", "localhost:9100", "192.0.2.7:9100"];
  for (const listen of [...others, "10.77.9.9:9100", "[2001:db8::1]:9100"])
    expect([listen, statsAt(listen)]).toEqual([listen, ["stats.listen"]]);
  const allowed = parsePermissions((flag) => (flag === "allow-listeners" ? others.join(",") : undefined), {
    configRoot: here.world.root,
    slug: "acme",
  });
  writePermissions(here.organization.directory, allowed);
  for (const listen of others) expect([listen, statsAt(listen)]).toEqual([listen, []]);
});

test("listeners beside the engine's own take no port of a service of the system, but 53 for names", () => {
  const own = here.organization.config.ip_address;
  const dnsAt = (port: number) => sent({ lighthouse: { serve_dns: true, dns: { host: own, port } } }).keys;
  // sshd and web servers listen on all addresses: after their next restart they would find the port taken.
  for (const port of [22, 80, 443, 1023]) {
    expect([port, statsAt(`${own}:${port}`)]).toEqual([port, ["stats.listen"]]);
    expect([port, dnsAt(port)]).toEqual([port, ["lighthouse.dns.port"]]);
  }
  expect([statsAt(`${own}:53`), dnsAt(53), statsAt(`${own}:1024`), dnsAt(1024)]).toEqual([
    ["stats.listen"],
    [],
    [],
    [],
  ]);
  writeFileSync(
    join(here.organization.directory, "config.yml"),
    stringifyYaml({ stats: { type: "prometheus", listen: `${own}:80` } }),
  );
  expect(
    sent({ stats: { type: "prometheus", interval: "10s", path: "/m", listen: `${own}:80` } }),
  ).toMatchObject({
    keys: [],
    inForce: [{ key: `stats ${own}:80`, flag: "allow-listeners", entry: `${own}:80` }],
  });
  writeFileSync(join(here.organization.directory, "config.yml"), "");
  writePermissions(here.organization.directory, { listeners: [`${own}:80`] });
  expect([statsAt(`${own}:80`), dnsAt(80), dnsAt(81)]).toEqual([[], [], ["lighthouse.dns.port"]]);
});

test("metrics on loopback that an older version accepted go, and those on the overlay stay", () => {
  const own = here.organization.config.ip_address;
  const inForce = (listen: string) =>
    writeFileSync(
      join(here.organization.directory, "config.yml"),
      stringifyYaml({ stats: { type: "prometheus", listen } }),
    );
  inForce("127.0.0.1:5432");
  expect(statsAt("127.0.0.1:5432")).toEqual(["stats.listen"]);
  inForce(`${own}:9100`);
  // The engine itself has the port.
  expect(statsAt(`${own}:9100`, { sockets: () => [tcp(9100, own)] })).toEqual([]);
});

test("metrics are not sent into services of this machine or of another organization", () => {
  const to = (host: string, state: Partial<Machine> = {}) =>
    sent({ stats: { type: "graphite", interval: "10s", host } }, state).keys;
  const state = { addresses: [{ device: "eth0", address: "192.168.1.20/24" }] };
  for (const host of ["192.168.1.21:2003", "203.0.113.5:2003", "10.77.0.200:2003"])
    expect([host, to(host, state)]).toEqual([host, []]);
  const own = here.organization.config.ip_address;
  for (const host of ["127.0.0.1:11211", "[::1]:25", "0.0.0.0:25", "localhost:25", "192.168.1.20:25"])
    expect([host, to(host, state)]).toEqual([host, ["stats.host"]]);
  for (const host of [`${own}:25`, "metrics.example:2003", "169.254.169.254:80"])
    expect([host, to(host, state)]).toEqual([host, ["stats.host"]]);
  writePermissions(here.organization.directory, { listeners: ["metrics.example:2003"] });
  expect(to("metrics.example:2003")).toEqual([]);
  placeOther("tun: {unsafe_routes: [{route: 192.168.50.0/24, via: 10.77.0.9}]}\n");
  // Its overlay, and a network behind one of its nodes.
  for (const host of ["10.77.0.200:2003", "192.168.50.7:2003"])
    expect([host, to(host)]).toEqual([host, ["stats.host"]]);
});

test("DNS listens only on this node's own address, or where root allowed it", () => {
  const own = here.organization.config.ip_address;
  const lighthouse = (host: string) => ({ serve_dns: true, dns: { host, port: 53 } });
  expect(sent({ lighthouse: lighthouse(own) })).toMatchObject({
    kept: { lighthouse: lighthouse(own) },
    keys: [],
  });
  expect(sent({ lighthouse: lighthouse(own) }, { sockets: () => [udp(53)] }).keys).toEqual([
    "lighthouse.dns.port",
  ]);
  const elsewhere = [
    "127.0.0.53",
    "127.0.0.1",
    "::1",
    "localhost",
    "0.0.0.0",
    "192.0.2.7",
    "10.77.9.9",
    "dns.example",
  ];
  for (const dns of [...elsewhere.map((host) => ({ host, port: 53 })), { port: 53 }, undefined]) {
    const { kept, keys } = sent({ lighthouse: { interval: 10, serve_dns: true, ...(dns && { dns }) } });
    expect([dns, kept["lighthouse"], keys]).toEqual([dns, { interval: 10 }, ["lighthouse.dns.host"]]);
  }
  expect(sent({ lighthouse: { serve_dns: false, dns: { port: 53 } } }).keys).toEqual([]);
  writePermissions(here.organization.directory, { listeners: ["127.0.0.1:53", ":53"] });
  expect(sent({ lighthouse: lighthouse("127.0.0.1") }).keys).toEqual([]);
  expect(sent({ lighthouse: { serve_dns: true, dns: { port: 53 } } }).keys).toEqual(["lighthouse.dns.host"]);
});

test("replaced paths of pki are named if they are not those that a control plane sends", () => {
  const ours = { ca: "ca.crt", cert: "host.crt", key: "host.key" };
  expect(sent({ pki: ours }).keys).toEqual([]);
  for (const [name, path] of [
    ["ca", "/etc/shadow"],
    ["cert", "../other/host.crt"],
    ["key", "-----BEGIN NEBULA X25519 PRIVATE KEY-----"],
  ] as const)
    expect(sent({ pki: { ...ours, [name]: path } }).keys).toEqual([`pki.${name}`]);
});

test("a damaged other organization does not prevent a synchronization", () => {
  placeOther("{{{ not YAML");
  writeFileSync(join(here.world.root, "other", "host.crt"), "no certificate");
  expect(sent({ tun: { unsafe_routes: [{ route: "192.168.1.0/24", via: "10.77.0.2" }] } }).keys).toEqual([]);
});

test("only the first 4096 routes are applied", () => {
  const routes = Array.from({ length: 5000 }, (_, at) => ({
    route: `10.200.${at >> 8}.${at & 255}/32`,
    via: "10.77.0.9",
  }));
  const { kept, keys } = sent({ tun: { unsafe_routes: routes } });
  expect(kept["tun"]).toMatchObject({ unsafe_routes: routes.slice(0, 4096) });
  expect(keys).toEqual(["tun.unsafe_routes"]);
});

test("a new node's interface has a readable name; a registered one keeps its name, and collisions get the hash", () => {
  const hash = deviceName("acme");
  const sentDevice = (slug: string, directory: string, more: Partial<Machine> = {}) => {
    const text = stringifyYaml({ pki: {}, tun: { dev: deviceName(slug) } });
    const { config, leftOut } = readSent(text, {
      directory,
      slug,
      seal: undefined,
      hostCrt: "",
      machine: { ...machineAt(dirname(directory)), ...more },
    });
    expect(leftOut).toEqual([]);
    return config["tun"];
  };
  using root = temporaryDirectory();
  const directory = join(root.path, "acme");
  mkdirSync(directory);
  writeFileSync(join(directory, "node-config.json"), "{}");
  expect(sentDevice("acme", directory)).toEqual({ dev: "ov-acme" });
  for (const dev of [hash, "ov-acme"]) {
    writeFileSync(join(directory, "config.yml"), stringifyYaml({ tun: { dev } }));
    expect(sentDevice("acme", directory)).toEqual({ dev });
  }
  // A setting that cannot be read does not hide the name; one of overrides.yml, such as foo, leaves none behind.
  const up = { interfaces: ["ov-acme"], addresses: [{ device: "ov-acme", address: "10.77.0.5/16" }] };
  for (const inForce of [{ tun: { dev: "ov-acme" }, listen: { port: "abc" } }, { tun: { dev: "foo" } }]) {
    writeFileSync(join(directory, "config.yml"), stringifyYaml(inForce));
    const { interfaces } = up;
    expect(sentDevice("acme", directory, inForce.listen === undefined ? {} : { interfaces })).toEqual({
      dev: "ov-acme",
    });
  }
  // In a damaged configuration no name can be read: the node's address says which interface is its own.
  writeFileSync(join(directory, "config.yml"), "");
  const tenants = [{ slug: "acme", networks: [], addresses: ["10.77.0.5"], routes: [], inForce: {} }];
  expect(sentDevice("acme", directory, { ...up, tenants })).toEqual({ dev: "ov-acme" });
  expect(sentDevice("acme", directory, { interfaces: ["ov-acme"] })).toEqual({ dev: hash });
  // 16 bytes, and a name that looks like the hash of another organization.
  for (const slug of ["thirteen-byte", "0123456789"])
    expect(sentDevice(slug, join(root.path, slug))).toEqual({ dev: deviceName(slug) });
  expect(sentDevice("twelve-bytes", join(root.path, "twelve-bytes"))).toEqual({ dev: "ov-twelve-bytes" });
  const other = join(root.path, "other");
  mkdirSync(other);
  writeFileSync(join(other, "node-config.json"), "{}");
  writeFileSync(join(other, "config.yml"), stringifyYaml({ tun: { dev: "ov-beta" } }));
  expect(sentDevice("beta", join(root.path, "beta"))).toEqual({ dev: deviceName("beta") });
});

test("handshakes are not sent into another organization's network, unless root allows it or it was so before", () => {
  placeOther("tun: {unsafe_routes: [{route: 192.168.50.0/24, via: 10.88.0.9}]}\n");
  const hubs = ["192.168.50.7:4242", "203.0.113.5:4242", "hub.example:4242"];
  const asked = () => sent({ static_host_map: { "10.77.0.1": hubs } });
  expect(asked().keys).toEqual(["static_host_map 10.77.0.1"]);
  expect(asked().kept["static_host_map"]).toEqual({ "10.77.0.1": hubs.slice(1) });
  writePermissions(here.organization.directory, { listeners: ["192.168.50.7:4242"] });
  expect(asked().keys).toEqual([]);
  writePermissions(here.organization.directory, { listeners: [] });
  const path = join(here.organization.directory, "config.yml");
  writeFileSync(path, stringifyYaml({ ...here.present(), static_host_map: { "10.77.0.1": hubs } }));
  expect(asked().keys).toEqual([]);
});
