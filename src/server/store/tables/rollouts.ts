// Updates in rings: each rollout, and its nodes.

import * as v from "valibot";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  json,
  jsonWithDefault,
  serial,
  since,
  table,
  textOrNull,
  emptyText,
  word,
  type TableRow,
} from "../table.ts";
import { Overrides } from "./organizations.ts";
import { RolloutHours, rolloutNodeStates, rolloutStates } from "../../../api/rollouts.ts";

/** How paths and nodes were, by number. lossy: it loses a fifth of the probes, or all. silent: not in contact any more. */
const Figures = v.object({
  paths: v.number(),
  lossy: v.number(),
  relayed: v.number(),
  nodes: v.number(),
  silent: v.number(),
});
export type Figures = v.InferOutput<typeof Figures>;
const Compared = v.object({ ring: v.number(), changing: Figures, unchanged: Figures });
export type Compared = v.InferOutput<typeof Compared>;

export const rollouts = table(
  "rollouts",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** The versions that nodes get; null: the present one stays. */
    agent: textOrNull(),
    engine: textOrNull(),
    /** Groups of nodes; empty: all. */
    groups: json(v.array(v.string())),
    /** When nodes may be told, in their own time. */
    hours: json(RolloutHours),
    watchS: integer(),
    state: word(rolloutStates),
    /** The present ring, from 1 to `rings`; 0 while not all of its nodes are written (rollout-members.ts). */
    ring: integer(),
    rings: integer(),
    /** Why it stopped or pauses; empty: it did not. */
    reason: emptyText,
    /** The node that stopped it, the probe that failed there, and a line of its log. */
    failedNode: integerOrNull(),
    probe: emptyText,
    logLine: emptyText,
    /** Since when it is in this state and ring, ms. */
    since: integer(),
    createdAt: integer(),
    endedAt: integerOrNull(),
    /** Measured before the first node of a ring changed: of the nodes of that ring, and of those that have not changed. */
    compared: since(71, jsonWithDefault(v.nullable(Compared), "null")),
    /** The new overrides of the organization; null: it is of versions. */
    settings: since(73, jsonWithDefault(v.nullable(Overrides), "null")),
  },
  { indexes: ["CREATE INDEX rollouts_open ON rollouts (org_id) WHERE ended_at IS NULL"] },
);
export type RolloutRow = TableRow<typeof rollouts>;

/** The number of the order to change, which is even. The next number is the order to go back. */
export const orderOf = ({ createdAt }: Pick<RolloutRow, "createdAt">): number => createdAt * 2;

export const rolloutNodes = table(
  "rollout_nodes",
  {
    rolloutId: integer("REFERENCES rollouts (id)"),
    nodeId: integer("REFERENCES nodes (id)"),
    ring: integer(),
    state: word(rolloutNodeStates),
    /** Since when, ms. */
    at: integer(),
    /** What it ran before. */
    formerAgent: textOrNull(),
    formerEngine: textOrNull(),
    /** Peers that reported its path broken when it was told. */
    brokenBefore: integerWithDefault("DEFAULT 0"),
    /** Peers that answered it after the change. */
    answered: integerWithDefault("DEFAULT 0"),
    /** As the node reported: why it failed, the probe that failed, and a line of its log. */
    reason: emptyText,
    probe: emptyText,
    logLine: emptyText,
  },
  {
    constraints: ["PRIMARY KEY (rollout_id, node_id)"],
    indexes: [
      "CREATE INDEX rollout_nodes_state ON rollout_nodes (rollout_id, ring, state, at)",
      "CREATE INDEX rollout_nodes_node ON rollout_nodes (node_id)",
    ],
  },
);
export type RolloutNodeRow = TableRow<typeof rolloutNodes>;
