// Organizations. A deleted one keeps its row, so that its nodes still learn that they are revoked.

import * as v from "valibot";
import type { YamlMap } from "../../../yaml.ts";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  wordWithDefault,
  type TableRow,
} from "../table.ts";

export const Overrides: v.GenericSchema<unknown, YamlMap> = v.record(v.string(), v.any());

export const organizations = table(
  "organizations",
  {
    id: serial,
    slug: text(),
    name: text(),
    network: text(),
    network6: textOrNull(),
    /** See versions.ts. */
    configVersion: integerWithDefault("DEFAULT 1"),
    lastVersion: integerWithDefault("DEFAULT 1"),
    certificateVersion: wordWithDefault(["1", "both", "2"], "1"),
    /** Seconds; null follows the engine. */
    aliveInterval: integerOrNull("CHECK (alive_interval BETWEEN 1 AND 30)"),
    configOverrides: jsonWithDefault(Overrides, "{}"),
    orderKeySealed: text(),
    orderPublic: text(),
    orderKeyProof: textOrNull(),
    rotationPhase: wordWithDefault(["none", "trust", "issue", "retire"], "none"),
    rotationPaused: truth(0),
    /** Whether a rotation of the CAs begins by itself in time. */
    rotationAuto: truth(1),
    /** The version that the nodes have to confirm in this phase. */
    rotationVersion: integerOrNull(),
    /** The lowest host number that was never given. */
    nextHost: integerWithDefault("DEFAULT 1"),
    createdAt: integer(),
    deletedAt: integerOrNull(),
    /** Since then no node could miss being seen. */
    rotationHeardFrom: since(3, integerOrNull()),
    /** While open, nodes get their first IPv6 address one after the other. */
    moveOpen: since(4, truth(0)),
    /** The node whose turn it is. */
    movingNode: since(4, integerOrNull()),
    /** True from a rollback until the next rotation begins. */
    rotationBack: since(5, truth(0)),
    /** The highest length of the blocklist that an event has announced; 0 while it is short. */
    blocklistMark: since(6, integerWithDefault("DEFAULT 0")),
    /** Since then all online nodes have confirmed the present step of a rotation. */
    rotationSettledAt: since(9, integerOrNull()),
    /** No step of the rotation waits for tunnels. */
    rotationNow: since(9, truth(0)),
    /** Since then the node that has its turn has confirmed; a lighthouse's turn waits. */
    moveSettledAt: since(9, integerOrNull()),
  },
  { indexes: ["CREATE UNIQUE INDEX organizations_slug ON organizations (slug) WHERE deleted_at IS NULL"] },
);
export type OrganizationRow = TableRow<typeof organizations>;
