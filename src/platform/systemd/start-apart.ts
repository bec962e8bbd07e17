// Starts a program that must outlive what starts it: a unit of systemd ends its programs, or keeps them in its sandbox.

import { hasSystemd } from "../service-manager.ts";
import type { RunOptions, RunResult } from "../run-program.ts";
import { withoutVariables } from "./unit-file.ts";
import { childEnvironment } from "../../base/system.ts";

type UsedSystem = {
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  env: Record<string, string | undefined>;
  platform: string;
};

/** The command that has systemd run a program, as it would by a unit's file: with $ doubled in its arguments. */
export function transientUnit(name: string, [program = "", ...words]: readonly string[]): string[] {
  // OOMPolicy: if the kernel kills a child for want of memory, systemd does not end the program with it.
  const how = ["--quiet", "--collect", "--unit", name, "--property", "OOMPolicy=continue"];
  return ["/usr/bin/systemd-run", ...how, "--", program, ...words.map(withoutVariables)];
}

/** `name`: of the transient unit. A unit of that name that runs already stays the only one. */
export async function startApart(name: string, argv: readonly string[], system: UsedSystem): Promise<void> {
  // A parent with the id 1 is systemd: this process is a service.
  if (hasSystemd(system) && process.ppid === 1) {
    await system.run(transientUnit(name, argv));
    return;
  }
  Bun.spawn([...argv], {
    cwd: "/",
    env: childEnvironment(system.env),
    stdin: "ignore",
    stdout: "ignore",
    stderr: "ignore",
    detached: true,
  }).unref();
}
