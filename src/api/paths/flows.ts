// The flows that nodes report where the organization wants it: who talks to whom on what.

import * as v from "valibot";
import { flowProtocols } from "../../protocol/traffic-reports.ts";
import { recordId } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { ruleWords } from "../rules.ts";
import { Moment, Switch, Text, Time, whole, word } from "../values.ts";

/** Rows of an answer; the rest is counted. */
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
  /** Of the peer, as the node saw it. */
  address: Text,
  protocol: word(flowProtocols),
  /** The destination port; null where the protocol has none. */
  port: v.nullable(v.number()),
  /** New ones. 0: older ones went on. */
  flows: v.number(),
  unanswered: v.number(),
  /** What an engine refuses is seen by the sender alone. */
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
  /** Kinds of flows beyond these. */
  left_out: v.number(),
  /** Flows that nodes saw and did not list: more than 256 kinds in five minutes. */
  uncounted: v.number(),
  /** The active nodes with an agent, and how many of them reported nothing within the last hour; the first 20 by name. */
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
  /** What was asked about. */
  since: Time,
  /** When the flows begin that nodes reported of that time; null: there are none. */
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
