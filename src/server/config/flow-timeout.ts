// How long engines keep an open flow. An address must stay unused for this time after its node left it, because the engine
// matches open flows by address.

import * as v from "valibot";
import type { YamlMap } from "../../base/yaml.ts";

export const conntrackDefaults = { tcp_timeout: "12m", udp_timeout: "3m", default_timeout: "10m" } as const;

const timeout = (name: keyof typeof conntrackDefaults) => v.optional(v.string(), conntrackDefaults[name]);
const conntrackEntries = {
  tcp_timeout: timeout("tcp_timeout"),
  udp_timeout: timeout("udp_timeout"),
  default_timeout: timeout("default_timeout"),
};
const Conntrack = v.optional(v.object(conntrackEntries), {});
const Config = v.object({ firewall: v.optional(v.object({ conntrack: Conntrack }), {}) });
/** The units of engines' durations that settings may have. */
const unitMs: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** How long flows stay open without a packet under this configuration or these overrides, ms. */
export type FlowTimes = { tcp: number; udp: number; other: number };

export function flowTimes(config: YamlMap): FlowTimes {
  const { conntrack } = v.parse(Config, config).firewall;
  const ms = (time: string) => parseInt(time, 10) * (unitMs[time.replace(/^\d+/, "")] ?? 0);
  return {
    tcp: ms(conntrack.tcp_timeout),
    udp: ms(conntrack.udp_timeout),
    other: ms(conntrack.default_timeout),
  };
}

/**
 * When all engines have forgotten a flow, ms after its last packet. An engine removes expired flows at ticks as long as its shortest
 * timeout, and may be two ticks late. `times`: of an organization and of its nodes, whose overrides the engines merge, so an engine
 * may have each kind of timeout from another one. Its shortest timeout is at most the shortest of the longest ones of each kind.
 */
export function longestFlowMs(times: readonly FlowTimes[]): number {
  const longest = (["tcp", "udp", "other"] as const).map((kind) =>
    Math.max(...times.map((each) => each[kind])),
  );
  return Math.max(...longest) + 2 * Math.min(...longest);
}
