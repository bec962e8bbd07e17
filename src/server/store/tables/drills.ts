// Drills, and what nodes reported of them.

import * as v from "valibot";
import {
  integer,
  integerOrNull,
  json,
  jsonWithDefault,
  serial,
  since,
  table,
  emptyText,
  word,
  type TableRow,
} from "../table.ts";
import { drillKinds } from "../../../protocol/updates/drill.ts";

const Ids = v.array(v.number());
const Names = v.object({ count: v.number(), first: v.array(v.string()) });

export const drills = table(
  "drills",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    kind: word(drillKinds),
    /** The nodes that are away during the drill; empty: the control plane is. */
    targets: json(Ids),
    /** Ms. It is also the number of the order. */
    beginsAt: integer(),
    endsAt: integer(),
    /** When the last report came, or no other one is awaited. */
    endedAt: integerOrNull(),
    /** Once it has ended: the nodes without a report, and those whose agent is too old. */
    silent: jsonWithDefault(Names, '{"count":0,"first":[]}'),
    tooOld: jsonWithDefault(Names, '{"count":0,"first":[]}'),
    /** When an administrator ended it: `endsAt` is that time, too. */
    abortedAt: since(70, integerOrNull()),
  },
  {
    indexes: [
      "CREATE INDEX drills_org ON drills (org_id, id)",
      "CREATE UNIQUE INDEX drills_open ON drills (org_id) WHERE ended_at IS NULL",
    ],
  },
);
export type DrillRow = TableRow<typeof drills>;

/** `fromMs`, `untilMs`: since the drill began; negative: before it. Null: the loss goes on. */
export const DrillLosses = v.array(
  v.object({ peer: v.number(), name: v.string(), fromMs: v.number(), untilMs: v.nullable(v.number()) }),
);
export type DrillLosses = v.InferOutput<typeof DrillLosses>;

export const drillNodes = table(
  "drill_nodes",
  {
    drillId: integer("REFERENCES drills (id)"),
    nodeId: integer(),
    nodeName: emptyText,
    /** As DrillReport.state: `refused` stays when the node reports its peers. */
    state: word(["began", "refused", "ended"]),
    reason: emptyText,
    /** How many peers it watched; null: it has not reported them. */
    peers: integerOrNull(),
    losses: jsonWithDefault(DrillLosses, "[]"),
  },
  { constraints: ["PRIMARY KEY (drill_id, node_id)"] },
);
export type DrillNodeRow = TableRow<typeof drillNodes>;
