// DNS names of lighthouses with real engines: an old engine gets addresses only, a new one gets the names.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { connectOrganization } from "../../../../src/node/contact/requests/connection.ts";
import { rememberVersions } from "../../../../src/node/engine/engine.ts";
import { engineInUse } from "../../../../src/node/engine/engine-in-use.ts";
import { followOnce, type Turn } from "../../../../src/node/contact/follow-once.ts";
import { readYaml } from "../../../../src/node/files/config/read-yaml.ts";
import { resolveNames } from "../../../../src/node/files/granted/host-names.ts";
import { readSyncState } from "../../../../src/node/files/generations.ts";
import type { Organization } from "../../../../src/node/files/organizations.ts";
import { describeEveryEngine } from "../../../support/engines.ts";
import { makeControl, makeNodeWorld, nodePath, type NodeWorld } from "../../../support/node.ts";
import { makeKeys, sendRegistration } from "../../../support/nodes.ts";

let world: NodeWorld;
let organization: Organization;
/** The answers of this machine's name server. */
let names: Record<string, string[]>;
let asked: string[];

async function registerHub(name: string, publicIp: string): Promise<void> {
  const token = await world.token({ is_lighthouse: true });
  const wishes = { is_lighthouse: true, public_ip: publicIp, registration_token: token };
  const { status } = await sendRegistration(world.server, "acme", {
    name,
    ...(await makeKeys(name)),
    ...wishes,
  });
  expect(status).toBe(201);
}

beforeEach(async () => {
  world = await makeNodeWorld();
  names = {};
  asked = [];
  world.system.lookup = async (name) => {
    asked.push(name);
    return names[name] ?? [];
  };
  await registerHub("hub", "hub.example");
  await registerHub("fixed", "192.0.2.1");
  organization = await world.register();
});

afterEach(() => world[Symbol.asyncDispose]());

function follow(engine: string, control = makeControl()): Promise<Turn> {
  const { system, log, root } = world;
  const withClient = connectOrganization(organization, system, log);
  const inUse = () => engineInUse(undefined, engine, rememberVersions(system));
  const deps = { configRoot: root, withClient, control, engine: inUse, command: "test", log, system };
  return followOnce(organization, deps, { waitS: 0 });
}

const file = (name: string) => readFileSync(join(organization.directory, name), "utf8");
const config = () => Bun.YAML.parse(file("config.yml"));
const change = async () => {
  const name = `group-${Math.floor(performance.now() * 1000)}`;
  await world.api("POST", "/api/org/acme/groups/", { name });
  await world.api("PATCH", nodePath(organization), { groups: [name] });
};
const withoutName = {
  static_host_map: { "10.77.0.2": ["192.0.2.1:4242"] },
  lighthouse: { hosts: ["10.77.0.2"] },
};
const withAddresses = (...addresses: string[]) => ({
  static_host_map: {
    "10.77.0.1": addresses.map((each) => `${each}:4242`),
    "10.77.0.2": ["192.0.2.1:4242"],
  },
  lighthouse: { hosts: ["10.77.0.1", "10.77.0.2"] },
});

describeEveryEngine("names of lighthouses", ({ nebula, version }) => {
  if (Bun.semver.order(version, "1.7.0") < 0) {
    test("unresolved name is left out, and added as soon as it resolves", async () => {
      expect(config()).toMatchObject(withoutName);
      await change();
      expect((await follow(nebula)).sync).toMatchObject({ result: "changed" });
      expect(config()).toMatchObject(withoutName);
      expect(world.logged.join("\n")).toContain("Cannot resolve");
      expect((await follow(nebula)).sync).toBeUndefined();

      names["hub.example"] = ["192.0.2.9"];
      const control = makeControl();
      const { answer, sync } = await follow(nebula, control);
      expect(answer?.config_changed).toBe(false);
      expect(sync).toMatchObject({ result: "changed", configVersion: answer?.config_version });
      expect(control.asked).toEqual(["reload"]);
      expect(config()).toMatchObject(withAddresses("192.0.2.9"));
      expect(file("current/server.yml")).toContain("hub.example:4242");
      expect((await follow(nebula)).sync).toBeUndefined();
    });

    test("a name that resolves into the overlay counts as unresolved", async () => {
      names["hub.example"] = ["10.77.0.9"];
      await change();
      expect((await follow(nebula)).sync).toMatchObject({ result: "changed" });
      expect(config()).toMatchObject(withoutName);
      expect((await follow(nebula)).sync).toBeUndefined();
    });

    test("while a name does not resolve, its last addresses stay and other changes are applied", async () => {
      names["hub.example"] = ["192.0.2.9"];
      await follow(nebula);
      names = {};
      expect((await follow(nebula)).sync).toBeUndefined();
      await change();
      const { answer, sync } = await follow(nebula);
      expect(sync).toMatchObject({ result: "changed", configVersion: answer?.config_version });
      expect(config()).toMatchObject(withAddresses("192.0.2.9"));
      expect(readSyncState(organization.directory)).toMatchObject({
        config_version: answer?.config_version,
        host_names: { "hub.example": ["192.0.2.9"] },
      });
      expect((await follow(nebula)).answer?.config_changed).toBe(false);
    });

    test("the order of addresses does not matter, and both families are given, IPv4 first", async () => {
      names["hub.example"] = ["192.0.2.9", "2001:db8::9", "192.0.2.10"];
      await follow(nebula);
      expect(config()).toMatchObject(withAddresses("192.0.2.10", "192.0.2.9", "[2001:db8::9]"));
      names["hub.example"].reverse();
      expect((await follow(nebula)).sync).toBeUndefined();
      names["hub.example"] = ["2001:db8::9"];
      expect((await follow(nebula)).sync).toMatchObject({ result: "changed" });
      expect(config()).toMatchObject(withAddresses("[2001:db8::9]"));
    });

    test("doctor names the unresolved name", async () => {
      await change();
      await follow(nebula);
      const { stdout } = await world.agent(["doctor", "--json"]);
      expect(stdout).toContain("cannot resolve hub.example");
    });
  } else {
    test("names stay in config.yml and are not resolved for engines that do so", async () => {
      await follow(nebula);
      expect(config()).toMatchObject(withAddresses("hub.example"));
      asked = [];
      await change();
      expect((await follow(nebula)).sync).toMatchObject({ result: "changed" });
      expect(config()).toMatchObject(withAddresses("hub.example"));
      expect(readSyncState(organization.directory)).not.toHaveProperty("host_names");
      expect(asked).toEqual([]);
    });
  }
});

test("a silent name server gets one query with a short wait", async () => {
  const text = 'static_host_map: {"10.77.0.1": ["a.example:4242"], "10.77.0.2": ["b.example:4242"]}';
  const asking: string[] = [];
  const lookup = (name: string) => {
    asking.push(name);
    return new Promise<string[]>(() => {});
  };
  const known = { "b.example": ["192.0.2.9"] };
  const found = await resolveNames(
    readYaml(text, "It"),
    undefined,
    known,
    { lookup, sleep: async () => {} },
    [],
  );
  expect(found).toEqual({ "a.example": [], ...known });
  expect(asking).toEqual(["a.example"]);
});

test("names such as __proto__ work, and addresses are not resolved", async () => {
  const text = 'static_host_map: {"10.77.0.1": ["constructor:4242", "[2001:db8::1]:4242", "192.0.2.1:4242"]}';
  const nobody = { lookup: async () => [], sleep: world.system.sleep };
  expect(await resolveNames(readYaml(text, "It"), "1.6.1", {}, nobody, [])).toEqual({ constructor: [] });
});
