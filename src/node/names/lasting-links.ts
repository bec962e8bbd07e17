// Settings of Windows and macOS that outlive this process: they are compared when the zones change and every two seconds, and
// removed when the service ends.

import { messageOf } from "../../base/errors.ts";
import type { Links } from "./resolved-links.ts";
import type { Zone } from "./name-records.ts";
import type { Way } from "./service-state.ts";

/** How often the settings are compared although nothing changed here: another program may have changed them. */
const checkMs = 2000;

type Deps = {
  monotonic: () => number;
  /** Makes the settings those of the zones. `isNews`: they differ from the last call, or it is the first one. May throw. */
  apply(zones: readonly Zone[], isNews: boolean): Way;
  clear(): void;
};

export function makeLastingLinks({ monotonic, apply, clear }: Deps): Links {
  let last: { key: string; at: number; way: Way } | undefined;
  const remove = () => {
    last = undefined;
    clear();
  };
  return {
    async keep(zones) {
      const key = JSON.stringify(zones.map(({ slug, domains }) => [slug, domains]));
      const isNews = last?.key !== key;
      if (last !== undefined && !isNews && monotonic() - last.at < checkMs) return last.way;
      try {
        last = { key, at: monotonic(), way: apply(zones, isNews) };
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
