// Healing writes config.yml again: its own changes come into force, and nothing else.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { localApiSection } from "../../../src/node/files/config-file.ts";
import { rewriteConfig } from "../../../src/node/files/rewrite-config.ts";
import { stringifyYaml } from "../../../src/yaml.ts";
import { useSentConfig } from "../../support/sent-config.ts";
import { machineAt } from "../../support/machine.ts";

const here = useSentConfig();
const denied = { "203.0.113.7/32": false, "0.0.0.0/0": true };

/** As for an engine with a control socket. */
function withSocket(): void {
  const { directory } = here.organization;
  const config = { ...here.present(), local_api: localApiSection(directory) };
  writeFileSync(join(directory, "config.yml"), stringifyYaml(config));
}

const rewrite = (...addresses: string[]) =>
  rewriteConfig(here.organization, machineAt(here.world.root), { healing: { denied: addresses } });

test("a change that ended leaves config.yml as it was before", async () => {
  const { directory } = here.organization;
  writeFileSync(join(directory, "overrides.yml"), "listen: {port: 4250}\nstats: {type: none}\n");
  await here.sync();
  withSocket();
  expect(rewrite()).toBe(true);
  const before = here.read("config.yml");
  expect(rewrite("203.0.113.7")).toBe(true);
  expect(here.section("lighthouse")["remote_allow_list"]).toEqual(denied);
  expect(here.section("listen")["port"]).toBe(4250);
  expect(rewrite()).toBe(true);
  expect(here.read("config.yml")).toBe(before);
});

test.each(["listen: {port: 4260}\n", "listen: [\n", "firewall: {}\n"])(
  "overrides.yml that was changed to %p and not applied stays out of it",
  async (text) => {
    const { directory } = here.organization;
    writeFileSync(join(directory, "overrides.yml"), "listen: {port: 4250}\n");
    await here.sync();
    withSocket();
    writeFileSync(join(directory, "overrides.yml"), text);
    expect(rewrite("203.0.113.7")).toBe(true);
    expect(here.section("lighthouse")["remote_allow_list"]).toEqual(denied);
    expect(here.section("listen")["port"]).toBe(4250);
  },
);
