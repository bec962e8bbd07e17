// A hostile control plane: its configuration is filtered before the engine reads it, the rest is applied, and settings
// that are left out are reported.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/errors.ts";
import { deviceName } from "../../../src/device-name.ts";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { generationFile, isApplied, readSyncState } from "../../../src/node/files/generations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { writeAllowedRoutes } from "../../../src/node/files/permissions.ts";
import { readSent, refuseNetworks } from "../../../src/node/files/sent-config.ts";
import { encodePem } from "../../../src/pki/bundle.ts";
import { makeCa, signCertificate } from "../../../src/pki/nebula.ts";
import { readYaml } from "../../../src/node/files/read-yaml.ts";
import { stringifyYaml, type YamlMap } from "../../../src/yaml.ts";
import { readStatusWithoutDaemon } from "../../../src/daemon/status-without-daemon.ts";
import { followEdge, makeControl, nodePath, registerByCommand } from "../../support/node.ts";
import { temporaryDirectory } from "../../support/temporary.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const { read, present, section, sync, tamper, placeOther } = here;

const evil = (config: YamlMap): YamlMap => ({
  ...config,
  pki: { ca: "/etc/shadow", key: "/etc/shadow", disconnect_invalid: false, blocklist: ["c".repeat(64)] },
  sshd: { enabled: true, listen: "0.0.0.0:2222" },
  local_api: { control: { path: "/run/evil.sock", group: "users" } },
  stats: { type: "prometheus", interval: "10s", listen: "192.0.2.7:9100", path: "/m" },
  timers: { connection_alive_interval: 86_400 },
  tun: {
    dev: "eth0",
    unsafe_routes: [
      { route: "0.0.0.0/1", via: "10.77.0.9" },
      { route: "128.0.0.0/1", via: "10.77.0.9" },
      { route: "192.168.7.0/24", via: "10.77.0.9" },
    ],
  },
  a_later_setting: { of: "a newer server" },
});

function expectFiltered(): void {
  expect(present()["sshd"]).toEqual({ enabled: false });
  expect(present()["local_api"]).toBeUndefined();
  expect(present()["stats"]).toBeUndefined();
  expect(present()["a_later_setting"]).toBeUndefined();
  expect(present()["timers"]).toEqual({});
  expect(section("pki")).toEqual({
    ca: join(here.organization.directory, "ca.crt"),
    cert: join(here.organization.directory, "host.crt"),
    key: join(here.organization.directory, "host.key"),
    disconnect_invalid: true,
    blocklist: ["c".repeat(64)],
  });
  expect(section("tun")["unsafe_routes"]).toEqual([{ route: "192.168.7.0/24", via: "10.77.0.9" }]);
}

test("dangerous and unknown settings are left out, and the blocklist is applied", async () => {
  tamper(evil);
  const { result, leftOut } = await sync();
  expect(result).toBe("changed");
  expectFiltered();
  expect(leftOut.map(({ key }) => key)).toEqual(
    expect.arrayContaining([
      "sshd.enabled",
      "sshd.listen",
      "local_api",
      "stats.listen",
      "timers.connection_alive_interval",
      "tun.unsafe_routes 0.0.0.0/1",
      "tun.unsafe_routes 128.0.0.0/1",
      "a_later_setting",
      "pki.disconnect_invalid",
    ]),
  );
});

test("registration is filtered too", async () => {
  tamper(evil);
  rmSync(here.organization.directory, { recursive: true });
  here.organization = await here.world.register({ name: "beta" });
  expectFiltered();
  expect(readSyncState(here.organization.directory)?.left_out).not.toEqual([]);
});

test("left out settings are reported once for each change, by sync-config, status and doctor, with exit 0", async () => {
  tamper(evil);
  const warnings = () => here.world.logged.filter((line) => line.includes("left out")).length;
  await sync();
  expect(warnings()).toBe(1);
  await sync();
  expect(warnings()).toBe(1);
  const { status, json, stdout } = await here.world.agent(["sync-config", "--json"]);
  expect([status, json]).toMatchObject([0, { organizations: [{ result: "same" }] }]);
  expect(stdout).toContain("0.0.0.0/1");
  const { status: team } = await readStatusWithoutDaemon(
    { configRoot: here.world.root, stateDb: "none" },
    "acme",
    here.world.system,
  );
  expect(team.left_out?.map(({ key }) => key)).toContain("local_api");
  const shown = await here.world.agent(["status"]);
  expect(shown.stdout).toContain("left out of the control plane's configuration");
  const examined = await here.world.agent(["doctor"]);
  expect(examined.stdout).toContain("left out of the control plane's configuration");
});

