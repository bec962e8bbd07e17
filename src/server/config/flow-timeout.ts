// How long the engine keeps an open flow, as overrides say it. An address must stay unused that long after its node left
// it: the engine matches open flows by address.

import * as v from "valibot";

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

/** How long a flow stays open without a packet where these overrides (JSON) are in force, ms; 0 where they do not say. */
export function flowMs(overrides: string): number {
  const { firewall } = v.parse(Conntrack, JSON.parse(overrides));
  const times = Object.values(firewall?.conntrack ?? {});
  return Math.max(0, ...times.map((time) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? 0)));
}
