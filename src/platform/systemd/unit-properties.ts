// Reads properties of a systemd unit: the one place that calls `systemctl show`. Keep this file light: `status` loads it.

import type { System } from "../../base/system.ts";

const systemctl = "/usr/bin/systemctl";

/**
 * The properties of a unit; empty those that systemd does not name. Undefined: systemd did not answer, which says nothing about
 * the unit. It also answers for a unit that does not exist.
 */
export async function unitProperties<Name extends string>(
  unit: string,
  names: readonly Name[],
  system: Pick<System, "run">,
): Promise<Record<Name, string> | undefined>;
export async function unitProperties(
  unit: string,
  names: readonly string[],
  system: Pick<System, "run">,
): Promise<Record<string, string> | undefined> {
  const argv = [systemctl, "--no-ask-password", "show", `--property=${names.join(",")}`, unit];
  const { stdout } = await system.run(argv);
  const lines = stdout.split("\n");
  const valueOf = (name: string) => lines.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1);
  const values = names.map((name) => [name, valueOf(name)] as const);
  if (values.every(([, value]) => value === undefined)) return undefined;
  return Object.fromEntries(values.map(([name, value = ""]) => [name, value]));
}

const maxTries = 3;

/** Like unitProperties, but asks up to three times while systemd does not answer. */
export async function askedProperties<Name extends string>(
  unit: string,
  names: readonly Name[],
  system: Pick<System, "run" | "sleep">,
): Promise<Record<Name, string> | undefined> {
  for (let tries = 1; ; tries++) {
    const answer = await unitProperties(unit, names, system);
    if (answer !== undefined || tries === maxTries) return answer;
    await system.sleep(200);
  }
}

/** The program in the property ExecStart; undefined if there is none. */
export const startedProgram = (execStart: string): string | undefined =>
  /^\{ path=(.*?) ; argv\[\]=/.exec(execStart)?.[1];
