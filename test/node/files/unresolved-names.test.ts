// A Graphite server or an advertised name without an address: the engine would refuse the whole configuration for it, so it
// is left out until the name has an address.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { followOnce } from "../../../src/node/contact/follow-once.ts";
import { readSyncState } from "../../../src/node/files/generations.ts";
import { localApiSection } from "../../../src/node/files/config/config-file.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { rewriteConfig } from "../../../src/node/files/config/rewrite-config.ts";
import { engine, followDeps, hasEngine, makeControl, syncNow } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";
import { isMap, stringifyYaml, type YamlMap } from "../../../src/base/yaml.ts";
import { machineAt } from "../../support/machine.ts";
import { writePermissions } from "../../../src/node/files/permissions.ts";

const here = useSentConfig();
const blocked = "a".repeat(64);
const stats = {
  type: "graphite",
  host: "graphite.example:2003",
  interval: "10s",
  protocol: "tcp",
  prefix: "x",
};
const addresses: [string, string, string] = ["192.0.2.7:4242", "gone.example:4242", "[2001:db8::1]:4242"];

function send(): void {
  writePermissions(here.organization.directory, { listeners: [stats.host] });
  here.tamper((config): YamlMap => {
    const section = (name: string) => (isMap(config[name]) ? config[name] : {});
    return {
      ...config,
      stats,
      lighthouse: { ...section("lighthouse"), advertise_addrs: addresses },
      pki: { ...section("pki"), blocklist: [blocked] },
    };
  });
}

test.skipIf(!hasEngine)(
  "names without an address are left out and reported, and the rest is applied",
  async () => {
    here.world.system.lookup = async () => [];
    send();
    const result = await syncNow(
      here.world,
      openOrganization(here.world.root, "acme"),
      makeControl(),
      engine,
    );
    expect(result).toMatchObject({ result: "changed" });
    expect(result.leftOut).toEqual([
      { key: "stats.host", reason: "graphite.example has no address" },
      { key: "lighthouse.advertise_addrs", reason: "gone.example has no address" },
    ]);
    expect(here.present()).not.toHaveProperty("stats");
    expect(here.section("lighthouse")["advertise_addrs"]).toEqual([addresses[0], addresses[2]]);
    expect(here.section("pki")["blocklist"]).toEqual([blocked]);
    expect(readSyncState(here.organization.directory)?.left_out).toEqual([...result.leftOut]);
  },
);

test("a check-in without news adds a setting as soon as its name has an address", async () => {
  const known: Record<string, string[]> = {};
  here.world.system.lookup = async (name) => known[name] ?? [];
  const deps = followDeps(here.world, here.organization);
  await followOnce(here.organization, deps, { waitS: 0 });
  send();
  await here.sync();
  expect((await followOnce(here.organization, deps, { waitS: 0 })).sync).toBeUndefined();
  known["graphite.example"] = ["192.0.2.9"];
  expect((await followOnce(here.organization, deps, { waitS: 0 })).sync).toMatchObject({ result: "changed" });
  expect(here.present()["stats"]).toEqual(stats);
  expect(readSyncState(here.organization.directory)?.left_out?.map(({ key }) => key)).toEqual([
    "lighthouse.advertise_addrs",
  ]);
  known["gone.example"] = ["192.0.2.10"];
  expect((await followOnce(here.organization, deps, { waitS: 0 })).sync).toMatchObject({ result: "changed" });
  expect(here.section("lighthouse")["advertise_addrs"]).toEqual(addresses);
  const state = readSyncState(here.organization.directory);
  expect([state?.left_out, state?.unresolved]).toEqual([[], undefined]);
  expect((await followOnce(here.organization, deps, { waitS: 0 })).sync).toBeUndefined();
});

test("a healed tunnel does not bring back a name that the engine would refuse", async () => {
  here.world.system.lookup = async () => [];
  send();
  await here.sync();
  const { directory, slug } = here.organization;
  // As for an engine with a control socket.
  const present = { ...here.present(), local_api: localApiSection(directory) };
  writeFileSync(join(directory, "config.yml"), stringifyYaml(present));
  expect(
    rewriteConfig({ directory, slug, seal: undefined }, machineAt(here.world.root), {
      healing: { denied: ["203.0.113.7"] },
    }),
  ).toBe(true);
  expect(here.section("lighthouse")["remote_allow_list"]).toMatchObject({ "203.0.113.7/32": false });
  expect(here.present()).not.toHaveProperty("stats");
  expect(here.section("lighthouse")["advertise_addrs"]).toEqual([addresses[0], addresses[2]]);
});

test("doctor names the settings that were left out, and no change that is not applied", async () => {
  here.world.system.lookup = async () => [];
  send();
  await here.sync();
  const { stdout } = await here.world.agent(["doctor"]);
  const line = stdout.split("\n").find((each) => each.includes("acme configuration"));
  expect(line).toContain("graphite.example has no address");
  expect(line).toContain("gone.example has no address");
});
