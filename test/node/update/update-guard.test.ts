// What the guard of an update restores. Tests on booted machines cover the rest.

import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { guardUpdate } from "../../../src/node/update/update-guard.ts";
import { readMarker, writeMarker } from "../../../src/node/files/update-marker.ts";
import { realSystem } from "../../../src/base/system.ts";
import { standIn } from "../../support/releases.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

/** Runs the guard of an update from 0.1.0 to 0.2.0 with these versions as present and kept executable. */
async function guard(present: string, kept: string) {
  using directory = temporaryDirectory();
  const executable = join(directory.path, "agent");
  const stateDb = join(directory.path, "state.db");
  const program = (version: string) => standIn(version, "exit 0");
  writeFileSync(executable, program(present), { mode: 0o755 });
  writeFileSync(`${executable}.old`, program(kept), { mode: 0o755 });
  const marker = { executable, candidate: join(directory.path, "none"), from: "0.1.0", to: "0.2.0" };
  writeMarker(stateDb, { ...marker, started_at: "2026-01-01T00:00:00Z" });
  const { run, ...rest } = realSystem();
  const system = {
    ...rest,
    executable: `${executable}.old`,
    run: (argv: string[], options?: Parameters<typeof run>[1]) =>
      argv[0]?.startsWith(executable) === true
        ? run(argv, options)
        : Promise.resolve({ status: 0, stdout: "", stderr: "", timedOut: false }),
  };
  const quiet = () => {};
  const log = { debug: quiet, info: quiet, warn: quiet, error: quiet };
  await guardUpdate({ stateDb, system, log });
  const is = (version: string) => readFileSync(executable).equals(program(version));
  return {
    result: readMarker(stateDb)?.result,
    present: ["0.1.0", "0.2.0", "0.3.0"].find(is),
    isKept: existsSync(`${executable}.old`),
  };
}

test("the previous version is restored, and the failed one is deleted", async () => {
  expect(await guard("0.3.0", "0.1.0")).toEqual({ result: "returned", present: "0.1.0", isKept: false });
});

test("if an administrator has exchanged the two, the previous version stays", async () => {
  expect(await guard("0.1.0", "0.2.0")).toEqual({ result: "returned", present: "0.1.0", isKept: false });
});

test("a kept executable of another version is neither restored nor deleted", async () => {
  expect(await guard("0.3.0", "0.2.0")).toEqual({ result: "returned", present: "0.3.0", isKept: true });
});