test("default route is applied while the machine's administrator allows it", async () => {
  tamper(evil);
  const allowed = await here.world.agent(["sync-config", "--allow-routes", "0.0.0.0/0"]);
  expect(allowed.status).toBe(0);
  expect(section("tun")["unsafe_routes"]).toHaveLength(3);
  await sync();
  expect(section("tun")["unsafe_routes"]).toHaveLength(3);
  // The permission survives a new registration.
  expect((await registerByCommand(here.world, ["--force"])).status).toBe(0);
  expect(section("tun")["unsafe_routes"]).toHaveLength(3);
  expect((await here.world.agent(["sync-config", "--allow-routes", "none"])).status).toBe(0);
  expect(section("tun")["unsafe_routes"]).toHaveLength(1);
  expect(existsSync(join(here.organization.directory, "permissions.json"))).toBe(false);
  expect((await registerByCommand(here.world, ["--force", "--allow-routes", "::/0,0.0.0.0/0"])).status).toBe(
    0,
  );
  expect(section("tun")["unsafe_routes"]).toHaveLength(3);
  expect((await here.world.agent(["sync-config", "--allow-routes", "everything"])).status).toBe(2);
});

for (const damage of ["", "nonsense", '{"routes":', '{"routes":[7]}', '{"routes":{}}']) {
  test(`permissions.json that holds ${JSON.stringify(damage)} allows nothing, and is named`, async () => {
    writeFileSync(join(here.organization.directory, "permissions.json"), damage);
    tamper(evil);
    const { leftOut } = await sync();
    expect(section("tun")["unsafe_routes"]).toHaveLength(1);
    expect(leftOut.map(({ key }) => key)).toContain("permissions.json");
  });
}

/** Leaves the files as an earlier version of this program did, which checked nothing. */
async function asLeftUnchecked(): Promise<void> {
  const server = stringifyYaml(
    evil(readYaml(readFileSync(generationFile(here.organization.directory, "server.yml"), "utf8"), "it")),
  );
  writeFileSync(generationFile(here.organization.directory, "server.yml"), server);
  writeFileSync(generationFile(here.organization.directory, "config.yml"), server);
  const { rules: _, left_out: __, ...state } = readSyncState(here.organization.directory) ?? {};
  writeFileSync(generationFile(here.organization.directory, "sync.json"), JSON.stringify(state));
}

test("configuration of an earlier version is checked and applied without the control plane", async () => {
  await asLeftUnchecked();
  here.world.system.fetch = () => Promise.reject(new Error("away"));
  const control = makeControl();
  const edge = followEdge(here.world, here.organization, control);
  await followOrganization(here.organization, edge, { signal: AbortSignal.timeout(5000), leftS: () => 0 });
  expectFiltered();
  expect(control.asked).toEqual(["restart"]);
  expect(isApplied(here.organization.directory)).toBe(true);
});

test("a roll back never leads to an unchecked configuration", async () => {
  await asLeftUnchecked();
  await here.world.api("POST", "/api/org/acme/groups/", { name: "a" });
  await here.world.api("PATCH", nodePath(here.organization), { groups: ["a"] });
  const control = makeControl();
  let count = 0;
  const failing = {
    ...control,
    restart: async () => {},
    alive: () => (++count === 1 ? Promise.reject(new AppError("engine_failed", "no")) : Promise.resolve()),
  };
  expect(await sync(failing)).toMatchObject({ result: "returned" });
  expectFiltered();
});

test("network in node-config.json is ignored", async () => {
  const { maskedNetworks, overlayNetworks } = await import("../../../src/node/files/networks.ts");
  const path = join(here.organization.directory, "node-config.json");
  writeFileSync(path, JSON.stringify({ ...here.organization.config, network: "10.88.0.0/16" }));
  expect(openOrganization(here.world.root, "acme").config.network).toBe("10.88.0.0/16");
  expect(overlayNetworks(here.organization.directory)).toEqual(["10.77.0.0/16"]);
  expect(maskedNetworks("")).toEqual([]);
});

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

