// Routes that a control plane sends into networks of this machine, and to control planes: they are left out.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { noneInUse } from "../../../src/node/engine/engine-in-use.ts";
import { makeLocalSync } from "../../../src/node/contact/local-sync.ts";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { generationFile, readSyncState } from "../../../src/node/files/generations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { noteResolved } from "../../../src/node/files/granted/resolved-hosts.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { isMap, stringifyYaml } from "../../../src/base/yaml.ts";
import { parseNameServers } from "../../../src/platform/network/proc-tables.ts";
import { followDeps, makeControl } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";
import { emptyMachine } from "../../support/machine.ts";

const here = useSentConfig();
const { read, section, sync, tamper, placeOther } = here;

const routed = (...networks: string[]) => {
  const routes = networks.map((route) => ({ route, via: "10.77.0.9" }));
  tamper((config) => ({ ...config, tun: { unsafe_routes: routes } }));
};
const attach = (...addresses: string[]) => {
  here.world.system.machineState = async () => ({
    ...emptyMachine,
    addresses: addresses.map((address) => ({ device: "wlan0", address })),
  });
};
const routes = () => {
  const entries = v.parse(
    v.array(v.object({ route: v.string(), via: v.string() })),
    section("tun")["unsafe_routes"],
  );
  return entries.map(({ route }) => route);
};
/** One turn without a control plane. */
function follow(control = makeControl()) {
  const system = { ...here.world.system, fetch: () => Promise.reject(new Error("away")) };
  const deps = followDeps({ ...here.world, system }, here.organization, control);
  return followOrganization(here.organization, deps, { signal: AbortSignal.timeout(5000), leftS: () => 0 });
}

test("routes inside a network of this machine are left out and named, and the others stay", async () => {
  attach("192.168.1.20/24", "172.20.0.1/32");
  routed("192.168.1.0/24", "192.168.1.1/32", "172.20.0.0/24", "192.168.2.0/24");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["172.20.0.0/24", "192.168.2.0/24"]);
  const reason = "it lies in 192.168.1.0/24, a network of this machine's interface wlan0";
  // The first one leads to where this machine is, so nothing is wrong.
  expect(leftOut).toEqual([{ key: "tun.unsafe_routes 192.168.1.1/32", reason }]);
  const { status } = await here.world.agent(["sync-config", "--allow-routes", "192.168.1.0/24"]);
  expect(status).toBe(0);
  expect(routes()).toEqual(["172.20.0.0/24", "192.168.2.0/24"]);
});

test("the machine of a network that a router routes is no finding of doctor", async () => {
  attach("192.168.1.20/24");
  routed("192.168.1.0/24");
  await sync();
  const { stdout } = await here.world.agent(["doctor", "--json"]);
  const { checks } = v.parse(
    v.object({
      checks: v.array(v.object({ id: v.string(), verdict: v.string(), evidence: v.string() })),
    }),
    JSON.parse(stdout),
  );
  expect(checks.find(({ id }) => id === "routes")).toEqual({
    id: "routes",
    verdict: "ok",
    evidence:
      "no routes through other nodes; no route to 192.168.1.0/24: this machine is in it by its interface wlan0",
  });
  expect(stdout).not.toContain("allow-routes");
});

