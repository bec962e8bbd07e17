// Writes block YAML that every version of the engine reads the same way: without anchors and tabs, and with all strings
// quoted, so that a group named 123 or yes stays text and no value can add lines. Bun.YAML reads it.

/** Maximum size of a configuration, for node and control plane. `depth` counts nested maps and lists. */
export const yamlLimits = { bytes: 8 * 1024 * 1024, nodes: 200_000, depth: 32 };

export type YamlMap = { [key: string]: YamlValue };
export type YamlValue = string | number | boolean | null | YamlValue[] | YamlMap;

/** Whether a value is a map: neither a list nor a scalar. */
export function isMap(value: YamlValue | undefined): value is YamlMap {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The items of a list; a single value is a list of one. */
export function listOf(value: YamlValue | undefined): YamlValue[] {
  if (Array.isArray(value)) return value;
  return value === undefined ? [] : [value];
}

/** The value at a path such as "listen.port". */
export function valueAt(map: YamlMap, path: string): YamlValue | undefined {
  let value: YamlValue | undefined = map;
  for (const key of path.split(".")) value = isMap(value) ? value[key] : undefined;
  return value;
}

/** A copy of `base` with the values of `patch`. Maps are merged, and everything else is replaced. */
export function mergeYaml(base: YamlMap, patch: YamlMap): YamlMap {
  const merged: YamlMap = { ...base };
  for (const [key, value] of Object.entries(patch)) {
    const before = merged[key];
    merged[key] = isMap(before) && isMap(value) ? mergeYaml(before, value) : value;
  }
  return merged;
}

/** The number of nodes without keys, and the depth of nested maps and lists. */
export function measureYaml(value: YamlValue): { nodes: number; depth: number } {
  const size = { nodes: 0, depth: 0 };
  const visit = (each: YamlValue, depth: number) => {
    size.nodes += 1;
    if (each === null || typeof each !== "object") return;
    size.depth = Math.max(size.depth, depth);
    for (const item of Object.values(each)) visit(item, depth + 1);
  };
  visit(value, 1);
  return size;
}

/** Block YAML with a final newline. Quotes map keys that are not plain identifiers. */
export function stringifyYaml(value: YamlMap): string {
  return [...yamlSlices(value)].join("\n") + "\n";
}

/** The same in parts for joining with newlines: long lists take many parts, so that a server can pause between them. */
export function* yamlSlices(value: YamlMap, indent = ""): Generator<string> {
  for (const [key, item] of Object.entries(value)) {
    if (isLeaf(item)) {
      yield `${indent}${keyText(key)}: ${scalar(item)}`;
      continue;
    }
    yield `${indent}${keyText(key)}:`;
    const inner = `${indent}  `;
    if (isMap(item)) yield* yamlSlices(item, inner);
    else if (Array.isArray(item)) {
      for (let at = 0; at < item.length; at += itemsAtOnce)
        yield block(item.slice(at, at + itemsAtOnce), inner).join("\n");
    }
  }
}

/** Of a list, in one part. */
const itemsAtOnce = 200;

/** The lines of a value. */
function block(value: YamlValue, indent: string): string[] {
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const [first = "", ...rest] = isLeaf(item) ? [scalar(item)] : block(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  if (value !== null && typeof value === "object") {
    return Object.entries(value).flatMap(([key, item]) =>
      isLeaf(item)
        ? [`${indent}${keyText(key)}: ${scalar(item)}`]
        : [`${indent}${keyText(key)}:`, ...block(item, `${indent}  `)],
    );
  }
  return [indent + scalar(value)];
}

/** Whether a value is written on the line of its key: a scalar, or an empty list or map. */
function isLeaf(value: YamlValue): boolean {
  return value === null || typeof value !== "object" || Object.keys(value).length === 0;
}

/** The text of such a value. */
function scalar(value: YamlValue): string {
  if (typeof value === "string") return quote(value);
  if (typeof value === "number" && !Number.isSafeInteger(value))
    throw new RangeError("Cannot write YAML: only whole numbers are supported");
  if (Array.isArray(value)) return "[]";
  return value !== null && typeof value === "object" ? "{}" : String(value);
}

function keyText(key: string): string {
  // YAML 1.1 reads yes, no, on, off, y and n as booleans.
  return /^[a-z_][a-z0-9_]*$/.test(key) && !/^(y|n|yes|no|on|off|true|false|null)$/.test(key)
    ? key
    : quote(key);
}

/** A string of JSON is one of YAML, too, if the characters are escaped that YAML forbids or takes for line breaks. */
function quote(text: string): string {
  return JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
