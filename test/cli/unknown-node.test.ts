// What `agent up` says where no lighthouse answers because the control plane has lost this node.

import { expect, test } from "bun:test";
import { unknownToControlPlane } from "../../src/cli/join/examine-joined.ts";
import { makeNodeWorld } from "../support/node.ts";

test("a node that an older backup lacks has to register again; a known one, and an outage, are other causes", async () => {
  await using world = await makeNodeWorld();
  const organization = await world.register();
  const tokenBecomes = (sql: string) =>
    world.server.db.write(async (tx) => {
      await tx.run(`UPDATE nodes SET token_hash = ${sql}`);
    });
  await tokenBecomes("'former ' || token_hash");
  const said = await unknownToControlPlane(organization, world);
  expect(said).toContain("does not know this node any more");
  expect(said).toContain("`agent unregister --org-slug acme`");
  expect(said).toContain("`agent admin token create acme --node alpha`");
  await tokenBecomes("substr(token_hash, 8)");
  expect(await unknownToControlPlane(organization, world)).toBe("");
  const offline = { ...world.system, fetch: () => Promise.reject(new Error("no network")) };
  expect(await unknownToControlPlane(organization, { ...world, system: offline })).toBe("");
});
