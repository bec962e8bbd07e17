// What an update of the engine leaves that did not start.

import { expect, test } from "bun:test";
import { lstatSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { rememberEngine } from "../../../src/node/engine/overlay-install.ts";
import { realSystem } from "../../../src/base/system.ts";
import { engineNamed } from "../../support/engines.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("where the package's engine ran before, a link to it, so that it counts as chosen and starts", () => {
  const { nebula } = engineNamed("debian");
  using directory = temporaryDirectory();
  const target = join(directory.path, "overlay");
  const places = {
    overlayBinary: target,
    overlayBinaryGiven: false,
    configRoot: directory.path,
    stateDb: join(directory.path, "db"),
  };
  const undo = rememberEngine(places, realSystem());
  writeFileSync(target, "the new engine", { mode: 0o755 });
  expect(undo()).toBe(true);
  expect(lstatSync(target).isSymbolicLink()).toBe(true);
  expect(readlinkSync(target)).toBe(nebula);
});
