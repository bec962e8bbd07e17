// The values of settings in a form. Pure.

import { itemOf, itemText, type Settings } from "../../protocol/settings.ts";

/**
 * What a form begins with: the saved values, or the initial ones of a new thing. `saved`: an answer of the API. Items of its lists
 * lose what requests do not take. The caller says the type: `Object(…)` makes it `any`.
 */
export function valuesOf(settings: Settings, saved: object = {}) {
  const values: Record<string, unknown> = {};
  for (const [field, setting] of Object.entries(settings)) {
    const { section, secret, initial = "" } = setting;
    // Without a section, no form has it; a secret is in no answer.
    if (section === undefined || secret === true) continue;
    const value: unknown = Object(saved)[field] ?? initial;
    values[field] = Array.isArray(value)
      ? value.map((item) => itemOf(setting, itemText(setting, item)))
      : value;
  }
  return Object(values);
}

/** The edits that differ from `base`, so that changes by others meanwhile stay. */
export function differing<T extends object>(edits: T, base: object): Partial<T> {
  const isChanged = ([field, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(Object(base)[field]);
  return Object(Object.fromEntries(Object.entries(edits).filter(isChanged)));
}
