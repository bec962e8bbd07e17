// The doctor asks a control plane that answers whether it is ready, and what it warns of.

import { expect, test } from "bun:test";
import { examineControlPlane } from "../../../src/node/doctor/control-plane.ts";
import { makeNodeWorld } from "../../support/node.ts";

async function startWorld() {
  const world = await makeNodeWorld();
  const organization = await world.register();
  // The listener adds the date.
  const fetch: typeof world.system.fetch = async (...request) => {
    const answer = await world.system.fetch(...request);
    answer.headers.set("Date", new Date(world.server.clock.ms).toUTCString());
    return answer;
  };
  const examine = () => examineControlPlane(organization, { ...world, system: { ...world.system, fetch } });
  return { ...world, examine };
}

const remedy = expect.stringContaining("agent admin server list");

test("what a control plane warns of is no failure of the node, but told", async () => {
  await using world = await startWorld();
  expect(await world.examine()).toMatchObject({ verdict: "ok" });
  world.server.clock.steppedMs += 500_000;
  world.server.clock.ms += 1;
  const evidence = "https://control.example answers, and warns: clock_doubted";
  expect(await world.examine()).toEqual({ verdict: "warn", evidence, remedy });
});

test("neither is a database that is away", async () => {
  await using world = await startWorld();
  await world.server.db.close();
  const evidence = expect.stringContaining("answers, but is not ready: The database is closed");
  expect(await world.examine()).toEqual({ verdict: "warn", evidence, remedy });
});
