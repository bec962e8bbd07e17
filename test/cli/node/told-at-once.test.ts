// What root permits or offers reaches the control plane at once, with the next step for an administrator.

import { expect, test } from "bun:test";
import { makeNodeWorld } from "../../support/node.ts";

test.each([
  ["--advertise 192.168.7.0/24", "`agent admin route list acme`"],
  ["--advertise-exit", "`agent admin node update acme NODE --add-exit-group GROUP`"],
  ["--no-advertise-exit", ""],
  ["--allow-updates agent", ""],
])("sync-config %s tells the control plane", async (flags, next) => {
  await using world = await makeNodeWorld();
  await world.register();
  const planned = await world.agent(["sync-config", ...flags.split(" "), "--dry-run"]);
  expect([planned.status, planned.stdout.match(/POST.*\/checkin\//g)?.length]).toEqual([0, 1]);
  const { status, stderr } = await world.agent(["sync-config", ...flags.split(" ")]);
  expect([status, world.requests.filter((each) => each.includes("/checkin/")).length]).toEqual([0, 1]);
  expect(stderr).toContain(next);
});