/** A host.crt with this network. */
function certificateFor(network: string): string {
  const now = Math.floor(Date.now() / 1000);
  const times = { notBefore: now - 60, notAfter: now + 3600 };
  const limits = { networks: [], unsafeNetworks: [], groups: [], ...times };
  const ca = makeCa({ version: 1, name: "ca", ...limits });
  const publicKey = new Uint8Array(32).fill(7);
  return encodePem(
    signCertificate({ version: 1, name: "alpha", ...limits, networks: [network], publicKey }, ca),
  );
}

test("certificate with most of the internet or another organization's network is refused", () => {
  const place = (network: string) => ({
    directory: here.organization.directory,
    slug: "acme",
    hostCrt: certificateFor(network),
    attached: [],
  });
  for (const network of ["8.0.0.5/0", "8.0.0.5/1", "8.0.0.5/4"])
    expect(() => refuseNetworks(place(network))).toThrow("takes most of the internet");
  refuseNetworks(place("10.90.0.5/16"));
  placeOther("");
  writeFileSync(join(here.world.root, "other", "host.crt"), certificateFor("10.90.0.9/16"));
  expect(() => refuseNetworks(place("10.90.3.5/24"))).toThrow('which the organization "other" uses');
  // Two organizations that already had the same network keep it.
  writeFileSync(join(here.world.root, "other", "host.crt"), read("host.crt"));
  refuseNetworks({ ...place("10.77.0.1/16"), hostCrt: read("host.crt") });
});

test("a certificate cannot take over a network of this machine, or the control plane of another organization", () => {
  const { root } = here.world;
  placeOther("");
  writeFileSync(join(root, "other", "host.crt"), certificateFor("10.99.0.5/16"));
  const other = { api_base: "https://203.0.113.5", org_slug: "other", node_id: 1, api_token: "t" };
  writeFileSync(join(root, "other", "credentials.json"), JSON.stringify(other));
  const attached = [
    { device: "eth0", address: "192.168.7.4/24" },
    // Its own interface.
    { device: "ov-acme", address: "10.77.0.1/16" },
  ];
  const to = (network: string, directory = here.organization.directory) => {
    refuseNetworks({ directory, slug: "acme", hostCrt: certificateFor(network), attached });
  };
  expect(() => to("192.168.7.200/24")).toThrow("a network of this machine's interface eth0");
  expect(() => to("192.168.7.200/25")).toThrow("a network of this machine's interface eth0");
  expect(() => to("203.0.113.9/24")).toThrow("the control plane of other");
  expect(() => to("169.254.169.1/24")).toThrow("never routed through an overlay");
  to("10.91.0.5/16");
  to("10.77.3.5/24");
  // The kernel prefers the network of the interface.
  to("192.168.0.5/16");
  // Whoever registers this machine sees the network, but not the addresses of other control planes.
  const pending = join(root, ".acme.pending");
  to("192.168.7.200/24", pending);
  expect(() => to("203.0.113.9/24", pending)).toThrow("the control plane of other");
  writeAllowedRoutes(here.organization.directory, ["192.168.7.0/24"]);
  to("192.168.7.200/24");
});

test("directory in place of permissions.json allows nothing, and --allow-routes replaces it", async () => {
  mkdirSync(join(here.organization.directory, "permissions.json"));
  tamper(evil);
  const { leftOut } = await sync();
  expect(leftOut.map(({ key }) => key)).toContain("permissions.json");
  const words = ["sync-config", "--allow-routes", "0.0.0.0/0"];
  const planned = await here.world.agent([...words, "--dry-run"]);
  expect([planned.status, planned.stdout]).toMatchObject([0, expect.stringContaining("permissions.json")]);
  expect((await here.world.agent(words)).status).toBe(0);
  expect(section("tun")["unsafe_routes"]).toHaveLength(3);
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

test("messages about a hostile configuration stay short and printable", () => {
  const many: YamlMap = { ["x\u001b[2J\n".repeat(50)]: 1 };
  for (let at = 0; at < 5000; at++) many[`key${at}`] = at;
  const { leftOut } = readSent(stringifyYaml({ pki: {}, ...many }), {
    directory: here.organization.directory,
    slug: "acme",
    hostCrt: read("host.crt"),
    attached: [],
  });
  expect(JSON.stringify(leftOut).length).toBeLessThan(6000);
  expect(leftOut.length).toBeLessThan(30);
  expect(JSON.stringify(leftOut)).not.toContain("\\u001b");
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
