// The values of settings in a form. Pure.

import { itemOf, itemText, type Settings } from "../../protocol/settings.ts";

/**
 * What a form begins with: the saved values, of lists without what requests do not take, or the initial ones. The caller
 * names the type of the settings. `of`: the answer; without it, a new thing.
 */
export function valuesOf(settings: Settings, of: object = {}) {
  const values = Object.entries(settings).flatMap(([field, setting]) => {
    const { section, secret, initial = "" } = setting;
    if (section === undefined || secret === true) return [];
    const value: unknown = Object(of)[field] ?? initial;
    return [
      [field, Array.isArray(value) ? value.map((item) => itemOf(setting, itemText(setting, item))) : value],
    ];
  });
  return Object(Object.fromEntries(values));
}

/** The edits that differ from `base`, so that changes by others meanwhile stay. */
export function differing<T extends object>(edits: T, base: object): Partial<T> {
  const isChanged = ([field, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(Object(base)[field]);
  return Object(Object.fromEntries(Object.entries(edits).filter(isChanged)));
}
