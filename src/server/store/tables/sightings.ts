// The last check-in of each node.

import { integer, integerOrNull, key, since, table, textOrNull, type TableRow } from "../table.ts";

/** The last check-in of a node. Not in its wide row, because it is written all the time. */
export const sightings = table("sightings", {
  nodeId: key,
  lastCheckinAt: integer(),
  reportedVersion: textOrNull(),
  uptime: integerOrNull(),
  overlayState: textOrNull(),
  appliedConfigVersion: integerOrNull(),
  /** A DataPlaneReport as JSON: how the node's engine exchanges packets with its kernel. */
  dataPlane: since(55, textOrNull()),
});
export type SightingRow = TableRow<typeof sightings>;
