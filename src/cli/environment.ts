// Whether the environment of a service holds a variable of ours that no command knows: a misspelt one would silently
// leave its setting at the default.

import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import type { System } from "../system.ts";
import type { Command } from "./command.ts";
import type { Flags } from "./values.ts";
import { nearest } from "./parse.ts";

type Loaders = Record<string, { load(): Promise<{ command: Command }> }>;

/** Throws bad_configuration naming the nearest variable. `own`: the flags of the command that runs. */
export async function refuseUnknownVariables(
  env: System["env"],
  own: Flags,
  commands: Loaders,
): Promise<void> {
  const given = Object.keys(env).filter((name) => name.startsWith(brand.envPrefix));
  const strange = (known: ReadonlySet<string>) => given.filter((name) => !known.has(name));
  const ours = new Set(variablesOf(own));
  if (strange(ours).length === 0) return;
  // Rare, and worth loading all commands: a variable of another one is no mistake.
  for (const { load } of Object.values(commands)) {
    for (const name of variablesOf((await load()).command.flags ?? {})) ours.add(name);
  }
  const [unknown] = strange(ours);
  if (unknown === undefined) return;
  const candidate = nearest(unknown, [...ours]);
  throw new AppError("bad_configuration", `Unknown variable ${unknown} in the environment`, {
    hint: `${candidate === undefined ? "" : `Did you mean ${candidate}? `}Correct it or unset it.`,
  });
}

function variablesOf(flags: Flags): string[] {
  return Object.entries(flags).flatMap(([name, { secret }]) => {
    const variable = brand.envPrefix + name.toUpperCase().replaceAll("-", "_");
    return secret === true ? [variable, `${variable}_FILE`] : [variable];
  });
}
