// Flags, values and shown words of settings, by their declarations (src/protocol/settings.ts).

import { itemOf, wordOf, type Setting, type Settings } from "../../protocol/settings.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Context } from "../command.ts";
import { readNamedFile, type Flags } from "../values.ts";

/** `isNew`: of the command that creates: nothing can be emptied there. */
export function settingFlags(settings: Settings, { isNew = false } = {}): Flags {
  return Object.assign({}, ...Object.values(settings).map((setting) => flagsOf(setting, isNew)));
}

function flagsOf(setting: Setting, isNew: boolean): Flags {
  const { takes, flag, hint, words, none, help, removal, whole, secret, initial } = setting;
  if (hint === undefined && words === undefined)
    return { [flag]: { type: "boolean", description: help, ...given({ negativeDescription: removal }) } };
  const valueHint = [hint ?? words?.join("|"), none].filter(Boolean).join("|");
  // A list may be empty if it begins so.
  const isEmptied = none === "" || (whole === true && initial?.toString() === "");
  const clears: true | undefined = isEmptied && !isNew ? true : undefined;
  const one = { type: "string", valueHint, description: help, ...given({ secret, clears }) } as const;
  if (!isList(takes)) return { [flag]: one };
  const list = { type: "string", valueHint, repeatable: true } as const;
  if (whole === true) return { [flag]: { ...one, repeatable: true } };
  return {
    [`add-${flag}`]: { ...list, description: `${help} (repeatable)` },
    [`remove-${flag}`]: { ...list, description: `${removal} (repeatable)` },
  };
}

const isList = ({ type }: Setting["takes"]) => type === "array";

/** What the flags give, not validated yet. Not of lists that change item by item. */
export async function readSettings(context: Context, settings: Settings): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const [field, setting] of Object.entries(settings)) found[field] = await valueOf(context, setting);
  return given(found);
}

/** The same, of a command that changes. Throws usage without any flag. */
export async function readChanges(context: Context, settings: Settings): Promise<Record<string, unknown>> {
  const flags = Object.keys(settingFlags(settings));
  if (flags.some((flag) => context.values.text(flag) !== undefined)) return readSettings(context, settings);
  const [first, second, ...more] = flags.map((flag) => `--${flag}`);
  const words = more.length === 0 ? `${first} or ${second}` : `such as ${first}, ${second} or ${more.at(-1)}`;
  throw new AppError("usage", `Say what to change: ${words}`);
}

async function valueOf({ values, system }: Context, setting: Setting): Promise<unknown> {
  const { takes, flag, hint, words, none, range, file, whole, secret } = setting;
  if (secret === true) return values.secret(flag);
  const text = values.text(flag);
  if (text === undefined) return undefined;
  if (whole === true)
    return values.list(flag).flatMap((item) => (item === "" ? [] : [itemIn(setting, item)]));
  const fieldValues = setting.values ?? (takes.type === "boolean" ? [false, true] : words);
  if (words !== undefined) return fieldValues?.[words.indexOf(values.choice(flag, words) ?? "")];
  if (hint === undefined) return values.on(flag);
  if (text === none) return null;
  if (range !== undefined) return values.integer(flag, range.min, range.max);
  if (file === undefined) return text;
  return file === "json" ? readJson(flag, text, system) : readNamedFile(flag, text, system);
}

function itemIn(setting: Setting, text: string): unknown {
  const { flag, parts = [], words, hint = "" } = setting;
  const item = itemOf({ ...setting, lastPart: "" }, text);
  const values = parts.map((part) => Object(item)[part]);
  if (!values.includes("") && (words?.includes(values.at(-1)) ?? true)) return item;
  const forms = words?.map((word) => hint.replace(/\w+$/, word)).join(" or ") ?? hint;
  throw new AppError("usage", `--${flag} must be ${forms}, not "${text}"`);
}

async function readJson(flag: string, file: string, system: Context["system"]): Promise<unknown> {
  const text = await readNamedFile(flag, file, system);
  try {
    return JSON.parse(text);
  } catch (error) {
    const name = file === "-" ? "standard input" : file;
    throw new AppError("usage", `--${flag}: ${name} is not JSON`, {
      cause: error,
      hint: 'Give an object such as {} or {"tun":{"mtu":1400}}.',
    });
  }
}

/** A line for each changed setting, with its new value. `of`: as the control plane answered. */
export const changedLines = (settings: Settings, name: string, of: object, changed: object): string =>
  settingFacts(settings, of, Object.keys(changed))
    .map(([flag, value]) => `${name}: ${flag} is now ${String(value)}\n`)
    .join("");

/** `90 days`. Null where the control plane is too old to send the setting. */
function shownSetting(setting: Setting, value: unknown): string | null {
  if (value === undefined) return null;
  if (setting.file === "json") return Object.keys(Object(value)).join(", ") || "none";
  const word = wordOf(setting, value);
  return value === null || setting.unit === undefined ? word : `${word} ${setting.unit}`;
}

/** Under the names of the flags. */
export function settingFacts(settings: Settings, of: object, fields = Object.keys(settings)) {
  const values = new Map<string, unknown>(Object.entries(of));
  return fields.flatMap((field) => {
    const setting = settings[field];
    return setting === undefined ? [] : [[setting.flag, shownSetting(setting, values.get(field))] as const];
  });
}
