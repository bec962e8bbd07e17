// Flags, values and shown words of settings, by their declarations (src/protocol/settings.ts).

import { wordOf, type Setting, type Settings } from "../../protocol/settings.ts";
import { AppError } from "../../base/errors.ts";
import type { Context } from "../command.ts";
import { readNamedFile, type Flags } from "../values.ts";

export function settingFlags(settings: Settings): Flags {
  return Object.assign({}, ...Object.values(settings).map(flagsOf));
}

function flagsOf({ takes, flag, hint, words, none, help, removal = "" }: Setting): Flags {
  if (hint === undefined && words === undefined)
    return { [flag]: { type: "boolean", description: help, negativeDescription: removal } };
  const valueHint = words?.join("|") ?? [hint, none].filter(Boolean).join("|");
  if (!isList(takes)) return { [flag]: { type: "string", valueHint, description: help } };
  const list = { type: "string", valueHint, repeatable: true } as const;
  return {
    [`add-${flag}`]: { ...list, description: `${help} (repeatable)` },
    [`remove-${flag}`]: { ...list, description: `${removal} (repeatable)` },
  };
}

const isList = ({ type }: Setting["takes"]) => type === "array";

/** What the flags give, not validated yet. Not of lists, of which the flags say what changes. Throws usage without any. */
export async function readSettings(context: Context, settings: Settings): Promise<Record<string, unknown>> {
  const found: Record<string, unknown> = {};
  for (const [field, setting] of Object.entries(settings)) {
    if (context.values.text(setting.flag) !== undefined) found[field] = await valueOf(context, setting);
  }
  const flags = Object.keys(settingFlags(settings));
  if (!flags.some((flag) => context.values.text(flag) !== undefined))
    throw new AppError(
      "usage",
      `Say what to change: such as --${flags[0]}, --${flags[1]} or --config-overrides`,
    );
  return found;
}

async function valueOf(context: Context, setting: Setting) {
  const { takes, flag, hint, words, none, range } = setting;
  const values = setting.values ?? (takes.type === "boolean" ? [false, true] : words);
  const text = context.values.text(flag);
  if (hint === undefined && words === undefined) return context.values.on(flag);
  if (words !== undefined) return values?.[words.indexOf(context.values.choice(flag, words) ?? "")];
  if (text === none) return null;
  if (range !== undefined) return context.values.integer(flag, range.min, range.max);
  return hint === "FILE" ? readJson(context, flag) : text;
}

async function readJson({ values, system }: Context, flag: string): Promise<unknown> {
  const file = values.text(flag) ?? "";
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
  if (setting.hint === "FILE") return Object.keys(Object(value)).join(", ") || "none";
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
