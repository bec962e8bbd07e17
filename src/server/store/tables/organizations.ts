// Organizations. A deleted organization keeps its row, so that its nodes still learn that they are revoked.

import * as v from "valibot";
import { OrderKey } from "../../../protocol/values.ts";
import type { YamlMap } from "../../../yaml.ts";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  json,
  jsonWithDefault,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  wordWithDefault,
  type Column,
  type TableRow,
} from "../table.ts";

export const Overrides: v.GenericSchema<unknown, YamlMap> = v.record(v.string(), v.any());

const storedVersion = wordWithDefault(["1", "both", "2"], "1");
const certificateVersion: Column<1 | "both" | 2, false> = {
  ...storedVersion,
  read(value, name) {
    const word = storedVersion.read(value, name);
    return word === "both" ? word : word === "1" ? 1 : 2;
  },
  write: String,
};

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
    certificateVersion,
    /** Seconds; null: the default of the node's engine. */
    aliveInterval: integerOrNull("CHECK (alive_interval BETWEEN 1 AND 30)"),
    configOverrides: jsonWithDefault(Overrides, "{}"),
    orderKeySealed: text(),
    orderPublic: json(OrderKey),
    orderKeyProof: textOrNull(),
    rotationPhase: wordWithDefault(["none", "trust", "issue", "retire"], "none"),
    rotationPaused: truth(0),
    /** Whether the server starts a CA rotation by itself in time. */
    rotationAuto: truth(1),
    /** The version that the nodes have to confirm in this phase. */
    rotationVersion: integerOrNull(),
    /** The lowest host number that was never assigned. */
    nextHost: integerWithDefault("DEFAULT 1"),
    createdAt: integer(),
    deletedAt: integerOrNull(),
    /** Start of the silence timer, ms: nodes that were not seen since then count as online for a while. */
    rotationHeardFrom: since(3, integerOrNull()),
    /** A rolling update is under way: nodes get their first IPv6 address one after the other. */
    moveOpen: since(4, truth(0)),
    /** The node that the rolling update restarts now. */
    movingNode: since(4, integerOrNull()),
    /** True from a rollback until the next rotation starts. */
    rotationBack: since(5, truth(0)),
    /** The highest length of the blocklist that an event has announced; 0 while the list is short. */
    blocklistMark: since(6, integerWithDefault("DEFAULT 0")),
    /** Since when all online nodes have confirmed the current step of a rotation, ms. */
    rotationSettledAt: since(9, integerOrNull()),
    /** The rotation does not wait for tunnels. */
    rotationNow: since(9, truth(0)),
    /** When the node of the rolling update had confirmed, ms; a lighthouse waits some time after it. */
    moveSettledAt: since(9, integerOrNull()),
    /** How often engines had to check open flows again, see holds.ts. */
    flowRechecks: since(12, integerWithDefault("DEFAULT 0")),
    /** Rises with each change of names; see names/publish.ts. */
    namesVersion: since(15, integerWithDefault("DEFAULT 0")),
    /** A node with names from before this version gets all of them again. */
    namesSince: since(15, integerWithDefault("DEFAULT 0")),
    /** Nodes see the names of all nodes, also of those that no rule lets them reach. */
    namesToAll: since(15, truth(0)),
    /** Nodes may report their paths. */
    pathReports: since(17, truth(1)),
    /** A new lighthouse is a relay too. Off in organizations from before: their lighthouses were not asked. */
    lighthousesRelay: since(18, truth(0)),
    /** Members need a second factor. */
    secondFactor: since(20, truth(0)),
    /** The nodes of a user are revoked when the user leaves. */
    revokeLeaverNodes: since(22, truth(0)),
    /** Which new nodes wait for an administrator: none, all, or those whose token is not approved. */
    nodeApproval: since(26, wordWithDefault(["none", "all", "unapproved"], "none")),
    /** Members may sign the command line in by a code that they type in a browser. */
    deviceCodes: since(31, truth(1)),
    /** Who may add machines of their own by confirming them in a browser. */
    selfEnrollment: since(35, wordWithDefault(["off", "admins", "members"], "admins")),
    /** A domain, beside `.internal`, that names end in on machines whose root allows it. */
    nameSuffix: since(36, textOrNull()),
    /** Users confirm every so many days that their nodes are still theirs; null: never. */
    reauthenticateDays: since(39, integerOrNull()),
    /** Since when that counts, ms: a setting cuts off no node at once. */
    reauthenticateFrom: since(39, integerWithDefault("DEFAULT 0")),
    /** The nodes of a user end a day after the last sign-in, where nothing else says that the user is still there. */
    revokeUnprovenNodes: since(41, truth(0)),
    /** Since when that counts, ms: a setting, or a server that was down, revokes no node at once. */
    revokeUnprovenFrom: since(41, integerWithDefault("DEFAULT 0")),
  },
  { indexes: ["CREATE UNIQUE INDEX organizations_slug ON organizations (slug) WHERE deleted_at IS NULL"] },
);
export type OrganizationRow = TableRow<typeof organizations>;
