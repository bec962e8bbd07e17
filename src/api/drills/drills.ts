// Drills: a lighthouse, a relay or the control plane is away for a while, and nodes report whom they lost.

import * as v from "valibot";
import { drillKinds, leastDrillS, mostDrillS } from "../../protocol/updates/drill.ts";
import { recordId } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { since, Text, Time, whole, word } from "../values.ts";

const DrillRequest = v.strictObject({
  kind: v.picklist(drillKinds),
  /** The lighthouses or relays that are away; empty: the only one. Without the control plane, no node may be named. */
  nodes: v.optional(v.pipe(v.array(recordId), v.maxLength(16)), []),
  for_s: v.optional(v.pipe(v.number(), v.integer(), v.minValue(leastDrillS), v.maxValue(mostDrillS)), 60),
});
export type DrillRequest = v.InferOutput<typeof DrillRequest>;

/** The first names, and how many there are. */
const NamedNodes = v.object({ count: v.number(), first: v.array(Text) });

export const drillStates = ["running", "reporting", "ended"] as const;

export const Drill = v.object({
  id: v.number(),
  kind: word(drillKinds),
  /** reporting: it is over, and reports of nodes are awaited. */
  state: word(drillStates),
  /** The nodes that are away; of the control plane: those that refused. `reason`: why a node refused. */
  nodes: v.array(
    v.object({
      node: v.number(),
      node_name: Text,
      state: word(["told", "began", "refused"]),
      reason: Text,
    }),
  ),
  for_s: v.number(),
  begins_at: Time,
  ends_at: Time,
  ended_at: v.nullable(Time),
  /** When an administrator ended it; null: nobody did. */
  aborted_at: since("0.2.0", v.nullable(Time)),
  /** How many nodes reported, and how many peers they watched: without any, the drill proves nothing. */
  reported: v.number(),
  watched: v.number(),
  /** Nodes that were online at the begin and have not reported, and those whose agent is too old for drills. */
  silent: NamedNodes,
  too_old: NamedNodes,
  /** Seconds since the begin. `until_s`: null: they did not reach each other again in time. */
  losses: v.array(
    v.object({
      node: v.number(),
      node_name: Text,
      peer: v.number(),
      peer_name: Text,
      from_s: v.number(),
      until_s: v.nullable(v.number()),
    }),
  ),
  /** Losses beyond these. */
  left_out: v.number(),
});
export type Drill = v.InferOutput<typeof Drill>;

export const drillsApi = {
  list: endpoint({
    name: "drills_list",
    method: "GET",
    path: "/api/org/{slug}/drills/",
    access: "admin",
    summary: "The latest drills, and who lost whom; the newest first, at most 20",
    query: v.strictObject({
      id: v.optional(v.pipe(whole(1, Number.MAX_SAFE_INTEGER), recordId)),
      newest: v.optional(whole(1, 20)),
    }),
    answers: { 200: { description: "Drills", schema: v.array(Drill) } },
  }),
  create: endpoint({
    name: "drills_create",
    method: "POST",
    path: "/api/org/{slug}/drills/",
    access: "admin",
    usersOnly: true,
    summary:
      "Take a lighthouse, a relay or the control plane away for a while. It ends by itself, and nodes report whom they lost",
    fresh: true,
    grows: true,
    body: DrillRequest,
    answers: { 201: { description: "The drill", schema: Drill } },
    errors: ["conflict"],
  }),
  abort: endpoint({
    name: "drills_abort",
    method: "POST",
    path: "/api/org/{slug}/drills/{id}/abort/",
    access: "admin",
    usersOnly: true,
    summary: "End a drill before its time. Not one without the control plane, which cannot tell nodes",
    fresh: false,
    answers: { 200: { description: "The drill", schema: Drill } },
    errors: ["conflict"],
  }),
};
