// Runs `agent admin …` in this process, on the data of a test.

import { expect } from "bun:test";
import { run } from "../../src/cli/run.ts";
import { realSystem } from "../../src/base/system.ts";

export type AdminResult = { status: number; out: string; err: string };

export async function runAdmin(data: string, args: readonly string[], input = ""): Promise<AdminResult> {
  let [out, err] = ["", ""];
  const status = await run(["admin", ...args, "--data-dir", data], {
    ...realSystem(),
    env: {},
    stdout: { write: (text) => void (out += text), isTerminal: false, columns: 80 },
    stderr: { write: (text) => void (err += text), isTerminal: false, columns: 80 },
    readStdin: async () => input,
    stdinIsTerminal: false,
  });
  return { status, out, err };
}

/** A command that must succeed: its JSON document. */
export async function adminJson(data: string, args: readonly string[]): Promise<unknown> {
  const { status, out, err } = await runAdmin(data, [...args, "--json"]);
  expect([args.join(" "), status, status === 0 ? "" : out + err]).toEqual([args.join(" "), 0, ""]);
  return JSON.parse(out);
}
