// How nodes reach their peers, as they reported last. Only the latest state is kept.

import { integer, integerOrNull, json, table, text, textOrNull, word } from "../table.ts";
import * as v from "valibot";

export const paths = table(
  "paths",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    /** The overlay address of the peer. */
    peer: text(),
    orgId: integer("REFERENCES organizations (id)"),
    path: word(["direct", "relayed", "none", "unknown"]),
    /** Underlay address and port. */
    remote: textOrNull(),
    /** Names. */
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
