// Nodes, their last check-ins, their addresses, and the credentials that registered them.

import * as v from "valibot";
import { Overrides } from "./organizations.ts";
import {
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  key,
  serial,
  since,
  table,
  text,
  textOrNull,
  truth,
  word,
  wordOrNull,
  type TableRow,
} from "../table.ts";

export const nodes = table(
  "nodes",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    ip: text(),
    ip6: textOrNull(),
    state: word(["pending", "active", "revoked"]),
    mode: wordOrNull(["server", "desktop"]),
    isLighthouse: truth(0),
    isRelay: truth(0),
    publicIp: textOrNull(),
    externalPort: integerOrNull(),
    listenPort: integerOrNull(),
    hostPublicKey: textOrNull(),
    csr: textOrNull(),
    csrKeySha256: textOrNull(),
    groups: jsonWithDefault(v.array(v.string()), "[]"),
    subnets: jsonWithDefault(v.array(v.string()), "[]"),
    configOverrides: jsonWithDefault(Overrides, "{}"),
    tokenHash: textOrNull("UNIQUE"),
    registeredWith: integerOrNull(),
    platform: textOrNull(),
    agentVersion: textOrNull(),
    overlayVersion: textOrNull(),
    confirmedConfigVersion: integerWithDefault("DEFAULT 0"),
    /** The version of the last change for this node alone, see versions.ts. */
    ownVersion: integerWithDefault("DEFAULT 1"),
    /** When the first of its certificates is due for renewal, ms; null without certificates. */
    renewAt: integerOrNull(),
    createdAt: integer(),
    registeredAt: integerOrNull(),
    revokedAt: integerOrNull(),
    revokedBy: textOrNull(),
    revokeReason: textOrNull(),
    orderSeq: integerWithDefault("DEFAULT 0"),
    orderJws: textOrNull(),
    /** The node still trusts the CAs that its organization has just retired. */
    keepsFormer: since(9, truth(0)),
  },
  {
    indexes: [
      "CREATE UNIQUE INDEX nodes_name ON nodes (org_id, name) WHERE state <> 'revoked'",
      // The pages of the list, and its length.
      "CREATE INDEX nodes_listed ON nodes (org_id, id) WHERE state <> 'revoked'",
      "CREATE INDEX nodes_host_key ON nodes (host_public_key) WHERE host_public_key IS NOT NULL",
      "CREATE INDEX nodes_confirmed ON nodes (org_id, state, confirmed_config_version)",
      "CREATE INDEX nodes_special ON nodes (org_id) WHERE is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]'",
    ],
  },
);
export type NodeRow = TableRow<typeof nodes>;

/** The last check-in of a node. Not in its wide row, because it is written all the time. */
export const sightings = table("sightings", {
  nodeId: key,
  lastCheckinAt: integer(),
  reportedVersion: textOrNull(),
  uptime: integerOrNull(),
  overlayState: textOrNull(),
  appliedConfigVersion: integerOrNull(),
});
export type SightingRow = TableRow<typeof sightings>;

/**
 * Every host number below next_host, and those above it that were requested. Without a node the address is free. With a
 * node it is taken. With heldUntil too, its node has left it: it becomes free when every active node has confirmed
 * heldVersion, or when the certificate that names it has expired.
 */
export const addresses = table(
  "addresses",
  {
    orgId: integer("REFERENCES organizations (id)"),
    host: integer(),
    nodeId: integerOrNull("REFERENCES nodes (id)"),
    heldVersion: integerOrNull(),
    heldUntil: integerOrNull(),
    /** As heldNames.freeAt. */
    freeAt: since(8, integerOrNull()),
  },
  {
    constraints: ["PRIMARY KEY (org_id, host)"],
    indexes: [
      "CREATE INDEX addresses_node ON addresses (node_id)",
      "CREATE INDEX addresses_free ON addresses (org_id, host) WHERE node_id IS NULL",
      "CREATE INDEX addresses_held ON addresses (org_id) WHERE held_until IS NOT NULL",
    ],
  },
);

/** The credentials that registered a node: `person/7`, `service/3`, `registration_token/5` or `operator/`. */
export const registrants = table(
  "registrants",
  { nodeId: integer("REFERENCES nodes (id)"), principal: text() },
  {
    constraints: ["PRIMARY KEY (node_id, principal)"],
    indexes: ["CREATE INDEX registrants_principal ON registrants (principal)"],
  },
);

/** Names that nodes gave up, held while peers may still grant them something, see holds.ts. */
export const heldNames = table(
  "held_names",
  {
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    /** The version that no longer contains the name; null until it is known. */
    heldVersion: integerOrNull(),
    /** When the last certificate with the name expires, ms. */
    heldUntil: integer(),
    /** When the name becomes free, ms; null until all active nodes have confirmed. */
    freeAt: integerOrNull(),
  },
  {
    constraints: ["PRIMARY KEY (org_id, name, node_id)"],
    indexes: [
      "CREATE INDEX held_names_node ON held_names (node_id)",
      "CREATE INDEX held_names_version ON held_names (org_id, held_version) WHERE free_at IS NULL",
      "CREATE INDEX held_names_free ON held_names (org_id, free_at) WHERE free_at IS NOT NULL",
    ],
  },
);