test("routes to any name server of this machine, and to addresses that steer machines, are left out", async () => {
  here.world.system.machineState = async () => ({
    ...emptyMachine,
    addresses: [{ device: "wlan0", address: "192.168.9.20/24" }],
    nameServers: parseNameServers(
      "# nameserver 192.0.2.1\nnameserver 10.0.0.53\nnameserver 2620:fe::fe\nnameserver 192.168.9.1\n",
    ),
  });
  const taken = ["10.0.0.53/32", "10.0.0.0/24", "2620:fe::/48", "100.64.0.0/10", "100.100.100.200/32"];
  const clouds = ["168.63.129.16/32", "fd00:ec2::254/128", "169.254.169.0/24"];
  routed(...taken, ...clouds, "192.168.0.0/16", "198.18.2.0/24");
  const { leftOut } = await sync();
  // The name server of the attached network stays reachable beside a wider route.
  expect(routes()).toEqual(["192.168.0.0/16", "198.18.2.0/24"]);
  expect(leftOut.map(({ key }) => key)).toEqual(
    [...taken, ...clouds].map((each) => `tun.unsafe_routes ${each}`),
  );
  expect(leftOut[1]?.reason).toBe("it overlaps 10.0.0.53/32, a name server of this machine");
  const { status } = await here.world.agent(["sync-config", "--allow-routes", "10.0.0.0/24"]);
  expect(status).toBe(0);
  expect(routes()).toEqual(["10.0.0.53/32", "10.0.0.0/24", "192.168.0.0/16", "198.18.2.0/24"]);
  const { stdout } = await here.world.agent(["doctor"]);
  // The line keeps what is allowed already.
  expect(stdout).toContain("--allow-routes 10.0.0.0/24,2620:fe::/48");
});

test("routes that equal one of this machine or of another organization are left out", async () => {
  here.world.system.machineState = async () => ({
    ...emptyMachine,
    routes: [
      { device: "eth0", network: "10.9.0.0/16" },
      { device: "ov-acme", network: "10.8.0.0/16" },
    ],
  });
  placeOther("tun: {unsafe_routes: [{route: 10.7.0.0/16, via: 10.77.0.9}]}\n");
  routed("10.9.0.0/16", "10.8.0.0/16", "10.7.0.0/16", "10.9.1.0/24");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["10.8.0.0/16", "10.9.1.0/24"]);
  expect(leftOut.map(({ reason }) => reason)).toEqual([
    "there is a route of this machine through eth0 to it",
    'there is a route of the organization "other" to it',
  ]);
});

test("routes inside or around one of another organization are left out while it has that route", async () => {
  placeOther("tun: {unsafe_routes: [{route: 10.7.0.0/16, via: 10.77.0.9}]}\n");
  routed("10.7.1.0/24", "10.6.0.0/15", "10.5.0.0/16");
  expect((await sync()).leftOut.map(({ reason }) => reason)).toEqual([
    'it lies in 10.7.0.0/16, a route of the organization "other"',
    'it contains 10.7.0.0/16, a route of the organization "other"',
  ]);
  expect(routes()).toEqual(["10.5.0.0/16"]);
  // The other organization changes its routes at its own turn.
  const other = join(here.world.root, "other", "config.yml");
  writeFileSync(other, "tun: {unsafe_routes: [{route: 10.6.0.0/16, via: 10.77.0.9}]}\n");
  const control = makeControl();
  await follow(control);
  expect(routes()).toEqual(["10.7.1.0/24", "10.5.0.0/16"]);
  // The same routes again: nothing is done.
  const asked = control.asked.length;
  await follow(control);
  expect(control.asked).toHaveLength(asked);
  writeFileSync(other, "tun: {unsafe_routes: [{route: 10.7.0.0/16, via: 10.77.0.9}]}\n");
  await follow(control);
  expect(routes()).toEqual(["10.5.0.0/16"]);
});

test("routes to what the names of other organizations lead to are left out, now and after each change", async () => {
  placeOther("static_host_map: {10.77.0.30: ['hub.other.example:4242', '172.20.2.31:4242']}\n");
  const credentials = JSON.parse(read("credentials.json"));
  writeFileSync(
    join(here.world.root, "other", "credentials.json"),
    JSON.stringify({ ...credentials, org_slug: "other", api_base: "https://plane.other.example" }),
  );
  let plane = "172.20.0.9";
  here.world.system.lookup = async (name) => {
    if (name === "plane.other.example") return [plane];
    return name === "hub.other.example" ? ["172.20.0.30"] : [];
  };
  routed("172.20.0.9/32", "172.20.0.30/32", "172.20.2.31/32", "172.20.0.10/32");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["172.20.0.10/32"]);
  expect(leftOut.map(({ reason }) => reason)).toEqual([
    "it overlaps 172.20.0.9/32, the control plane of other",
    "it overlaps 172.20.0.30/32, a lighthouse or relay of other",
    "it overlaps 172.20.2.31/32, a lighthouse or relay of other",
  ]);
  // The other organization notices the move at its own turn, and this one at the next.
  const other = openOrganization(here.world.root, "other");
  await noteResolved(other.directory, here.world.system);
  plane = "172.20.0.10";
  await noteResolved(other.directory, here.world.system);
  const control = makeControl();
  await follow(control);
  expect(routes()).toEqual([]);
  expect(control.asked).toHaveLength(1);
  // A name server that is away changes nothing.
  here.world.system.lookup = async () => [];
  await noteResolved(other.directory, here.world.system);
  await follow(control);
  expect([routes(), control.asked.length]).toEqual([[], 1]);
  // Former addresses count for a day.
  here.world.server.clock.ms += 25 * 3_600_000;
  here.world.system.lookup = async (name) => (name.startsWith("plane") ? [plane] : ["172.20.0.30"]);
  await noteResolved(other.directory, here.world.system);
  await follow(control);
  expect(routes()).toEqual(["172.20.0.9/32"]);
});

