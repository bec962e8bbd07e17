// A configuration that this machine cannot apply as a whole: its revocations are in force all the same.

import { expect, test } from "bun:test";
import { appendFileSync, chownSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/base/errors.ts";
import { finishSwitch, isApplied, readSyncState } from "../../../src/node/files/generations.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { isMap, type YamlMap } from "../../../src/base/yaml.ts";
import { rejection } from "../../pki/thrown.ts";
import { asRoot } from "../../support/engines.ts";
import { engine, hasEngine, makeControl, nodePath, syncNow } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const [first, second] = ["a".repeat(64), "b".repeat(64)];

/** The control plane sends this blocklist, and other changes. */
function send(blocklist: string[], change: YamlMap = {}): void {
  here.tamper((config) => {
    const pki = isMap(config["pki"]) ? config["pki"] : {};
    return { ...config, ...change, pki: { ...pki, blocklist } };
  });
}

const blocklist = () => here.section("pki")["blocklist"];
const version = () => readSyncState(here.organization.directory)?.config_version;
const organization = () => openOrganization(here.world.root, "acme");
const raiseVersion = async () => {
  await here.world.api("POST", "/api/org/acme/groups/", { name: "other" });
  await here.world.api("PATCH", nodePath(here.organization), { groups: ["other"] });
};

test.skipIf(!hasEngine)("a revocation is applied although the engine's test refuses the rest", async () => {
  const { directory } = here.organization;
  const before = version();
  const overrides = join(directory, "overrides.yml");
  writeFileSync(overrides, "logging:\n  level: shouting\n");
  await raiseVersion();
  send([first], { routines: 2 });
  const control = makeControl();
  const result = await syncNow(here.world, organization(), control, engine);
  expect(result).toMatchObject({ result: "returned", configVersion: before });
  expect(result.reason).toContain("shouting");
  expect(result.reason).toContain("its revocations are in force; its certificates are in use");
  expect(blocklist()).toEqual([first]);
  expect(here.present()["routines"]).toBeUndefined();
  // Once for the revocation, once for the certificate with the new group.
  expect(control.asked).toEqual(["reload", "reload"]);
  expect([version(), isApplied(directory)]).toEqual([before, true]);
  expect(readSyncState(directory)?.left_out?.[0]?.key).toBe("the new configuration");

  // Again without news: the engine is left alone.
  expect(await syncNow(here.world, organization(), control, engine)).toMatchObject({ result: "returned" });
  expect(control.asked).toEqual(["reload", "reload"]);

  rmSync(overrides);
  expect(await syncNow(here.world, organization(), control, engine)).toMatchObject({ result: "changed" });
  expect(here.present()["routines"]).toBe(2);
  expect(version()).not.toBe(before);
  expect(readSyncState(directory)?.left_out).toEqual([]);
});

test("a revocation is applied although overrides.yml sets a forbidden key", async () => {
  appendFileSync(join(here.organization.directory, "overrides.yml"), "firewall:\n  inbound: []\n");
  send([first]);
  const control = makeControl();
  const error = await rejection(here.sync(control));
  expect(error.exitStatus).toBe(78);
  expect(blocklist()).toEqual([first]);
  expect(control.asked).toEqual(["reload"]);
});

asRoot("owners", () => {
  test("a revocation is applied although another user can change overrides.yml", async () => {
    const overrides = join(here.organization.directory, "overrides.yml");
    writeFileSync(overrides, "tun:\n  mtu: 1400\n");
    chownSync(overrides, 12_345, 0);
    send([first]);
    const error = await rejection(here.sync(makeControl()));
    expect([error.exitStatus, error.message]).toEqual([78, expect.stringContaining("user 12345")]);
    expect(blocklist()).toEqual([first]);
    expect(here.section("tun")["mtu"]).not.toBe(1400);
  });
});

/** An engine that refuses all configurations that need a restart. */
function refusing() {
  const control = makeControl();
  return {
    ...control,
    restart: async () => {
      control.asked.push("restart");
      if (here.present()["routines"] === 2) throw new AppError("engine_failed", "two routines");
    },
  };
}

test("what the running engine refused is not tried again at each check-in, but when a user asks", async () => {
  const before = version();
  await raiseVersion();
  send([first], { routines: 2 });
  const control = refusing();
  const refusal = await here.sync(control);
  expect(refusal).toMatchObject({ result: "returned", configVersion: before });
  expect(refusal.reason).toBe("two routines; its revocations are in force; its certificates are in use");
  expect(control.asked).toEqual(["restart", "restart", "reload", "reload"]);
  expect(blocklist()).toEqual([first]);

  expect((await here.sync(control)).reason).toBe("two routines; its revocations are in force");
  expect(control.asked).toHaveLength(4);
  // The next version is tried.
  send([first, second], { routines: 2 });
  await here.sync(control);
  expect(control.asked.slice(4)).toEqual(["restart", "restart", "reload"]);
  expect(blocklist()).toEqual([first, second]);
  here.world.server.clock.ms += 2 * 3600_000;
  await here.sync(control);
  expect(control.asked.slice(7)).toEqual(["restart", "restart"]);
});

test.skipIf(!hasEngine)(
  "a lighthouse with an address of the overlay is left out, and the rest is applied",
  async () => {
    send([first], {
      static_host_map: { "10.77.0.30": ["10.77.0.30:4242"], "10.77.0.31": ["192.0.2.31:4242"] },
      lighthouse: { hosts: ["10.77.0.30", "10.77.0.31"] },
    });
    const result = await syncNow(here.world, organization(), makeControl(), engine);
    expect(result).toMatchObject({ result: "changed" });
    expect(result.leftOut.map(({ key }) => key)).toEqual(["static_host_map 10.77.0.30"]);
    expect(here.section("lighthouse")["hosts"]).toEqual(["10.77.0.31"]);
    expect(blocklist()).toEqual([first]);
  },
);

test("entries that the refused configuration no longer lists stay blocked", async () => {
  send([first]);
  await here.sync();
  send([second], { routines: 2 });
  expect(await here.sync(refusing())).toMatchObject({ result: "returned" });
  expect(blocklist()).toEqual([first, second]);
});

test("after a kill before the reload, the next run applies the revocations to the engine", async () => {
  const { directory } = here.organization;
  send([first], { routines: 2 });
  await here.sync(refusing());
  rmSync(join(directory, "current/taken-up"));
  finishSwitch(directory);
  const control = refusing();
  expect(await here.sync(control)).toMatchObject({ result: "returned" });
  expect(control.asked).toEqual(["restart"]);
  expect(isApplied(directory)).toBe(true);
  expect(blocklist()).toEqual([first]);
});

test("after a kill in a refused configuration, the last one that worked runs with the revocations", async () => {
  const { directory } = here.organization;
  send([first], { routines: 2 });
  expect(await here.sync(makeControl())).toMatchObject({ result: "changed" });
  rmSync(join(directory, "current/taken-up"));
  expect(await here.sync(refusing())).toMatchObject({ result: "returned" });
  expect(here.present()["routines"]).toBeUndefined();
  expect(blocklist()).toEqual([first]);
  expect(isApplied(directory)).toBe(true);
});
