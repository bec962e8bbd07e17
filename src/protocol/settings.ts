// What a setting is: a field that people change, declared once beside the schemas of its subject (src/api/organizations.ts,
// nodes.ts). Requests, answers, flags, `show`, the console's forms and the documents follow from it. Imports nothing at run
// time, because browsers load it.

import type * as v from "valibot";

export type Scalar = string | number | boolean | null;
export type Setting = {
  /** What requests may give. Browsers get neither this schema nor the next. */
  takes: v.GenericSchema;
  /** What answers hold, unless the answer's own schema has the field. */
  sends?: v.GenericSchema;
  /**
   * The flag of the `update` command. `show` and the documents have this name too. Of a list: --add-FLAG and --remove-FLAG, or,
   * if a change replaces the `whole` of it, the flag once for each item.
   */
  flag: string;
  /** One line, for help and documents. */
  help: string;
  /** The help of --no-FLAG or --remove-FLAG. */
  removal?: string;
  /** The value in the help of the flag, where `words` do not say it. A switch with neither is --FLAG and --no-FLAG. */
  hint?: string;
  /** All words of the flag: of a switch, those for false and true; of items, those of the last part. */
  words?: readonly string[];
  /** What `words` stand for, where that is neither a switch nor the words themselves. */
  values?: readonly Scalar[];
  /**
   * The word of the flag for null. "": `update` clears the setting by an empty value, which `create` does not take. So it does with a
   * `whole` list whose `initial` value is empty.
   */
  none?: string;
  /** Of a list: a change replaces all of it. */
  whole?: true;
  /** Of a list of objects: their fields, in the order of the text `GROUP=ORG:ROLE`. */
  parts?: readonly string[];
  /** What the last part is if the console's text has none. */
  lastPart?: string;
  /** The value of a new organization, node or so, unless the request has another. */
  initial?: Scalar | readonly string[];
  /** The flag names a file. */
  file?: "json" | "text";
  /** Never in answers and events. A second flag, --FLAG-file, reads it from a file. */
  secret?: true;
  /** Of a whole number. */
  range?: { min: number; max: number };
  unit?: "s" | "minutes" | "days";
  /** Its part of the console's page. Without one, the page does not have it. */
  section?: string;
  label?: string;
  /** Below the console's field. */
  more?: string;
  placeholder?: string;
  /** The console has a line of its own for each item of the list, not commas. */
  lines?: true;
  /** The console's words for `words`. */
  choices?: readonly string[];
  /** The numbers that the console offers. */
  offered?: readonly number[];
  /** It only describes: a change needs no second factor. */
  describes?: true;
  /** Once set, it stays. */
  stays?: true;
};
export type Settings = Readonly<Record<string, Setting>>;

/** Keeps the exact types of the schemas. */
export const declare = <const S extends Settings>(declared: S): S => declared;

/** By field: what a request may give (taken), what answers hold (sent), and whether a change needs a fresh second factor. */
export const taken = <S extends Settings>(settings: S) =>
  fieldsOf(settings, ({ takes }) => takes) as { [K in keyof S]: S[K]["takes"] };
export const sent = <S extends Settings>(settings: S) =>
  fieldsOf(settings, ({ sends }) => sends) as { [K in keyof S]: S[K]["sends"] };
export const needFresh = <S extends Settings>(settings: S) =>
  fieldsOf(settings, ({ describes }) => describes !== true) as { [K in keyof S]: boolean };

const fieldsOf = <T>(settings: Settings, of: (setting: Setting) => T): Record<string, T> =>
  Object.fromEntries(Object.entries(settings).map(([field, setting]) => [field, of(setting)]));

/** `client_id` as `clientId`, the name of its column, which events of providers have too. */
export const columnOf = (field: string) =>
  field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** An item of a list as text, such as `GROUP=ORG:ROLE`. Events have the fields under the names of columns. */
export function itemText({ parts }: Setting, item: unknown): string {
  const [first, ...others] = (parts ?? []).map((part) => Object(item)[part] ?? Object(item)[columnOf(part)]);
  return first === undefined ? String(item) : `${first}=${others.join(":")}`;
}

/**
 * The item of a text. The last equals sign ends the first part, because names of groups may have some. The last part takes all
 * further colons, because groups of nodes may have some.
 */
export function itemOf({ parts, lastPart = "" }: Setting, text: string): unknown {
  if (parts === undefined) return text;
  const [, first = text, rest = ""] = /^(.+)=(.*)$/s.exec(text) ?? [];
  const others = rest.split(":");
  const values = [first, ...others.splice(0, parts.length - 2), others.join(":") || lastPart];
  return Object.fromEntries(parts.map((part, at) => [part, values[at]?.trim() ?? ""]));
}

/** The flag's word for a value. */
export function wordOf(setting: Setting, value: unknown): string {
  const { words, none = "none" } = setting;
  if (Array.isArray(value)) return value.map((item) => itemText(setting, item)).join(", ") || none;
  if (typeof value === "boolean") return words?.[Number(value)] ?? (value ? "yes" : "no");
  return typeof value === "string" || typeof value === "number" ? `${value}` : none;
}

/** The words of a command line that make these changes. Lists that change item by item have their own. */
export const flagWords = (settings: Settings, changes: object): string[] =>
  Object.entries(changes).flatMap(([field, value]) => {
    const setting = settings[field];
    if (setting === undefined) return [];
    if (setting.secret === true) return [`--${setting.flag}-file`, "FILE"];
    if (Array.isArray(value)) {
      const items = value.length === 0 ? [""] : value.map((item) => itemText(setting, item));
      return items.flatMap((item) => [`--${setting.flag}`, item]);
    }
    if (typeof value === "boolean" && setting.words === undefined)
      return [`--${value ? "" : "no-"}${setting.flag}`];
    return [`--${setting.flag}`, wordOf(setting, value)];
  });
