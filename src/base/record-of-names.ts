// Objects from outside whose keys are names that users choose.

import * as v from "valibot";

/**
 * Like v.record, which drops the keys `constructor` and `prototype` without an issue, although users may choose them.
 * v.map keeps all keys, so it parses the entries; v.record still says what is no object. `~run` is how schemas of
 * valibot 1 call each other: it returns the dataset, `typed` if it is what the schema promises.
 */
export function recordOfNames<V>(
  key: v.GenericSchema<string, string>,
  value: v.GenericSchema<unknown, V>,
): v.GenericSchema<Record<string, unknown>, Record<string, V>> {
  const usual = v.record(key, value);
  const entries = v.map(key, value);
  return {
    ...usual,
    "~types": undefined,
    "~run"(dataset, config) {
      const input = dataset.value;
      const refused = typeof input === "object" ? undefined : usual["~run"](dataset, config).issues;
      if (refused !== undefined) return { typed: false, value: input, issues: refused };
      const found = entries["~run"]({ ...dataset, value: new Map(Object.entries(Object(input))) }, config);
      return found.typed ? { ...found, value: Object.fromEntries(found.value) } : { ...found, value: input };
    },
  };
}
