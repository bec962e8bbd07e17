import { expect, test } from "bun:test";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realSystem } from "../src/system.ts";
import { temporaryDirectory } from "./support/temporary.ts";

test("programs are started by absolute path alone: neither PATH nor the present directory is searched", async () => {
  using directory = temporaryDirectory();
  const program = join(directory.path, "program");
  writeFileSync(program, "#!/bin/sh\necho started\n");
  chmodSync(program, 0o755);
  const { run } = realSystem();
  expect((await run([program])).stdout).toBe("started\n");
  const cwd = directory.path;
  for (const name of ["program", "./program", "sh", ""]) {
    expect(await run([name], { cwd }).catch((error: unknown) => String(error))).toContain("absolute path");
  }
});
