// The status of an organization from its files, and what of it is cached.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Supervisor } from "../../src/daemon/supervisor.ts";
import { OrganizationStatus } from "../../src/daemon/organization-status.ts";
import { makeNodeWorld } from "../support/node.ts";

test("a failure to read the files is not cached: it may pass without a change of the directory", async () => {
  await using world = await makeNodeWorld();
  const { directory } = await world.register();
  const fetch = () => Promise.reject(new Error("no network"));
  const status = new OrganizationStatus(world.root, { now: () => Date.now() + 60_000, fetch });
  const supervisor = { state: { phase: { is: "stopped" } } } as unknown as Supervisor;
  const observed = { supervisor, record: { wanted: "down", forgotten: false } } as const;
  const show = () => status.describe("acme", observed, { active: false, notice: undefined });
  const path = join(directory, "node-config.json");
  const good = readFileSync(path, "utf8");
  writeFileSync(path, "{");
  expect(show()).toMatchObject({ ip_address: "", message: expect.stringContaining("node-config.json") });
  writeFileSync(path, good);
  expect(show().ip_address).not.toBe("");
  expect(show().message).toBeUndefined();
});
