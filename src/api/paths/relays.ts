// The traffic of relays, and their monthly limits.

import * as v from "valibot";
import { endpoint } from "../endpoint.ts";
import { Text, Time } from "../values.ts";
import { wholeWithin } from "../../protocol/values.ts";

/** At least 1 MB: below, a relay would pause with its first connection. */
const RelayPatch = v.strictObject({
  limit_bytes: v.nullable(wholeWithin(1e6, 1e18 - 1)),
});

export const Relay = v.object({
  node: v.number(),
  node_name: Text,
  /** UTC. */
  month: Text,
  /** Forwarded for others in this month; null if the node never reported it. */
  bytes: v.nullable(v.number()),
  limit_bytes: v.nullable(v.number()),
  /** The limit is reached: no node uses the relay until the next month. */
  paused: v.boolean(),
  reported_at: v.nullable(Time),
});
export type Relay = v.InferOutput<typeof Relay>;

export const relaysApi = {
  list: endpoint({
    name: "relays_list",
    method: "GET",
    path: "/api/org/{slug}/relays/",
    access: "member",
    scope: "nodes",
    summary: "The relays, what they forwarded for other nodes this month (UTC), and their monthly limits",
    answers: { 200: { description: "Relays", schema: v.array(Relay) } },
  }),
  limit: endpoint({
    name: "relays_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/relays/{id}/",
    access: "admin",
    scope: "nodes",
    summary:
      "Set or remove the monthly limit of a relay, by the id of its node. A relay that reaches it is not used until the next month",
    fresh: true,
    body: RelayPatch,
    answers: { 200: { description: "The relay", schema: Relay } },
    errors: ["conflict"],
  }),
};
