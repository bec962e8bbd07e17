import { expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { runFailover } from "../../../src/node/routing/failover.ts";
import { runRouter } from "../../../src/node/routing/router.ts";
import { realSystem } from "../../../src/base/system.ts";
import { emptyMachine } from "../../support/machine.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("failures of routers name their organization: a machine may be in several", async () => {
  using root = temporaryDirectory();
  const directory = join(root.path, "acme");
  // It cannot be read.
  mkdirSync(join(directory, "config.yml"), { recursive: true });
  for (const run of [runRouter, runFailover]) {
    const lines: unknown[] = [];
    const end = new AbortController();
    const note = (_: string, fields?: object) => {
      lines.push(fields);
      end.abort();
    };
    const system = { ...realSystem(), machineState: async () => emptyMachine };
    const open = async () => "denied" as const;
    const log = { info: note, warn: note };
    const apply = async () => false;
    await run({ directory, system, open, monotonic: () => 0, log, apply }, end.signal);
    expect(lines).toEqual([expect.objectContaining({ team: "acme" })]);
  }
});
