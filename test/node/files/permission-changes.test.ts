// What a command says of permissions that it changed.

import { expect, test } from "bun:test";
import { permissionChanges } from "../../../src/node/files/granted/permission-flags.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test.each(["advertise_exit", "no_flows", "no_port_mapping"] as const)("a change of %s is said", (key) => {
  using directory = temporaryDirectory();
  const flag = key.replaceAll("_", "-");
  expect(permissionChanges(directory.path, { [key]: true })).toEqual([
    { flag, text: `--${flag} is now on, was off` },
  ]);
  expect(permissionChanges(directory.path, { [key]: false })).toEqual([]);
});
