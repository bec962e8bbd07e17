// The flows that nodes report if the organization wants it (`flows`): which nodes talk to each other, by protocol and port.

import * as v from "valibot";
import { flowProtocols } from "../protocol/traffic-reports.ts";
import { recordId } from "../protocol/values.ts";
import { endpoint } from "./endpoint.ts";
import { ruleWords } from "./rules.ts";
import { Moment, Switch, Text, Time, whole, word } from "./values.ts";

/** Rows of an answer. Further ones are only counted. */
export const maxFlows = 1000;
/** For how long flows are kept, in whole days. */
export const flowsKeptMs = 30 * 86_400_000;

const nodeId = v.pipe(whole(1, Number.MAX_SAFE_INTEGER), recordId);
const FlowQuery = v.strictObject({
  /** The node that began the flows. */
  from: v.optional(nodeId),
  /** The node that they went to. */
  to: v.optional(nodeId),
  /** Default: 7 days ago. */
  since: v.optional(Moment),
  /** Only flows that nothing answered. */
  unanswered: Switch,
  limit: v.optional(whole(1, maxFlows), "200"),
});
export type FlowQuery = v.InferOutput<typeof FlowQuery>;

export const Flow = v.object({
  /** Null: no node had the address for the whole interval. */
  from: v.nullable(v.number()),
  from_name: v.nullable(Text),
  to: v.nullable(v.number()),
  to_name: v.nullable(Text),
  /** The peer's address, as the reporting node saw it. */
  address: Text,
  protocol: word(flowProtocols),
  /** The destination port; null where the protocol has none. */
  port: v.nullable(v.number()),
  /** How many began in this time. 0: older ones went on. */
  flows: v.number(),
  unanswered: v.number(),
  /** Only the sender sees what the engine of the receiver refuses. */
  seen_by: word(["sender", "receiver", "both"]),
  /** The beginning of the first interval, and the end of the last one. */
  first_at: Time,
  last_at: Time,
});
export type Flow = v.InferOutput<typeof Flow>;

export const Flows = v.object({
  /** Whether the organization wants flows. */
  wanted: v.boolean(),
  since: Time,
  /** The newest first. */
  flows: v.array(Flow),
  /** How many rows `flows` leaves out. */
  left_out: v.number(),
  /** Flows that nodes saw but did not list, because they saw more than 256 kinds in five minutes. */
  uncounted: v.number(),
  /** Active nodes with an agent. `silent`: those that reported nothing within the last hour; names the first 20. */
  nodes: v.number(),
  silent: v.object({ count: v.number(), first: v.array(Text) }),
  /** For administrators who ask for all flows: when each rule for incoming traffic was used last, and by how many nodes. */
  rules: v.array(
    v.object({ id: v.number(), last_at: v.nullable(Time), flows: v.number(), nodes: v.number() }),
  ),
});
export type Flows = v.InferOutput<typeof Flows>;

const RuleText = v.object(ruleWords(Text));
export const Proposal = v.object({
  /** The beginning of the time whose flows count. */
  since: Time,
  /** The first flow of that time that a node reported; null: there is none. */
  observed_since: v.nullable(Time),
  /** A policy file, with the evidence of each change in comments. */
  policy: Text,
  changes: v.array(
    v.object({
      /** Of the present rule, in the words of policy files. */
      id: v.number(),
      rule: RuleText,
      what: word(["kept", "narrowed", "removed"]),
      reason: Text,
      flows: v.number(),
      /** How many nodes began them. */
      nodes: v.number(),
      last_at: v.nullable(Time),
      /** The rules in its place. */
      into: v.array(RuleText),
    }),
  ),
  narrowed: v.number(),
  removed: v.number(),
  kept: v.number(),
});
export type Proposal = v.InferOutput<typeof Proposal>;

export const flowsApi = {
  propose: endpoint({
    name: "policy_propose",
    method: "POST",
    path: "/api/org/{slug}/policy/propose/",
    access: "admin",
    scope: "policy",
    reads: true,
    summary:
      "A policy file with today's rules narrowed to what reported flows used, each change with its evidence. It permits nothing that the present policy does not. Changes nothing. Needs the scope of GET flows/ too; each request is an event",
    fresh: false,
    body: v.strictObject({ since: v.optional(Moment) }),
    answers: { 200: { description: "The proposal", schema: Proposal } },
    errors: ["busy"],
  }),
  list: endpoint({
    name: "flows_list",
    method: "GET",
    path: "/api/org/{slug}/flows/",
    access: "member",
    scope: "nodes",
    summary:
      "Who talked to whom, by protocol and port, as nodes report it where the organization wants that (`flows`). Counts are of whole days (UTC). Members see what their own nodes report. Each request is an event",
    query: FlowQuery,
    answers: { 200: { description: "The flows", schema: Flows } },
    errors: ["busy"],
  }),
};
