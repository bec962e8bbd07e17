// Settings of a rollout on a node: its file has both kinds, and it goes to either without the control plane.

import { expect, test } from "bun:test";
import { noneInUse } from "../../../src/node/engine/engine-in-use.ts";
import { makeLocalSync } from "../../../src/node/contact/local-sync.ts";
import { rewriteConfig, withSeal } from "../../../src/node/files/config/rewrite-config.ts";
import { readMachine } from "../../../src/node/files/granted/machine-facts.ts";
import { readSyncState } from "../../../src/node/files/generations.ts";
import { chosenSettings, writeUpdateState } from "../../../src/node/files/update-order.ts";
import { makeControl } from "../../support/node.ts";
import { useSentConfig } from "../../support/sent-config.ts";

const here = useSentConfig();
const sections = {
  tun: { dev: "ov-acme", mtu: 1400 },
  preferred_ranges: null,
  sshd: { enabled: true },
  logging: { level: "debug", format: "json" },
};

const choose = (settings: boolean, order = 10) =>
  writeUpdateState(here.organization.directory, {
    order: { order, settings: true, watch_s: 10 },
    step: "applied",
    settings,
  });

/** What the loop of the daemon does before each check-in, and `agent update-run` after it has chosen. */
async function lookLocally(): Promise<readonly string[]> {
  const { log, system } = here.world;
  const control = makeControl();
  await makeLocalSync(here.organization, {
    control,
    engine: async () => noneInUse,
    command: "test",
    log,
    system,
  })();
  return control.asked;
}
const used = () => readSyncState(here.organization.directory)?.settings;
const inForce = () => [here.section("tun")["mtu"], here.present()["preferred_ranges"] !== undefined];

test("a node uses the settings of a rollout when they are chosen, and the former ones else", async () => {
  let order: number | undefined = 10;
  here.tamper((config) => ({
    ...config,
    preferred_ranges: ["192.168.1.0/24"],
    ...(order === undefined ? {} : { rollout: { order, sections } }),
  }));
  await here.sync();
  expect([inForce(), used()]).toEqual([[1300, true], { order: 10, used: false }]);
  expect(here.present()).not.toHaveProperty("rollout");
  const { fetch } = here.world.system;
  here.world.system.fetch = async () => {
    throw new Error("The control plane is away");
  };
  expect(await lookLocally()).toEqual([]);
  choose(true);
  // What a healing or a route changes meanwhile leaves the settings as they are: they may need a restart.
  const { directory, slug } = here.organization;
  const sealed = await withSeal({ directory, slug });
  const machine = await readMachine(directory, here.world.system);
  if (sealed !== undefined) rewriteConfig(sealed, machine, { peers: {} });
  expect(inForce()).toEqual([1300, true]);
  expect((await lookLocally()).length).toBe(1);
  expect([inForce(), used()]).toEqual([[1400, false], { order: 10, used: true }]);
  // The list of what a control plane may set holds for them, too.
  expect(here.section("sshd")["enabled"]).not.toBe(true);
  expect(await lookLocally()).toEqual([]);
  choose(false);
  expect((await lookLocally()).length).toBe(1);
  expect([inForce(), used()]).toEqual([[1300, true], { order: 10, used: false }]);
  // Those of another rollout are not the ones that were chosen.
  here.world.system.fetch = fetch;
  choose(true, 12);
  await here.sync();
  expect([inForce(), chosenSettings(directory)]).toEqual([[1300, true], 12]);
  // The order to go back has the next number.
  choose(true, 11);
  await here.sync();
  expect(inForce()).toEqual([1400, false]);
  // It has ended.
  order = undefined;
  await here.sync();
  expect([inForce(), used()]).toEqual([[1300, true], undefined]);
});
