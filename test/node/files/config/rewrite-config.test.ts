// Healing writes config.yml again: its own changes come into force, and nothing else.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeLocalSync } from "../../../../src/node/contact/local-sync.ts";
import { noneInUse } from "../../../../src/node/engine/engine-in-use.ts";
import { localApiSection } from "../../../../src/node/files/config/config-file.ts";
import { keepPort, rewriteConfig } from "../../../../src/node/files/config/rewrite-config.ts";
import { stringifyYaml } from "../../../../src/base/yaml.ts";
import { useSentConfig } from "../../../support/sent-config.ts";
import { machineAt } from "../../../support/machine.ts";
import { makeControl } from "../../../support/node.ts";

const here = useSentConfig();
const denied = { "203.0.113.7/32": false, "0.0.0.0/0": true };

/** As for an engine with a control socket. */
function withSocket(): void {
  const { directory } = here.organization;
  const config = { ...here.present(), local_api: localApiSection(directory) };
  writeFileSync(join(directory, "config.yml"), stringifyYaml(config));
}

const rewrite = (...addresses: string[]) =>
  rewriteConfig({ ...here.organization, seal: undefined }, machineAt(here.world.root), {
    healing: { denied: addresses },
  });

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

test("the port of the running engine is kept for the next start, through new configurations, until it is lost", async () => {
  const { directory } = here.organization;
  const deps = {
    command: "test",
    system: { ...here.world.system, machineState: async () => machineAt(here.world.root) },
  };
  await here.sync();
  const port = () => here.section("listen")["port"];
  expect(port()).toBe(0);
  await keepPort(here.organization, 40_001, deps);
  expect(port()).toBe(40_001);
  // The running engine has it already.
  let restarts = 0;
  here.tamper((config) => ({ ...config, logging: { level: "warning" } }));
  await here.sync({ ...makeControl(), restart: async () => void restarts++ });
  expect([port(), restarts, here.section("logging")["level"]]).toEqual([40_001, 0, "warning"]);
  await keepPort(here.organization, undefined, deps);
  expect(port()).toBe(0);
  // Where root or the organization asks for a port, that one holds.
  writeFileSync(join(directory, "overrides.yml"), "listen: {port: 4250}\n");
  await here.sync();
  await keepPort(here.organization, 40_001, deps);
  expect(port()).toBe(4250);
});

test("a kept port that another program took while the engine was off is given up, and one of a running engine is not", async () => {
  await here.sync();
  const machine = {
    ...machineAt(here.world.root),
    sockets: () => [{ protocol: "udp" as const, address: undefined, port: 40_001 }],
  };
  const system = { ...here.world.system, machineState: async () => machine };
  const port = () => here.section("listen")["port"];
  const look = (isRunning: boolean) =>
    makeLocalSync(here.organization, {
      control: { ...makeControl(), process: async () => (isRunning ? { pid: 1, started: "1" } : undefined) },
      engine: async () => noneInUse,
      command: "test",
      log: here.world.log,
      system,
    })();
  await keepPort(here.organization, 40_001, { command: "test", system });
  await look(true);
  expect(port()).toBe(40_001);
  await look(false);
  expect(port()).toBe(0);
});
