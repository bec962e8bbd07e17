// The settings file of the control plane: a flat TOML file whose keys are the flags of `serve`. Strict, because a
// misspelled key would silently keep the default.

import * as v from "valibot";
import { boundedText } from "../base/text.ts";
import { brand } from "../brand.ts";
import { AppError, messageOf } from "../base/errors.ts";
import { readTextIfThere } from "../base/files.ts";
import { strictRecord } from "../base/strict-record.ts";
import { nearest } from "./suggest.ts";
import { flagsOf, withSecretFiles, type Args, type Flags, type Values } from "./values.ts";

const maxBytes = 65_536;
const word = boundedText(4096);
const Setting = v.union([word, v.number(), v.boolean(), v.pipe(v.array(word), v.maxLength(1000))]);
type Setting = v.InferOutput<typeof Setting>;
const SettingsFile = v.pipe(strictRecord(boundedText(100), Setting), v.maxEntries(100));

/** Adds the values of the file that --config names. Throws bad_configuration with the file and the key. */
export async function withSettingsFile(values: Values, args: Args): Promise<Values> {
  const path = values.text("config");
  if (path === undefined) return values;
  const text = readTextIfThere(path);
  if (text === undefined) throw new AppError("bad_configuration", `There is no settings file ${path}`);
  const { config: _, ...flags } = flagsOf(withSecretFiles(args));
  return values.withDefaults(readSettings(text, path, flags));
}

/** By flag. `path` is for errors only. Throws bad_configuration for what is no flag, or not in the form of the flag. */
export function readSettings(text: string, path: string, flags: Flags): Map<string, readonly string[]> {
  const found = Object.entries(parseSettings(text, path));
  return new Map(found.map(([name, value]) => [name, valuesOf(name, value, path, flags)]));
}

/** The file's values, without knowing flags. */
export function parseSettings(text: string, path: string): Record<string, Setting> {
  if (text.length > maxBytes)
    throw new AppError("bad_configuration", `${path} is larger than ${maxBytes} bytes`);
  let raw: unknown;
  try {
    raw = Bun.TOML.parse(text);
  } catch (error) {
    throw new AppError("bad_configuration", `${path} is not valid TOML: ${messageOf(error)}`, {
      hint: 'Each line is like: listen = "0.0.0.0:443"',
    });
  }
  const parsed = v.safeParse(SettingsFile, raw);
  if (parsed.success) return parsed.output;
  const key = v.getDotPath(parsed.issues[0]) ?? "a key";
  throw new AppError(
    "bad_configuration",
    `${path}: ${key} must be a text, a number, true, false or a list of texts`,
  );
}

/** The values of a flag, as the command line would give them. */
function valuesOf(name: string, value: Setting, path: string, flags: Flags): readonly string[] {
  const flag = Object.hasOwn(flags, name) ? flags[name] : undefined;
  if (flag === undefined) {
    const candidate = nearest(name, Object.keys(flags));
    const hint = candidate === undefined ? "" : `Did you mean ${candidate}? `;
    throw new AppError("bad_configuration", `${path} sets ${name}, which is no flag of serve`, {
      hint: `${hint}The keys are the flags of \`${brand.executable} serve --help\` without their dashes.`,
    });
  }
  if (Array.isArray(value) && flag.repeatable === undefined)
    throw new AppError("bad_configuration", `${path}: ${name} takes one value, not a list`);
  if ((typeof value === "boolean") !== (flag.type === "boolean")) {
    const form =
      flag.type === "boolean" ? "true or false, without quotes" : `a text such as "${flag.valueHint}"`;
    throw new AppError("bad_configuration", `${path}: ${name} must be ${form}`);
  }
  return Array.isArray(value) ? value : [String(value)];
}
