// The package managers that this machine does not have, above all Homebrew: what they are given, and which places are theirs.

import { expect, test } from "bun:test";
import { isPackagedPlace, packageEnvironment } from "../../../src/node/engine/overlay-package.ts";

test("Homebrew gets the home without which it refuses to run, and other managers do not", () => {
  const env = { HOME: "/Users/ada", AGENT_TOKEN: "secret" };
  const usual = {
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
    DEBIAN_FRONTEND: "noninteractive",
    LC_ALL: "C.UTF-8",
  };
  expect(packageEnvironment("brew", env)).toEqual({ ...usual, HOME: "/Users/ada" });
  expect(packageEnvironment("apt", env)).toEqual(usual);
});

test.each([
  ["darwin", "/opt/homebrew/bin/nebula", true],
  ["darwin", "/usr/local/bin/nebula", true],
  ["linux", "/usr/bin/nebula", true],
  ["linux", "/opt/homebrew/bin/nebula", false],
  ["darwin", "/usr/local/bin/overlay", false],
  ["win32", "/usr/bin/nebula", false],
] as const)("on %s, %s belongs to the package manager: %p", (platform, path, belongs) => {
  expect(isPackagedPlace(path, { platform, env: {} })).toBe(belongs);
});