test("routes to the address of any organization's control plane are left out", async () => {
  placeOther("listen: {port: 4242}\n");
  const credentials = JSON.parse(read("credentials.json"));
  const plane = (slug: string, api_base: string) =>
    writeFileSync(
      join(here.world.root, slug, "credentials.json"),
      JSON.stringify({ ...credentials, org_slug: slug, api_base }),
    );
  plane("other", "https://172.20.0.9:8443");
  plane("acme", "https://[fd20::9]");
  routed("172.20.0.9/32", "172.20.0.0/24", "172.20.1.0/24", "fd20::/64", "fd20:0:0:1::/64");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["172.20.1.0/24", "fd20:0:0:1::/64"]);
  expect(leftOut[0]?.reason).toBe("it overlaps 172.20.0.9/32, the control plane of other");
});

test("laptop loses the route when it joins the network behind it, and gets it back elsewhere", async () => {
  routed("192.168.1.0/24");
  await sync();
  expect(routes()).toEqual(["192.168.1.0/24"]);
  attach("192.168.1.20/24");
  const control = makeControl();
  await follow(control);
  expect(routes()).toEqual([]);
  expect(control.asked).toHaveLength(1);
  expect(readSyncState(here.organization.directory)?.left_out).toEqual([]);
  // The same networks again: nothing is done.
  await follow(control);
  expect(control.asked).toHaveLength(1);
  attach("192.168.9.20/24");
  await follow(control);
  expect(routes()).toEqual(["192.168.1.0/24"]);
  expect(control.asked).toHaveLength(2);
  // No routes depend on the networks any more.
  routed();
  await sync(control);
  expect(readSyncState(here.organization.directory)?.surroundings).toBeUndefined();
});

test("laptop that could not apply this the last time tries again when it comes back", async () => {
  routed("192.168.1.0/24");
  await sync();
  let fails = true;
  const engine = async () => {
    if (fails) throw new Error("busy");
    return noneInUse;
  };
  const { log, system } = here.world;
  const look = makeLocalSync(here.organization, {
    control: makeControl(),
    engine,
    command: "test",
    log,
    system,
  });
  attach("192.168.1.20/24");
  await look();
  fails = false;
  // Not without a change of the networks.
  await look();
  expect(routes()).toEqual(["192.168.1.0/24"]);
  attach();
  await look();
  attach("192.168.1.20/24");
  await look();
  expect(routes()).toEqual([]);
});

test("own tunnel does not count as a network of this machine", async () => {
  attach("10.77.0.1/16");
  routed("192.168.2.0/24");
  expect((await sync()).leftOut).toEqual([]);
});

test("routes over the address of a lighthouse are left out and named", async () => {
  tamper((config) => ({
    ...config,
    static_host_map: {
      "10.77.0.30": ["192.0.2.30:4242", "hub.example:4242"],
      "10.77.0.31": ["[2001:db8::31]:4242"],
    },
    tun: {
      unsafe_routes: ["192.0.2.0/24", "192.0.2.30/32", "2001:db8::/32", "192.168.2.0/24"].map((route) => ({
        route,
        via: "10.77.0.9",
      })),
    },
  }));
  const { leftOut } = await sync();
  expect(routes()).toEqual(["192.168.2.0/24"]);
  expect(leftOut).toContainEqual({
    key: "tun.unsafe_routes 192.0.2.0/24",
    reason: "it overlaps 192.0.2.30/32, the address of a lighthouse or relay",
  });
  expect(leftOut).toHaveLength(3);
});

