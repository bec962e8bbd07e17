// Schemas of objects from outside whose keys are not known in advance, such as names that users choose.

import * as v from "valibot";
import { isObject } from "./is-object.ts";

/** The schema of an object, such as one of v.strictObject, which alone would take an empty list for {}. */
export function withoutList<Input, Output>(
  schema: v.GenericSchema<Input, Output>,
): v.GenericSchema<Input, Output> {
  const parsed = v.pipe(v.custom<Input>(isObject), schema);
  return { ...schema, "~run": (dataset, config) => parsed["~run"](dataset, config) };
}

/**
 * Like v.record, which takes lists too, and drops the keys `constructor` and `prototype` without an issue. v.map keeps all
 * keys, so it parses the entries.
 */
export function strictRecord<V>(
  key: v.GenericSchema<string, string>,
  value: v.GenericSchema<unknown, V>,
): v.GenericSchema<Record<string, unknown>, Record<string, V>> {
  const parsed = v.pipe(
    v.custom<Record<string, unknown>>(isObject),
    v.transform((found) => new Map(Object.entries(found))),
    v.map(key, value),
    v.transform((entries) => Object.fromEntries(entries)),
  );
  // The JSON Schema of policy files needs a record. `~run` is how schemas of valibot 1 call each other.
  return {
    ...v.record(key, value),
    "~types": undefined,
    "~run": (dataset, config) => parsed["~run"](dataset, config),
  };
}
