// What healing leaves for support is in the doctor's bundle.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeBundle } from "../../../src/node/doctor/bundle.ts";
import { hangLog } from "../../../src/node/health/hanging-engine.ts";
import { writeLocalChanges } from "../../../src/node/files/config/local-changes.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("the bundle has the last lines of an engine that hung, and the addresses that are denied", async () => {
  using directory = temporaryDirectory();
  const log = join(directory.path, "acme.log");
  const logOf = () => log;
  const write = () =>
    writeBundle(join(directory.path, "report.tar.gz"), [], ["acme"], { configRoot: directory.path, logOf });
  expect(await write()).toEqual(["doctor.json"]);
  writeFileSync(hangLog(log), "goroutine 1 [running]\n");
  await Bun.write(join(directory.path, "acme/config.yml"), "pki: {}\n");
  writeLocalChanges(join(directory.path, "acme"), { denied: ["203.0.113.7"] });
  expect(await write()).toEqual([
    "doctor.json",
    "acme/config.yml",
    "acme/engine.log.hang",
    "acme/local-changes.json",
  ]);
});
