// Settings of Windows and macOS by which the system asks our resolver. They outlive this process: they are compared when the zones
// change and every two seconds, and removed when the service ends.

import { messageOf } from "../../base/errors.ts";
import type { Zone } from "./name-records.ts";
import type { Way } from "./service-state.ts";

/** How often the settings are compared although nothing changed here: another program may have changed them. */
const checkMs = 2000;

/** The system's settings by which it asks our resolver. */
export type ResolutionSettings = {
  /** Compares the settings once; call it again soon. Never throws. */
  keep(zones: readonly Zone[]): Promise<Way>;
  /** Our resolver cannot answer, for this reason: the system must not ask it. */
  without(reason: string): Way;
  /** Removes settings that would outlive this process. */
  close(): void;
};

type Deps = {
  monotonic: () => number;
  /** Makes the settings those of the zones. `haveZonesChanged`: since the last call, or this is the first one. May throw. */
  apply(zones: readonly Zone[], haveZonesChanged: boolean): Way;
  clear(): void;
};

export function makeLastingSettings({ monotonic, apply, clear }: Deps): ResolutionSettings {
  /** The last comparison: of which zones, when (monotonic ms), and its result. */
  let last: { key: string; at: number; way: Way } | undefined;
  const remove = () => {
    last = undefined;
    clear();
  };
  return {
    async keep(zones) {
      const key = JSON.stringify(zones.map(({ slug, domains }) => [slug, domains]));
      const haveZonesChanged = last?.key !== key;
      if (last !== undefined && !haveZonesChanged && monotonic() - last.at < checkMs) return last.way;
      try {
        last = { key, at: monotonic(), way: apply(zones, haveZonesChanged) };
        return last.way;
      } catch (error) {
        last = undefined;
        return { way: "none", reason: messageOf(error) };
      }
    },
    without(reason) {
      remove();
      return { way: "none", reason };
    },
    close: remove,
  };
}
