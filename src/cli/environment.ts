// Refuses an AGENT_ variable that no command knows: with a misspelled one, a service would silently keep the default.

import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import type { System } from "../base/system.ts";
import type { CommandTable } from "./command.ts";
import { nearest } from "./suggest.ts";
import { flagsOf, variableOf, type Args } from "./values.ts";

/** Throws bad_configuration with the nearest variable. `own`: the arguments of the running command. */
export async function refuseUnknownVariables(
  env: System["env"],
  own: Args,
  allCommands: () => Promise<CommandTable>,
): Promise<void> {
  const given = Object.keys(env).filter((name) => name.startsWith(brand.envPrefix));
  const known = new Set(variablesOf(own));
  const findUnknown = () => given.find((name) => !known.has(name));
  if (findUnknown() === undefined) return;
  // A variable of another command is fine. Loading all commands is slow, but this is rare.
  for (const command of Object.values(await allCommands())) {
    for (const name of variablesOf(await command.args())) known.add(name);
  }
  const variable = findUnknown();
  if (variable === undefined) return;
  const candidate = nearest(variable, [...known]);
  throw new AppError("bad_configuration", `Unknown variable ${variable} in the environment`, {
    hint: `${candidate === undefined ? "" : `Did you mean ${candidate}? `}Correct it or unset it.`,
  });
}

function variablesOf(args: Args): string[] {
  return Object.keys(flagsOf(args)).map(variableOf);
}
