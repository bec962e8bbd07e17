// `agent setup --dry-run`: no plan for a run that fails.

import { expect, test } from "bun:test";
import { run } from "../../../src/cli/run.ts";
import { realSystem } from "../../../src/base/system.ts";

test("where systemd does not run, a plan ends like the run", async () => {
  let [out, err] = ["", ""];
  const words = "setup --dry-run --yes --public-name control.example.org --email ada@example.org";
  const status = await run(words.split(" "), {
    ...realSystem(),
    // A system without systemd.
    platform: "darwin",
    env: {},
    stdout: { write: (text) => void (out += text), isTerminal: false, columns: 80 },
    stderr: { write: (text) => void (err += text), isTerminal: false, columns: 80 },
  });
  expect([status, out]).toEqual([1, ""]);
  expect(err).toStartWith("agent: systemd does not run on this machine\n");
});
