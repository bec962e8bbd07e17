// How many nodes of an organization were online, and how they reached each other, every few minutes.

import { integer, integerOrNull, since, table } from "../table.ts";

/** Null: not counted, because an earlier version wrote the row, or as the column says. */
const counted = () => since(57, integerOrNull());

export const onlineCounts = table(
  "online_counts",
  {
    orgId: integer("REFERENCES organizations (id)"),
    /** The beginning of the interval, ms. */
    at: integer(),
    online: integer(),
    /** All active nodes. */
    active: integer(),
    /** Of them, those that have applied their newest configuration. */
    applied: counted(),
    /** Paths by kind, each pair of nodes once. Also null: the organization wants no reports of paths. */
    direct: counted(),
    relayed: counted(),
    broken: counted(),
    /** Round trips in microseconds. Also null: no path was probed. */
    rttMedian: counted(),
    rtt95: counted(),
  },
  { constraints: ["PRIMARY KEY (org_id, at)"] },
);
