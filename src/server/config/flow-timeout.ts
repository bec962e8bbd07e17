// Reads from overrides how long the engine keeps an open flow. An address must stay unused for this time after its node
// left it, because the engine matches open flows by address.

import * as v from "valibot";
import type { YamlMap } from "../../yaml.ts";

const ownTimeout = v.optional(v.string(), "0s");
const Conntrack = v.object({
  firewall: v.optional(
    v.object({
      conntrack: v.optional(
        v.object({ tcp_timeout: ownTimeout, udp_timeout: ownTimeout, default_timeout: ownTimeout }),
      ),
    }),
  ),
});
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** How long a flow stays open without a packet under these overrides, ms; 0 if they do not set it. */
export function flowMs(overrides: YamlMap): number {
  const { firewall } = v.parse(Conntrack, overrides);
  const times = Object.values(firewall?.conntrack ?? {});
  return Math.max(0, ...times.map((time) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? 0)));
}
