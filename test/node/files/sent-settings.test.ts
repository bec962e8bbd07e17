// Single settings of a control plane's configuration that depend on this machine: interfaces, ports, listeners, paths.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deviceName } from "../../../src/device-name.ts";
import { readSent } from "../../../src/node/files/sent-config.ts";
import { stringifyYaml, type YamlMap } from "../../../src/yaml.ts";
import { useSentConfig } from "../../support/sent-config.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const here = useSentConfig();
const { read, placeOther } = here;

const sent = (config: YamlMap) => {
  const { directory, slug } = here.organization;
  const { config: kept, leftOut } = readSent(stringifyYaml({ pki: {}, ...config }), {
    directory,
    slug,
    hostCrt: read("host.crt"),
    attached: [],
  });
  return { kept, keys: leftOut.map(({ key }) => key) };
};

test("interface, port and network of another organization are left out", () => {
  placeOther("tun: {dev: neb7}\nlisten: {port: 4244}\nlighthouse: {dns: {port: 5353}}\n");
  const own = deviceName("acme");
  for (const dev of ["neb7", deviceName("other"), deviceName("third"), "lo", ".."]) {
    const { kept, keys } = sent({ tun: { dev } });
    expect([kept["tun"], keys]).toEqual([{ dev: "ov-acme" }, ["tun.dev"]]);
  }
  expect(sent({ tun: { dev: own } }).keys).toEqual([]);
  expect(sent({ tun: { dev: "neb8" } }).keys).toEqual([]);
  for (const port of [4244, 5353]) {
    expect(sent({ listen: { port } })).toMatchObject({
      kept: { listen: { port: 0 } },
      keys: ["listen.port"],
    });
    expect(sent({ lighthouse: { serve_dns: true, dns: { port } } }).keys).toEqual(["lighthouse.dns.port"]);
  }
  expect(sent({ listen: { port: 4245 } }).keys).toEqual([]);
  const routes = { unsafe_routes: [{ route: "10.77.3.0/24", via: "10.77.0.9" }] };
  expect(sent({ tun: routes }).kept["tun"]).toEqual({ unsafe_routes: [] });
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
      hostCrt: "",
      attached: [],
      hasIpv6: () => has,
    });
    expect([config["listen"], leftOut]).toEqual([{ host, port: 4242 }, []]);
  }
});

test("names of interfaces that other software may create later are left out", () => {
  const foreign =
    "eth1 enp3s0 eno1 enx001122334455 wlan0 wlp2s0 wwan0 docker0 br-0a1b2c3d4e5f virbr0 vethabc wg0 tailscale0";
  for (const dev of foreign.split(" "))
    expect([dev, sent({ tun: { dev } }).keys]).toEqual([dev, ["tun.dev"]]);
  for (const dev of ["nebula1", "tun0", "entry", "vpn-acme", "world", "ov-acme"])
    expect([dev, sent({ tun: { dev } }).keys]).toEqual([dev, []]);
  writeFileSync(join(here.organization.directory, "config.yml"), "tun: {dev: wg0}\n");
  expect(sent({ tun: { dev: "wg0" } }).keys).toEqual([]);
});

test("port and interface that this organization already uses stay, even if another one has the same", () => {
  writeFileSync(join(here.organization.directory, "config.yml"), "tun: {dev: mine}\nlisten: {port: 4244}\n");
  placeOther("tun: {dev: theirs}\nlisten: {port: 4244}\n");
  expect(sent({ listen: { port: 4244 }, tun: { dev: "mine" } }).keys).toEqual([]);
});

test("metrics listen only on loopback and on this node's own address", () => {
  const stats = (listen: string) =>
    sent({ stats: { type: "prometheus", interval: "10s", path: "/m", listen } }).keys;
  const own = here.organization.config.ip_address;
  for (const listen of ["127.0.0.1:9100", "127.9.9.9:1", "[::1]:9100", "localhost:9100", `${own}:9100`])
    expect(stats(listen)).toEqual([]);
  for (const listen of ["192.0.2.7:9100", "10.77.9.9:9100", "[2001:db8::1]:9100"])
    expect(stats(listen)).toEqual(["stats.listen"]);
});

test("DNS listens only on loopback and on this node's own address", () => {
  const own = here.organization.config.ip_address;
  const pick = ({ kept, keys }: ReturnType<typeof sent>) => [kept["lighthouse"], keys];
  for (const host of ["127.0.0.1", "127.9.9.9", "::1", "localhost", own]) {
    const lighthouse = { serve_dns: true, dns: { host, port: 53 } };
    expect(sent({ lighthouse })).toMatchObject({ kept: { lighthouse }, keys: [] });
  }
  for (const dns of [
    ...["0.0.0.0", "192.0.2.7", "10.77.9.9", "2001:db8::1", "dns.example"].map((host) => ({
      host,
      port: 53,
    })),
    { port: 53 },
    undefined,
  ])
    expect(pick(sent({ lighthouse: { interval: 10, serve_dns: true, ...(dns && { dns }) } }))).toEqual([
      { interval: 10 },
      ["lighthouse.dns.host"],
    ]);
  expect(sent({ lighthouse: { serve_dns: false, dns: { port: 53 } } }).keys).toEqual([]);
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
  expect(kept["tun"]).toEqual({ unsafe_routes: routes.slice(0, 4096) });
  expect(keys).toEqual(["tun.unsafe_routes"]);
});

test("a new node's interface has a readable name; a registered one keeps its name, and collisions get the hash", () => {
  const hash = deviceName("acme");
  const sentDevice = (slug: string, directory: string) => {
    const text = stringifyYaml({ pki: {}, tun: { dev: deviceName(slug) } });
    const { config, leftOut } = readSent(text, { directory, slug, hostCrt: "", attached: [] });
    expect(leftOut).toEqual([]);
    return config["tun"];
  };
  using root = temporaryDirectory();
  const directory = join(root.path, "acme");
  mkdirSync(directory);
  expect(sentDevice("acme", directory)).toEqual({ dev: "ov-acme" });
  for (const dev of [hash, "ov-acme"]) {
    writeFileSync(join(directory, "config.yml"), stringifyYaml({ tun: { dev } }));
    expect(sentDevice("acme", directory)).toEqual({ dev });
  }
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
