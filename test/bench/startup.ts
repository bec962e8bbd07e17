// `bun test/bench/startup.ts [RUNS]`: prints the start of the executable beside an empty program's. The bar is 2
// times.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildAgent } from "../support/agent.ts";
import { measureStartup } from "../support/startup.ts";

buildAgent();
const directory = mkdtempSync(join(tmpdir(), "agent-startup-"));
try {
  for (const { name, p10, p50, p90, ratio } of await measureStartup(
    directory,
    Number(process.argv[2] ?? 60),
  )) {
    const spread = `${p10.toFixed(1)} to ${p90.toFixed(1)}`;
    process.stdout.write(
      `${name.padEnd(26)} ${p50.toFixed(1)} ms (${spread}), ${ratio.toFixed(2)} times the empty program\n`,
    );
  }
} finally {
  rmSync(directory, { recursive: true, force: true });
}
