// A hostile control plane: its configuration is filtered before the engine reads it, the rest is applied, and settings
// that are left out are reported.

import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../../src/base/errors.ts";
import { followOrganization } from "../../../../src/node/contact/follow.ts";
import { generationFile, isApplied, readSyncState } from "../../../../src/node/files/generations.ts";
import { openOrganization } from "../../../../src/node/files/organizations.ts";
import { writePermissions } from "../../../../src/node/files/permissions.ts";
import { readSent } from "../../../../src/node/files/config/sent-config.ts";
import { refuseNetworks } from "../../../../src/node/files/config/refuse-networks.ts";
import { encodePem } from "../../../../src/pki/bundle.ts";
import { makeCa, signCertificate } from "../../../../src/pki/nebula.ts";
import { readYaml } from "../../../../src/node/files/config/read-yaml.ts";
import { stringifyYaml, type YamlMap } from "../../../../src/base/yaml.ts";
import { readStatusWithoutDaemon } from "../../../../src/daemon/asking/status-without-daemon.ts";
import { followDeps, makeControl, nodePath, registerByCommand } from "../../../support/node.ts";
import { machineAt } from "../../../support/machine.ts";
import { useSentConfig } from "../../../support/sent-config.ts";

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
  const deps = followDeps(here.world, here.organization, control);
  await followOrganization(here.organization, deps, { signal: AbortSignal.timeout(5000), leftS: () => 0 });
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
  const { maskedNetworks, overlayNetworks } = await import("../../../../src/node/files/granted/networks.ts");
  const path = join(here.organization.directory, "node-config.json");
  writeFileSync(path, JSON.stringify({ ...here.organization.config, network: "10.88.0.0/16" }));
  expect(openOrganization(here.world.root, "acme").config.network).toBe("10.88.0.0/16");
  expect(overlayNetworks(here.organization.directory)).toEqual(["10.77.0.0/16"]);
  expect(maskedNetworks("")).toEqual([]);
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
  const check = (network: string, hostCrt = certificateFor(network)) => {
    const { directory } = here.organization;
    const machine = machineAt(here.world.root);
    refuseNetworks({ directory, slug: "acme", hostCrt, machine, seal: undefined }, here.world.log);
  };
  for (const network of ["8.0.0.5/0", "8.0.0.5/1", "8.0.0.5/4"])
    expect(() => check(network)).toThrow("takes most of the internet");
  check("10.90.0.5/16");
  placeOther("");
  writeFileSync(join(here.world.root, "other", "host.crt"), certificateFor("10.90.0.9/16"));
  expect(() => check("10.90.3.5/24")).toThrow('the organization "other" uses');
  // Two organizations that already had the same network keep it.
  writeFileSync(join(here.world.root, "other", "host.crt"), read("host.crt"));
  check("10.77.0.1/16", read("host.crt"));
});

test("a certificate cannot take over a network of this machine, or the control plane of another organization", () => {
  const { root } = here.world;
  placeOther("");
  writeFileSync(join(root, "other", "host.crt"), certificateFor("10.99.0.5/16"));
  const state = {
    addresses: [
      { device: "eth0", address: "192.168.7.4/24" },
      // Its own interface.
      { device: "ov-acme", address: "10.77.0.1/16" },
    ],
    hosts: [{ network: "203.0.113.5/32", name: "the control plane of other", of: "other" }],
  };
  const to = (network: string, slug = "acme") =>
    refuseNetworks(
      {
        directory: join(root, slug),
        slug,
        seal: undefined,
        hostCrt: certificateFor(network),
        machine: machineAt(root, state),
      },
      here.world.log,
    );
  expect(() => to("192.168.7.200/24")).toThrow("this machine is in it by its interface eth0");
  expect(() => to("192.168.7.200/25")).toThrow("a network of this machine's interface eth0");
  expect(() => to("203.0.113.9/24")).toThrow("the control plane of other");
  expect(() => to("169.254.169.1/24")).toThrow("never routed through an overlay");
  to("10.91.0.5/16");
  to("10.77.3.5/24");
  // The kernel prefers the network of the interface.
  to("192.168.0.5/16");
  writePermissions(here.organization.directory, { routes: ["192.168.7.0/24"] });
  to("192.168.7.200/24");
  // Whoever registers this machine sees the network, but not the addresses of other control planes.
  expect(() => to("203.0.113.9/24", "fresh")).toThrow("the control plane of other");
  to("169.254.169.1/24", "fresh");
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

test("messages about a hostile configuration stay short and printable", () => {
  const many: YamlMap = { ["x\u001b[2J\n".repeat(50)]: 1 };
  for (let at = 0; at < 5000; at++) many[`key${at}`] = at;
  const { leftOut } = readSent(stringifyYaml({ pki: {}, ...many }), {
    directory: here.organization.directory,
    slug: "acme",
    seal: undefined,
    hostCrt: read("host.crt"),
    machine: machineAt(here.world.root),
  });
  expect(JSON.stringify(leftOut).length).toBeLessThan(6000);
  expect(leftOut.length).toBeLessThan(30);
  expect(JSON.stringify(leftOut)).not.toContain("\\u001b");
});
