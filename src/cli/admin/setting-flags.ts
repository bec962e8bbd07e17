// Flags, values and shown words of settings, by their declarations (src/protocol/settings.ts).

import { itemOf, wordOf, type Setting, type Settings } from "../../protocol/settings.ts";
import { AppError } from "../../base/errors.ts";
import { given } from "../../base/given.ts";
import type { Context } from "../command.ts";
import { readNamedFile, switchFlag, valueFlag, type Flags } from "../values.ts";

/** The flags of all settings. `isNew`: for the command that creates, where an empty value has nothing to clear. */
export function settingFlags(settings: Settings, { isNew = false } = {}): Flags {
  return Object.assign({}, ...Object.values(settings).map((setting) => flagsOf(setting, { isNew })));
}

function flagsOf(setting: Setting, { isNew }: { isNew: boolean }): Flags {
  const { takes, flag, hint, words, none, help, removal, whole, secret, initial } = setting;
  const isSwitch = hint === undefined && words === undefined;
  if (isSwitch) return { [flag]: switchFlag(help, given({ negativeDescription: removal })) };
  const valueHint = [hint ?? words?.join("|"), none].filter(Boolean).join("|");
  // `--flag ""` clears the setting: its word for null is "", or an empty list is what a new one has.
  const mayBeEmpty = none === "" || (whole === true && Array.isArray(initial) && initial.length === 0);
  const clears: true | undefined = mayBeEmpty && !isNew ? true : undefined;
  const single = valueFlag(valueHint, help, given({ secret, clears }));
  if (!isList(takes)) return { [flag]: single };
  // A list that a change replaces as a whole: the flag once for each item. Other lists change item by item.
  if (whole === true) return { [flag]: { ...single, repeatable: true } };
  return {
    [`add-${flag}`]: valueFlag(valueHint, `${help} (repeatable)`, { repeatable: true }),
    [`remove-${flag}`]: valueFlag(valueHint, `${removal} (repeatable)`, { repeatable: true }),
  };
}

const isList = ({ type }: Setting["takes"]) => type === "array";

/** What the flags give, by field, not validated yet. Without lists that change item by item (--add-FLAG, --remove-FLAG). */
export async function readSettings(context: Context, settings: Settings): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const [field, setting] of Object.entries(settings)) found[field] = await readSetting(context, setting);
  return given(found);
}

/** The same for a command that changes. Throws usage without any flag. */
export async function readChanges(context: Context, settings: Settings): Promise<Record<string, unknown>> {
  const flags = Object.keys(settingFlags(settings));
  if (context.values.firstOf(flags) !== undefined) return readSettings(context, settings);
  const [first, second, ...more] = flags.map((flag) => `--${flag}`);
  const words = more.length === 0 ? `${first} or ${second}` : `such as ${first}, ${second} or ${more.at(-1)}`;
  throw new AppError("usage", `Say what to change: ${words}`);
}

/** What the flag of a setting gives, as the API has it; undefined without the flag. */
async function readSetting({ values, system }: Context, setting: Setting): Promise<unknown> {
  const { takes, flag, hint, words, none, range, file, whole, secret } = setting;
  // The first form that the declaration has decides: a secret, a whole list, words, a switch, null, a number, a file, a text.
  if (secret === true) return values.secret(flag);
  const text = values.text(flag);
  if (text === undefined) return undefined;
  if (whole === true)
    return values.list(flag).flatMap((item) => (item === "" ? [] : [itemIn(setting, item)]));
  if (words !== undefined) {
    // The API's value stands at the place of its word.
    const fieldValues = setting.values ?? (takes.type === "boolean" ? [false, true] : words);
    return fieldValues[words.indexOf(values.choice(flag, words) ?? "")];
  }
  if (hint === undefined) return values.on(flag);
  if (text === none) return null;
  if (range !== undefined) return values.integer(flag, range.min, range.max);
  if (file === undefined) return text;
  return file === "json" ? readJson(flag, text, system) : readNamedFile(flag, text, system);
}

/** One item of a list. Throws usage if a part is missing, or the last one is none of the words. */
function itemIn(setting: Setting, text: string): unknown {
  const { flag, parts = [], words, hint = "" } = setting;
  // Without a default for the last part, so that a command line without it is refused.
  const item = itemOf({ ...setting, lastPart: "" }, text);
  const partValues = parts.map((part) => Object(item)[part]);
  const isLastKnown = words === undefined || words.includes(partValues.at(-1));
  if (isLastKnown && !partValues.includes("")) return item;
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

/** A line for each changed setting, with its new value. `name`: of the thing. `answer`: the thing after the change. */
export const changedLines = (
  settings: Settings,
  { name, answer, changes }: { name: string; answer: object; changes: object },
): string =>
  settingFacts(settings, answer, Object.keys(changes))
    .map(([flag, value]) => `${name}: ${flag} is now ${String(value)}\n`)
    .join("");

/** `90 days`. Null where the control plane is too old to send the setting. */
function shownSetting(setting: Setting, value: unknown): string | null {
  if (value === undefined) return null;
  if (setting.file === "json") return Object.keys(Object(value)).join(", ") || "none";
  const word = wordOf(setting, value);
  return value === null || setting.unit === undefined ? word : `${word} ${setting.unit}`;
}

/** Settings and their shown values, under the names of the flags. `thing`: the organization or provider, as answered. */
export function settingFacts(settings: Settings, thing: object, fields = Object.keys(settings)) {
  const values = new Map<string, unknown>(Object.entries(thing));
  return fields.flatMap((field) => {
    const setting = settings[field];
    return setting === undefined ? [] : [[setting.flag, shownSetting(setting, values.get(field))] as const];
  });
}