test("a part of the internet needs root's permission; what a former version routed stays until root says", async () => {
  const { directory } = here.organization;
  routed("8.8.8.8/32", "192.168.2.0/24");
  await sync();
  expect(routes()).toEqual(["192.168.2.0/24"]);
  const doctor = async () => {
    const { stdout } = await here.world.agent(["doctor", "--json"]);
    const checks = v.array(
      v.looseObject({ id: v.string(), verdict: v.string(), remedy: v.optional(v.string()) }),
    );
    return (id: string) =>
      v.parse(v.object({ checks }), JSON.parse(stdout)).checks.find((each) => each.id === id);
  };
  const line = "agent sync-config --org-slug acme --allow-routes 8.8.8.8/32";
  expect((await doctor())("configuration")?.remedy).toEndWith(line);
  // As a version before these rules left it.
  for (const name of ["config.yml", "server.yml"]) {
    const present = readYaml(readFileSync(generationFile(directory, name), "utf8"), name);
    const tun = isMap(present["tun"]) ? present["tun"] : {};
    const unsafe_routes = ["8.8.8.8/32", "192.168.2.0/24"].map((route) => ({ route, via: "10.77.0.9" }));
    writeFileSync(
      generationFile(directory, name),
      stringifyYaml({ ...present, tun: { ...tun, unsafe_routes } }),
    );
  }
  writeFileSync(
    generationFile(directory, "sync.json"),
    JSON.stringify({ ...readSyncState(directory), rules: 7 }),
  );
  expect((await sync()).leftOut).toEqual([]);
  expect(routes()).toEqual(["8.8.8.8/32", "192.168.2.0/24"]);
  const found = (await doctor())("permissions");
  expect(found?.verdict).toBe("warn");
  expect(found?.remedy).toEndWith(line);
  // A name server of this machine that has this address later takes the route away, and gives it back.
  const on = (nameServers: string[]) => {
    here.world.system.machineState = async () => ({ ...emptyMachine, nameServers });
  };
  on(["8.8.8.8"]);
  await follow();
  expect(routes()).toEqual(["192.168.2.0/24"]);
  on([]);
  await follow();
  expect(routes()).toEqual(["8.8.8.8/32", "192.168.2.0/24"]);
  await here.world.agent(["sync-config", "--allow-routes", "none"]);
  expect(routes()).toEqual(["192.168.2.0/24"]);
  await here.world.agent(["sync-config", "--allow-routes", "8.8.8.8/32"]);
  expect(routes()).toEqual(["8.8.8.8/32", "192.168.2.0/24"]);
  expect((await doctor())("permissions")?.verdict).toBe("ok");
});

test("a lighthouse at an address of this machine itself, or of its link, is left out and named", async () => {
  const own = ["127.0.0.1", "0.0.0.0", "169.254.169.254", "localhost"];
  tamper((config) => ({
    ...config,
    lighthouse: { am_lighthouse: false, hosts: ["10.77.0.30", "10.77.0.31"] },
    static_host_map: {
      "10.77.0.30": [...own, "192.0.2.30"].map((host) => `${host}:4242`),
      "10.77.0.31": ["[::1]:4242", "[fe80::1]:4242"],
    },
  }));
  const { leftOut } = await sync();
  expect(here.present()["static_host_map"]).toEqual({ "10.77.0.30": ["192.0.2.30:4242"] });
  expect(section("lighthouse")["hosts"]).toEqual(["10.77.0.30"]);
  expect(leftOut).toHaveLength(6);
  expect(leftOut[0]).toEqual({
    key: "static_host_map 10.77.0.30",
    reason: "127.0.0.1 leads this machine to itself, its own link or nowhere",
  });
});
