// Finds parts of a valibot schema without a maximum: texts, lists, records, and values of any type. And texts that do not pass
// the gate of what comes from outside (src/base/text.ts).

import type * as v from "valibot";
import { isStorable } from "../../src/base/text.ts";

type Any = { kind?: unknown; type?: unknown } & Record<string, unknown>;

const maxima: Record<string, readonly string[]> = {
  string: ["max_length", "max_bytes", "length"],
  array: ["max_length", "length"],
  record: ["max_entries"],
};
const bounded = ["number", "boolean", "literal", "picklist", "null", "undefined", "never"];

/** Paths in `schema` without a maximum, such as "node.groups[]". */
export function withoutMaximum(schema: unknown, path = ""): string[] {
  return partsOf(schema, path, ({ type, actions }) => {
    const wanted = maxima[type];
    return wanted === undefined || actions.some((each) => wanted.includes(String(each["type"])));
  });
}

/** The same for what comes from outside: its texts must be storable, too. */
export function notGated(schema: unknown, path = ""): string[] {
  return partsOf(schema, path, ({ type, actions }) => {
    const isText = type !== "string" || actions.some((each) => each["requirement"] === isStorable);
    const wanted = maxima[type];
    return isText && (wanted === undefined || actions.some((each) => wanted.includes(String(each["type"]))));
  });
}

type Part = { type: string; actions: readonly Any[] };
type IsGood = (part: Part) => boolean;

/** The paths of the parts that are not good, and of values of any type. */
function partsOf(schema: unknown, path: string, isGood: IsGood): string[] {
  if (!isObject(schema)) return [];
  const [first = schema, ...actions] = flatten(schema);
  const nested = actions.filter(({ kind }) => kind === "schema");
  return [...ofType(first, actions, path, isGood), ...nested.flatMap((each) => partsOf(each, path, isGood))];
}

function ofType(schema: Any, actions: readonly Any[], path: string, isGood: IsGood): string[] {
  const type = String(schema["type"]);
  if (bounded.includes(type)) return [];
  const own = isGood({ type, actions }) ? [] : [`${path}: ${type}`];
  switch (type) {
    case "string":
      return own;
    case "array":
      return [...own, ...partsOf(schema["item"], `${path}[]`, isGood)];
    case "record":
      return [
        ...own,
        ...partsOf(schema["key"], `${path}{key}`, isGood),
        ...partsOf(schema["value"], `${path}{}`, isGood),
      ];
    case "object":
    case "strict_object":
    case "loose_object":
      return Object.entries(isObject(schema["entries"]) ? schema["entries"] : {}).flatMap(([key, entry]) =>
        partsOf(entry, path === "" ? key : `${path}.${key}`, isGood),
      );
    case "optional":
    case "exact_optional":
    case "nullable":
    case "nullish":
      return partsOf(schema["wrapped"], path, isGood);
    case "union":
    case "variant":
      return (Array.isArray(schema["options"]) ? schema["options"] : []).flatMap((each) =>
        partsOf(each, path, isGood),
      );
    default:
      return [`${path}: ${type}`];
  }
}

/** The first schema of a pipe and all its actions, including those of nested pipes. */
function flatten(schema: Any): Any[] {
  const { pipe } = schema;
  if (!Array.isArray(pipe)) return [schema];
  const [first, ...rest]: unknown[] = pipe;
  return [...(isObject(first) ? flatten(first) : []), ...rest.filter(isObject)];
}

function isObject(value: unknown): value is Any {
  return typeof value === "object" && value !== null;
}

/** The exported schemas of a module. */
export function schemasOf(module: object): [name: string, schema: v.GenericSchema][] {
  return Object.entries(module).filter((entry): entry is [string, v.GenericSchema] => {
    const value: unknown = entry[1];
    return isObject(value) && value.kind === "schema";
  });
}
