// Finds parts of a valibot schema without a maximum: texts, lists, records, and values of any type.

import * as v from "valibot";

type Any = { kind?: unknown; type?: unknown } & Record<string, unknown>;

const maxima: Record<string, readonly string[]> = {
  string: ["max_length", "max_bytes", "length"],
  array: ["max_length", "length"],
  record: ["max_entries"],
};
const bounded = ["number", "boolean", "literal", "picklist", "null", "undefined", "never"];

/** Paths in `schema` without a maximum, such as "node.groups[]". */
export function withoutMaximum(schema: unknown, path = ""): string[] {
  if (!isObject(schema)) return [];
  const items = flatten(schema);
  const nested = items.slice(1).filter(({ kind }) => kind === "schema");
  const actions = items.map(({ type }) => String(type));
  return [
    ...ofType(items[0] ?? schema, actions, path),
    ...nested.flatMap((each) => withoutMaximum(each, path)),
  ];
}

function ofType(schema: Any, actions: readonly string[], path: string): string[] {
  const type = String(schema["type"]);
  if (bounded.includes(type)) return [];
  const wanted = maxima[type];
  const own =
    wanted === undefined || wanted.some((name) => actions.includes(name)) ? [] : [`${path}: ${type}`];
  switch (type) {
    case "string":
      return own;
    case "array":
      return [...own, ...withoutMaximum(schema["item"], `${path}[]`)];
    case "record":
      return [
        ...own,
        ...withoutMaximum(schema["key"], `${path}{key}`),
        ...withoutMaximum(schema["value"], `${path}{}`),
      ];
    case "object":
    case "strict_object":
    case "loose_object":
      return Object.entries(isObject(schema["entries"]) ? schema["entries"] : {}).flatMap(([key, entry]) =>
        withoutMaximum(entry, path === "" ? key : `${path}.${key}`),
      );
    case "optional":
    case "nullable":
    case "nullish":
      return withoutMaximum(schema["wrapped"], path);
    case "union":
    case "variant":
      return (Array.isArray(schema["options"]) ? schema["options"] : []).flatMap((each) =>
        withoutMaximum(each, path),
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
