// No text makes a process hang: quadratic expressions take minutes for what is read here in seconds.

import { expect, test } from "bun:test";
import { join } from "node:path";

test("1 MB of each shape passes all that reads or shows foreign text, and what is shown is short", async () => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "support", "long-texts.ts")], {
    stdout: "pipe",
    stderr: "pipe",
    timeout: 120_000,
    killSignal: "SIGKILL",
  });
  const [names, faults] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  // The last name is that of the reader which hangs.
  expect({ last: names.trim().split("\n").at(-1), faults }).toEqual({ last: "done", faults: "" });
}, 130_000);
