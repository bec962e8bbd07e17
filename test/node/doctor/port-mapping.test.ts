// Why the doctor says that no router was asked for a port.

import { expect, test } from "bun:test";
import { examinePortMapping } from "../../../src/node/doctor/port-mapping.ts";
import { emptyMachine } from "../../support/machine.ts";
import { makeNodeWorld } from "../../support/node.ts";

test.each([
  [false, ["192.0.2.1"], "the overlay does not run"],
  [true, ["fe80::1"], "this machine has no default gateway of IPv4"],
  [true, ["192.0.2.1"], "the overlay started just now, or the agent that asks does not run"],
])("an overlay that runs: %p, with the gateways %p: %s", async (isRunning, gateways, why) => {
  await using world = await makeNodeWorld();
  const { directory, config } = await world.register();
  const organization = { directory, config: { ...config, is_lighthouse: false } };
  const system = { machineState: async () => ({ ...emptyMachine, gateways }) };
  expect(await examinePortMapping(organization, isRunning, system)).toMatchObject({
    verdict: "skipped",
    evidence: `No router was asked for a port: ${why}`,
  });
});
