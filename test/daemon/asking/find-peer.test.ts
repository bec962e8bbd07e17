// What `agent ping` and `agent whois` say of nodes that are not peers: unknown ones, this machine, and those of stopped
// organizations.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isUnknown } from "../../../src/node/health/shown-peer.ts";
import { findPeer } from "../../../src/daemon/asking/find-peer.ts";
import { writeHosts } from "../../../src/node/files/hosts.ts";
import { OrganizationHealth } from "../../../src/node/health/organization-health.ts";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { isMap, stringifyYaml } from "../../../src/base/yaml.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeNodeWorld } from "../../support/node.ts";
import { quietEngine } from "../../support/quiet-engine.ts";

test("a node of a stopped organization is not called unknown without saying what is stopped", async () => {
  await using world = await makeNodeWorld();
  await world.register();
  const settings = { ...world.settings, stateDb: join(world.root, "../state.db") };
  const deps = { address: { kind: "socket" as const, path: join(world.root, "../no.sock") }, settings };
  const system = { ...world.system, isRoot: true };
  for (const only of [undefined, "acme"]) {
    const { code, details } = await rejection(findPeer("web", only, deps, system));
    expect(code).toBe("not_found");
    expect(details.hint).toBe("acme is stopped, so it was not asked. Start it: `agent start acme`.");
  }
});

test("a host behind a router is called that, with the router that can be probed", async () => {
  await using world = await makeNodeWorld();
  const { directory } = await world.register();
  const settings = { ...world.settings, stateDb: join(world.root, "../state.db") };
  const deps = { address: { kind: "socket" as const, path: join(world.root, "../no.sock") }, settings };
  const path = join(directory, "config.yml");
  const config = readYaml(readFileSync(path, "utf8"), path);
  const tun = { ...(isMap(config["tun"]) ? config["tun"] : {}) };
  const unsafe_routes = [{ route: "192.168.50.0/24", via: "10.77.0.9" }];
  writeFileSync(path, stringifyYaml({ ...config, tun: { ...tun, unsafe_routes } }));
  const found = await rejection(findPeer("192.168.50.9", undefined, deps, { ...world.system, isRoot: true }));
  expect(found).toMatchObject({
    code: "not_found",
    message:
      "192.168.50.9 is no node, but a host in 192.168.50.0/24, a network of acme behind the router 10.77.0.9",
    details: { hint: "Probe the router: `agent ping 10.77.0.9`." },
  });
});

test("this machine and addresses without a node are told from peers", async () => {
  await using world = await makeNodeWorld();
  const place = await world.register();
  const { config } = place;
  const named = { id: 7, name: "web", ip: "10.77.0.7" };
  const own = { id: config.node_id, name: config.name, ip: config.ip_address };
  writeHosts(place.directory, { schema: 1, version: 1, view: "all", nodes: [own, named], aliases: [] });
  const health = new OrganizationHealth(place, {
    ...quietEngine,
    system: { ...world.system, sleep: () => new Promise<void>(() => {}) },
  });
  const look = async (peer: string) => (await health.readPeers(0, peer)).peers;
  for (const asked of [config.name, config.ip_address]) {
    const [self] = await look(asked);
    expect(self).toMatchObject({ name: config.name, address: config.ip_address, this_machine: true });
  }
  // Without a tunnel, an address has the name that hosts.json knows.
  const [web] = await look("10.77.0.7");
  expect(web).toMatchObject({ name: "web", path: "none" });
  const [unused] = await look("10.77.9.9");
  expect(unused).toMatchObject({ name: "10.77.9.9", path: "none" });
  expect([web, unused].map((each) => each !== undefined && isUnknown(each))).toEqual([false, true]);
});
