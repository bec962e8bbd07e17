// Routes that a control plane sends into networks of this machine, and to control planes: they are left out.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { followOrganization } from "../../../src/node/contact/follow.ts";
import { readSyncState } from "../../../src/node/files/generations.ts";
import { parseNameServers } from "../../../src/platform/attached-networks.ts";
import { followEdge, makeControl } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const { read, section, sync, tamper, placeOther } = here;

const routed = (...networks: string[]) => {
  const routes = networks.map((route) => ({ route, via: "10.77.0.9" }));
  tamper((config) => ({ ...config, tun: { unsafe_routes: routes } }));
};
const attach = (...addresses: string[]) => {
  here.world.system.attachedNetworks = async () => addresses.map((address) => ({ device: "wlan0", address }));
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
  const edge = followEdge({ ...here.world, system }, here.organization, control);
  return followOrganization(here.organization, edge, { signal: AbortSignal.timeout(5000), leftS: () => 0 });
}

test("routes into a network of this machine are left out and named, and the others stay", async () => {
  attach("192.168.1.20/24", "198.51.100.1/32");
  routed("192.168.1.0/24", "192.168.1.1/32", "198.51.100.0/24", "192.168.2.0/24");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["198.51.100.0/24", "192.168.2.0/24"]);
  expect(leftOut).toContainEqual({
    key: "tun.unsafe_routes 192.168.1.1/32",
    reason: "it overlaps 192.168.1.0/24, a network of this machine's interface wlan0",
  });
  const { status } = await here.world.agent(["sync-config", "--allow-routes", "192.168.1.0/24"]);
  expect(status).toBe(0);
  expect(routes()).toEqual(["192.168.1.0/24", "192.168.1.1/32", "198.51.100.0/24", "192.168.2.0/24"]);
});

test("routes to a public name server of this machine are left out; a private one may be behind a node", async () => {
  here.world.system.attachedNetworks = async () => [
    ...parseNameServers(
      "# nameserver 192.0.2.1\nnameserver 9.9.9.9\nnameserver 2620:fe::fe\nnameserver 192.168.9.1\n",
    ),
  ];
  routed("9.9.9.9/32", "9.9.9.0/24", "2620:fe::/48", "192.168.9.0/24", "192.0.2.0/24");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["192.168.9.0/24", "192.0.2.0/24"]);
  expect(leftOut).toContainEqual({
    key: "tun.unsafe_routes 9.9.9.0/24",
    reason: "it overlaps 9.9.9.9/32, a name server of this machine",
  });
  const { status } = await here.world.agent(["sync-config", "--allow-routes", "9.9.9.0/24"]);
  expect(status).toBe(0);
  expect(routes()).toEqual(["9.9.9.9/32", "9.9.9.0/24", "192.168.9.0/24", "192.0.2.0/24"]);
});

test("routes to the address of any organization's control plane are left out", async () => {
  placeOther("listen: {port: 4242}\n");
  const credentials = JSON.parse(read("credentials.json"));
  const plane = (slug: string, api_base: string) =>
    writeFileSync(
      join(here.world.root, slug, "credentials.json"),
      JSON.stringify({ ...credentials, org_slug: slug, api_base }),
    );
  plane("other", "https://203.0.113.9:8443");
  plane("acme", "https://[2001:db8::9]");
  routed("203.0.113.9/32", "203.0.113.0/24", "203.0.114.0/24", "2001:db8::/64", "2001:db8:1::/64");
  const { leftOut } = await sync();
  expect(routes()).toEqual(["203.0.114.0/24", "2001:db8:1::/64"]);
  expect(leftOut[0]?.reason).toBe("it overlaps 203.0.113.9/32, the control plane of other");
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
  expect(readSyncState(here.organization.directory)?.left_out).toHaveLength(1);
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
  // This does not depend on the networks of the machine: nothing is checked again for it.
  expect(readSyncState(here.organization.directory)?.surroundings).toEqual([]);
});
