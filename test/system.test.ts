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

test("children get no variable of ours: a token may be among them", async () => {
  process.env["AGENT_REGISTRATION_TOKEN"] = "secret";
  try {
    const { stdout } = await realSystem().run(["/bin/sh", "-c", "env"]);
    expect(stdout).toContain("PATH=");
    expect(stdout).not.toContain("AGENT_");
  } finally {
    delete process.env["AGENT_REGISTRATION_TOKEN"];
  }
});

test("a program's output is read to its end, however much it is, and it costs no time afterwards", async () => {
  const script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 3";
  const source = join(import.meta.dir, "../src/system.ts");
  const child = Bun.spawnSync([
    process.execPath,
    "-e",
    `import { realSystem } from ${JSON.stringify(source)};
     const begin = performance.now();
     const { status, stdout } = await realSystem().run(["/bin/sh", "-c", ${JSON.stringify(script)}]);
     process.on("exit", () => console.log(status, stdout.length, performance.now() - begin < 1500));`,
  ]);
  expect(child.stdout.toString()).toBe("3 3000000 true\n");
});

test("a program that leaves something running is not waited for longer than it lives", async () => {
  const begin = performance.now();
  const { status, stdout } = await realSystem().run(["/bin/sh", "-c", "echo done; sleep 30 & exit 0"]);
  expect([status, stdout]).toEqual([0, "done\n"]);
  expect(performance.now() - begin).toBeLessThan(20_000);
});

test("a program that does not end is ended", async () => {
  expect((await realSystem().run(["/bin/sleep", "60"], { timeoutMs: 100 })).timedOut).toBe(true);
});
