// Root never runs an engine file that other users can replace: not in a command, not in a check-in, not in doctor.

import { afterEach, beforeEach, expect, test } from "bun:test";
import { chmodSync, chownSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { organizationDeps } from "../../../src/node/contact/organization-deps.ts";
import { engineVersion, testConfig } from "../../../src/node/engine/engine.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { rejection } from "../../pki/thrown.ts";
import { makeNodeWorld, nodePath, syncNow, type NodeWorld } from "../../support/node.ts";

let world: NodeWorld;
let engine: string;
let ran: string;

beforeEach(async () => {
  world = await makeNodeWorld();
  await world.register();
  engine = world.settings.overlayBinary;
  ran = `${engine}.ran`;
  writeFileSync(engine, `#!/bin/sh\ntouch ${ran}\necho "Version: 1.10.3"\n`, { mode: 0o755 });
});

afterEach(() => world[Symbol.asyncDispose]());

const isRoot = process.getuid?.() === 0;
const ways: [string, () => void][] = [
  ["a file of another user", () => chownSync(engine, 65_534, 65_534)],
  ["a file that everyone can write", () => chmodSync(engine, 0o777)],
  ["a directory that everyone can write", () => chmodSync(join(engine, ".."), 0o777)],
];

for (const [what, make] of ways) {
  test.skipIf(!isRoot)(`${what}: overlay check, doctor, checkin and check-auth do not run it`, async () => {
    make();
    const checked = await world.agent(["overlay", "check"]);
    expect([checked.status, checked.stderr]).toEqual([1, expect.stringContaining("Root must not run")]);
    expect((await world.agent(["doctor", "--json"])).stdout).toContain("Root must not run");
    expect((await world.agent(["checkin"])).status).toBe(0);
    expect((await world.agent(["check-auth"])).status).toBe(0);
    expect(existsSync(ran)).toBe(false);
    expect((await rejection(engineVersion(engine, world.system))).code).toBe("engine_failed");
    expect((await rejection(testConfig(engine, "/c", world.system))).code).toBe("engine_failed");
    // Other users do not gain anything by running it themselves.
    expect(await engineVersion(engine, { ...world.system, isRoot: false })).toBe("1.10.3");
  });

  test.skipIf(!isRoot)(`${what}: changes are applied without its test`, async () => {
    make();
    const organization = openOrganization(world.root, "acme");
    const { engine: inUse } = organizationDeps(organization, "test", world);
    expect(await inUse()).toEqual({
      isRunning: false,
      path: engine,
      next: undefined,
      running: undefined,
      version: undefined,
    });
    await world.api("POST", "/api/org/acme/groups/", { name: "new" });
    await world.api("PATCH", nodePath(organization), { groups: ["new"] });
    expect(await syncNow(world, organization, undefined, engine)).toMatchObject({ result: "changed" });
    expect(existsSync(ran)).toBe(false);
  });
}
