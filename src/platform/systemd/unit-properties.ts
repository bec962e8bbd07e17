// Reads properties of a systemd unit: the one place that calls `systemctl show`. Keep this file light: `status` loads it.

import type { System } from "../../base/system.ts";

const systemctl = "/usr/bin/systemctl";

/** Empty values for a unit that does not exist, and without systemd. */
export async function unitProperties<Name extends string>(
  unit: string,
  names: readonly Name[],
  system: Pick<System, "run">,
): Promise<Record<Name, string>>;
export async function unitProperties(
  unit: string,
  names: readonly string[],
  system: Pick<System, "run">,
): Promise<Record<string, string>> {
  const argv = [systemctl, "--no-ask-password", "show", `--property=${names.join(",")}`, unit];
  const { stdout } = await system.run(argv);
  const lines = stdout.split("\n");
  const valueOf = (name: string) =>
    lines.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1) ?? "";
  return Object.fromEntries(names.map((name) => [name, valueOf(name)]));
}

/** The program in the property ExecStart; undefined if there is none. */
export const startedProgram = (execStart: string): string | undefined =>
  /^\{ path=(.*?) ; argv\[\]=/.exec(execStart)?.[1];
