// How nodes reach their peers, as they reported last. Only the latest state is kept.

import {
  integer,
  integerOrNull,
  json,
  table,
  text,
  textOrNull,
  word,
  integerWithDefault,
  emptyText,
  truth,
} from "../table.ts";
import * as v from "valibot";

export const paths = table(
  "paths",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    /** The overlay address of the peer. */
    peer: text(),
    orgId: integer("REFERENCES organizations (id)"),
    /** As in src/api/paths/paths.ts. */
    path: word(["direct", "relayed", "none", "unknown"]),
    /** Underlay address and port of the peer; null without a direct tunnel. */
    remote: textOrNull(),
    /** Names of the relays between the two nodes; empty for a direct path. */
    relays: json(v.array(v.string())),
    probe: word(["answers", "broken", "not_probed"]),
    /** Microseconds. */
    rttUs: integerOrNull(),
    /** Thousandths. */
    lossPermille: integerOrNull(),
    /** When the node reported it, ms. */
    at: integer(),
  },
  {
    constraints: ["PRIMARY KEY (node_id, peer)"],
    indexes: ["CREATE INDEX paths_org ON paths (org_id, node_id, peer)"],
  },
);

/** Bytes that relays forwarded for others this month, as they report them, and their monthly limits. */
export const relayTraffic = table(
  "relay_traffic",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    orgId: integer("REFERENCES organizations (id)"),
    /** UTC, such as 2026-11; empty before the first report. */
    month: emptyText,
    /** Forwarded in that month. */
    bytes: integerWithDefault("DEFAULT 0"),
    /** The name of the machine's counter, and the bytes that it showed last. A machine that restarts begins another one at 0. */
    counter: emptyText,
    counted: integerWithDefault("DEFAULT 0"),
    /** Monthly limit; null: none. */
    limitBytes: integerOrNull(),
    /** The limit of this month is reached: the node is no relay until the next one. */
    isPaused: truth(0),
    /** Time of the last report, ms. */
    reportedAt: integerOrNull(),
  },
  {
    constraints: ["PRIMARY KEY (node_id)"],
    indexes: ["CREATE INDEX relay_traffic_org ON relay_traffic (org_id)"],
  },
);

export const flowSides = { out: 0, in: 1, summary: 2 } as const;

/**
 * The primary key of flows. Within ten days the rows of a kind come together, and those of a node: so sums of many days need little
 * sorting, and a report changes three pages of SQLite's file instead of the ten of 30 days.
 */
export const flowsKey = "node_id, block, side, peer, address, protocol, port, day";

/** `day`: since 1970. */
export const flowBlockOf = (day: number): number => Math.floor(day / 10);

/**
 * Flows that nodes report: a row for each kind of a day (UTC), so that the table grows with what differs, and not with time.
 * A row with the side `summary` says what a node has reported of a day.
 */
export const flows = table(
  "flows",
  {
    nodeId: integer(),
    /** The day on which the interval ended, in days since 1970. */
    day: integer(),
    /** `flowSides`. */
    side: integer(),
    /** The node that had the address; 0: none had it for the whole interval. */
    peer: integer(),
    address: text(),
    protocol: text(),
    port: integer(),
    orgId: integer("REFERENCES organizations (id)"),
    /** How many began, and how many of these were answered; in a summary those that are in no row. */
    flows: integer(),
    answered: integer(),
    /** Times of the first and the last interval, ms. */
    firstAt: integer(),
    lastAt: integer(),
    /** In a summary: for how long flows may have passed unseen, and the id of the last report. */
    unseenS: integer(),
    report: text(),
    /** `flowBlockOf` of the day. */
    block: integer(),
  },
  {
    constraints: [`PRIMARY KEY (${flowsKey})`],
    isByKey: true,
  },
);
