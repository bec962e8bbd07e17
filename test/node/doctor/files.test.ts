import { expect, test } from "bun:test";
import { chmodSync, rmSync } from "node:fs";
import { join } from "node:path";
import { examineFiles } from "../../../src/node/doctor/organization.ts";
import { openOrganization } from "../../../src/node/files/organizations.ts";
import { makeNodeWorld } from "../../support/node.ts";

test("a missing key is cured by a registration: no check-in brings it", async () => {
  await using world = await makeNodeWorld();
  const { directory, slug } = await world.register();
  const organization = openOrganization(join(directory, ".."), slug);
  expect(examineFiles(organization).verdict).toBe("ok");
  chmodSync(join(directory, "credentials.json"), 0o644);
  rmSync(join(directory, "node.crt"));
  expect(examineFiles(organization).remedy).toBe(
    `chmod 600 ${join(directory, "credentials.json")} && agent sync-config`,
  );
  rmSync(join(directory, "node.key"));
  const { evidence, remedy } = examineFiles(organization);
  expect(evidence).toContain("node.key is missing");
  expect(remedy).toStartWith("agent register --force ");
  expect(remedy).not.toContain("sync-config");
});
