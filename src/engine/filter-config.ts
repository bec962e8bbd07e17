// Leaves settings out of a configuration that are not on the allow-list (allowed-settings.ts), one by one, so that the rest can be
// applied.

import * as v from "valibot";
import type { LeaveOut } from "./left-out.ts";
import { isMap, type YamlMap, type YamlValue } from "../base/yaml.ts";
import { engineConfig, type Allowed } from "./allowed-settings.ts";

/** Returns the settings on the allow-list, and tells `leaveOut` of all others. */
export function allowedConfig(config: YamlMap, leaveOut: LeaveOut): YamlMap {
  const kept = keepAllowed(config, { map: engineConfig }, "", leaveOut);
  return isMap(kept) ? kept : {};
}

/** `key`: the path of the value, "tun.dev". Undefined: it is left out as a whole. */
function keepAllowed(
  value: YamlValue,
  allowed: Allowed,
  key: string,
  leaveOut: LeaveOut,
): YamlValue | undefined {
  if ("map" in allowed) {
    if (isMap(value))
      return keepEntries(value, key, leaveOut, (name) =>
        Object.hasOwn(allowed.map, name) ? allowed.map[name] : undefined,
      );
    leaveOut(key, "it is not a map");
    return undefined;
  }
  if ("each" in allowed) {
    // With `key` a map whose names follow that schema, else a list.
    const { each, key: keySchema } = allowed;
    if (keySchema !== undefined && isMap(value))
      return keepEntries(value, key, leaveOut, (name) => (v.is(keySchema, name) ? each : undefined));
    if (keySchema === undefined && Array.isArray(value)) {
      return value
        .map((item, at) => keepAllowed(item, each, `${key}[${at}]`, leaveOut))
        .filter((item) => item !== undefined);
    }
    leaveOut(key, keySchema === undefined ? "it is not a list" : "it is not a map");
    return undefined;
  }
  const parsed = v.safeParse(allowed, value);
  if (parsed.success) return value;
  leaveOut(key, parsed.issues[0].message);
  return undefined;
}

function keepEntries(
  map: YamlMap,
  key: string,
  leaveOut: LeaveOut,
  allowedFor: (name: string) => Allowed | undefined,
): YamlMap {
  const kept: [string, YamlValue][] = [];
  for (const [name, value] of Object.entries(map)) {
    const path = key === "" ? name : `${key}.${name}`;
    const allowed = allowedFor(name);
    if (allowed === undefined) {
      leaveOut(path, "a control plane may not set it, or this version does not know it");
      continue;
    }
    const keptValue = keepAllowed(value, allowed, path, leaveOut);
    if (keptValue !== undefined) kept.push([name, keptValue]);
  }
  return Object.fromEntries(kept);
}
