// How many nodes of an organization were online, every few minutes.

import { integer, table } from "../table.ts";

export const onlineCounts = table(
  "online_counts",
  {
    orgId: integer("REFERENCES organizations (id)"),
    /** The beginning of the interval, ms. */
    at: integer(),
    online: integer(),
    /** All active nodes. */
    active: integer(),
  },
  { constraints: ["PRIMARY KEY (org_id, at)"] },
);
