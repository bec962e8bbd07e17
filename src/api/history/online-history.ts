// How many nodes were online, and how many paths there were, as counted every five minutes.

import * as v from "valibot";
import { since, Time } from "../values.ts";

/** The most points of one answer. */
export const maxOnlinePoints = 300;
const OnlineCount = v.object({ at: Time, online: v.number() });
/** Null: not counted at that time. */
const countOrNull = since("0.2.0", v.nullable(v.number()));
const HistoryPoint = v.object({
  at: Time,
  online: v.number(),
  active: v.number(),
  /** The active nodes that have applied their newest configuration. */
  current: countOrNull,
  // All paths. Null also if the organization wants no reports of paths, and for members, who see the paths of their own nodes
  // alone. Each pair of nodes counts once, as in GET paths/groups/.
  direct: countOrNull,
  relayed: countOrNull,
  broken: countOrNull,
  /** Of the paths that were probed, ms. */
  rtt_ms_median: countOrNull,
  rtt_ms_95: countOrNull,
});
export const OnlineHistory = v.object({
  /** Each point stands for so many seconds. */
  every_s: v.number(),
  points: v.array(HistoryPoint),
  /** Single counts, not averages: the latest of those with the fewest and with the most nodes online, and the newest one. */
  least: v.nullable(OnlineCount),
  most: v.nullable(OnlineCount),
  last: v.nullable(HistoryPoint),
});
export type OnlineHistory = v.InferOutput<typeof OnlineHistory>;
