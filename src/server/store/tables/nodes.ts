// Nodes.

import { Overrides } from "./organizations.ts";
import type { Reader } from "../database.ts";
import {
  computed,
  integer,
  integerOrNull,
  integerWithDefault,
  jsonWithDefault,
  queryOne,
  serial,
  since,
  table,
  text,
  textOrNull,
  textWithDefault,
  truth,
  word,
  wordOrNull,
  type TableRow,
} from "../table.ts";
import * as v from "valibot";

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
    /**
     * Its configuration goes on naming the engine's former defaults that apply only at a start: to leave them out would
     * restart the engine. True for nodes registered by earlier versions.
     */
    pinsDefaults: since(14, truth(1)),
    /** The version of the organization's names that last changed this node; 0: it was never published. */
    namesVersion: since(15, integerWithDefault("DEFAULT 0")),
    /** `named` when it was last published. */
    namedAs: since(15, textWithDefault("DEFAULT ''")),
    /** The user whose node it is; null: the organization's. */
    ownerId: since(22, integerOrNull()),
    /** False for nodes of earlier versions, which recorded no owner: `offboarding/left-access.ts` asks who registered them. */
    ownerKnown: since(22, truth(0)),
    /** An ephemeral node ends after this silence, in seconds; null: the node stays. See nodes/ephemeral.ts. */
    ephemeralSilenceS: since(25, integerOrNull()),
    /** Silence of an ephemeral node counts from this time at the earliest, ms. */
    watchedFrom: since(25, integerOrNull()),
    /** When an ephemeral node ended, ms. Its state is `revoked` then, and none of its certificates is blocked. */
    endedAt: since(25, integerOrNull()),
    /** Whether peers get the name of the node. */
    isNamed: since(25, truth(1)),
    /** Groups that the node has while it is its owner's, see nodes/owner-groups.ts. */
    ownerGroups: since(40, jsonWithDefault(v.array(v.string()), "[]")),
    /** It answers its peers' DNS queries for names of nodes, if root on the machine lets it. */
    isNameServer: since(42, truth(0)),
    /** The system of a phone, which never checks in, see nodes/phones.ts; null: a machine with an agent. */
    phone: since(46, wordOrNull(["android", "ios"])),
    /** When the newest site file of a phone was made, ms. */
    importedAt: since(46, integerOrNull()),
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

const namedIf = (condition: string) =>
  `CASE WHEN ${condition} THEN name || ' ' || ip || ' ' || coalesce(ip6, '') || ' ' || groups ELSE '' END`;
/** What peers know of a node; empty if it has no name. An index has this expression: never change it. */
export const named = namedIf("state = 'active' AND is_named = 1");
/** Nodes that changed since names were published. An index has exactly this condition. */
export const isUnpublished = `named_as <> ${named}`;
/** The same in the release before, which still works on the database. */
export const formerlyUnpublished = `named_as <> ${namedIf("state = 'active'")}`;

/** The bytes of the long columns that lists show. An index has this expression: never change it. */
export const nodeBytes = "(octet_length(groups) + octet_length(subnets) + octet_length(config_overrides))";
const bytes = computed({ bytes: integer() });

/** The bytes of the organization's widest node; 0 without nodes. */
export async function widestNode(
  reader: Pick<Reader, "get">,
  orgId: number,
  revoked: boolean,
): Promise<number> {
  const sql = `SELECT ${nodeBytes} AS bytes FROM nodes
    WHERE org_id = $1 AND state ${revoked ? "=" : "<>"} 'revoked' ORDER BY ${nodeBytes} DESC LIMIT 1`;
  return (await queryOne(reader, bytes, sql, [orgId]))?.bytes ?? 0;
}
