// Validates what a request sent, by the schema of its route.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";

export type Schema<T = unknown> = v.GenericSchema<unknown, T>;

/**
 * Validates input. Throws validation_failed with the errors of each field, or with the first one of a long value: a list of a
 * few KiB has thousands of errors, and all of them take a hundred times as long as the list.
 */
export function parse<T>(schema: Schema<T>, value: unknown): T {
  const inherited = inheritedKey(value);
  if (inherited !== undefined) throw invalid({ [inherited.join(".")]: ["This field is unknown."] });
  const first = v.safeParse(schema, value, { abortEarly: true });
  if (first.success) return first.output;
  const { issues = first.issues } = countValues(value) > maxExplained ? first : v.safeParse(schema, value);
  const byField = Map.groupBy(issues, (issue) => v.getDotPath(issue) ?? "non_field_errors");
  // Object.fromEntries makes own keys, also of `__proto__`.
  throw invalid(Object.fromEntries([...byField].map(([field, list]) => [field, list.map(sentence)])));
}

function invalid(errors: Record<string, string[]>): AppError {
  return new AppError("validation_failed", "The request is not valid.", { errors });
}

/** Above this number of values, only the first error is reported. */
const maxExplained = 200;

/** The values in a value, up to one more than `maxExplained`. */
function countValues(value: unknown): number {
  let count = 1;
  if (typeof value !== "object" || value === null) return count;
  for (const key in value) {
    count += countValues(Reflect.get(value, key));
    if (count > maxExplained) break;
  }
  return count;
}

/**
 * The path of the first key that every object inherits, such as `toString`; no field has such a name. Valibot drops these keys
 * without an error, also in strict objects. A body has tens of thousands of items, so nothing is made for each.
 */
function inheritedKey(value: unknown): string[] | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) {
    for (const [at, item] of value.entries()) {
      const found = typeof item === "object" ? inheritedKey(item) : undefined;
      if (found !== undefined) return [String(at), ...found];
    }
    return undefined;
  }
  for (const key of Object.keys(value)) {
    if (key in Object.prototype || key === "prototype") return [key];
    const found = inheritedKey(Reflect.get(value, key));
    if (found !== undefined) return [key, ...found];
  }
  return undefined;
}

/** Never contains the value: it may be a secret. */
function sentence(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === "validation" || issue.type === "check") return issue.message;
  // A schema may have words of its own for it, such as the fields that there are.
  if (issue.expected === "never")
    return issue.message.startsWith("Invalid") ? "This field is unknown." : issue.message;
  if (issue.input === undefined) return "This field is required.";
  if (issue.input === null) return "This field may not be null.";
  if (issue.type === "picklist" || issue.type === "literal")
    return `Expected one of ${issue.expected ?? ""}.`;
  return `Expected ${issue.expected ?? "another type"}.`;
}
