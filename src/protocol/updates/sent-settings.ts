// Settings of a rollout as a config.yml has them when it is sent: what they change in the former ones. The rest of the file has
// the former settings, so a node goes to either by itself. Values that are equal in both, such as the rules, are sent once.

import * as v from "valibot";
import { foreignText } from "../../base/text.ts";
import { isMap, type YamlMap, type YamlValue } from "../../base/yaml.ts";
import { wholeNumber } from "../values.ts";

const Sections: v.GenericSchema<unknown, YamlMap> = v.record(foreignText(64), v.any());

/** `rollout` in a config.yml that is sent. `order`: the number of the order to use them. `sections`: as changesTo makes it. */
export const SentSettings = v.object({
  order: wholeNumber,
  sections: Sections,
});

/** What `next` changes in `former`: of maps in both only the keys that differ; null: the key is gone. */
export function changesTo(former: YamlMap, next: YamlMap): YamlMap {
  const keys = Object.keys({ ...former, ...next }).filter((key) => !Bun.deepEquals(former[key], next[key]));
  const changes = keys.map((key): [string, YamlValue] => {
    const [before, after] = [former[key], next[key] ?? null];
    return [key, isMap(before) && isMap(after) ? changesTo(before, after) : after];
  });
  return Object.fromEntries(changes);
}

/** The inverse of changesTo. */
export function withChanges(former: YamlMap, changes: YamlMap): YamlMap {
  const next = { ...former };
  for (const [key, change] of Object.entries(changes)) {
    const before = former[key];
    if (change === null) delete next[key];
    else next[key] = isMap(before) && isMap(change) ? withChanges(before, change) : change;
  }
  return next;
}
