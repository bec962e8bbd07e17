// Which settings are on the allow-list of the engine's configuration.

import { engineConfig, settingsIn, type Allowed } from "../../src/engine/allowed-settings.ts";

/** The paths of all settings on the allow-list, "tun.dev". Items of lists and of maps with free keys count as one setting. */
export function engineSettings(): string[] {
  const pathsIn = (allowed: Allowed, path: string): string[] => {
    if ("each" in allowed) return [path];
    if (!("map" in allowed)) return settingsIn(allowed, path);
    return Object.entries(allowed.map).flatMap(([name, each]) =>
      pathsIn(each, path === "" ? name : `${path}.${name}`),
    );
  };
  return pathsIn({ map: engineConfig }, "");
}
