// Nodes, and what belongs to one: groups, addresses, held names, aliases, proofs of owners, who registered it, what it
// last reported and was last sent.

import { AdvertisedList, RouteOptions } from "../../../protocol/routing/advertised.ts";
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
  emptyText,
  truth,
  word,
  wordOrNull,
  type TableRow,
  key,
} from "../table.ts";
import * as v from "valibot";

/** SQL: the node is a lighthouse or relay. */
export function hubIs(prefix = ""): string {
  return `${prefix}is_lighthouse = 1 OR ${prefix}is_relay = 1`;
}

/**
 * SQL: the node is a lighthouse or relay, or has subnets. The condition of the index `nodes_special`, which a query uses only
 * with the same words.
 */
export function specialIs(prefix = ""): string {
  return `${hubIs(prefix)} OR ${prefix}subnets <> '[]'`;
}

export const nodes = table(
  "nodes",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    ip: text(),
    ip6: textOrNull(),
    state: word(["pending", "active", "revoked"]),
    /** Null: no agent has registered as this node. */
    mode: wordOrNull(["server", "desktop"]),
    isLighthouse: truth(0),
    isRelay: truth(0),
    publicIp: textOrNull(),
    externalPort: integerOrNull(),
    listenPort: integerOrNull(),
    /** The key of its overlay certificates, in PEM. Null: no machine has registered. */
    hostPublicKey: textOrNull(),
    /** The request for its X.509 certificate (node.crt), in PEM, and the digest of the key in it. Null: it wants none. */
    csr: textOrNull(),
    csrKeySha256: textOrNull(),
    groups: jsonWithDefault(v.array(v.string()), "[]"),
    subnets: jsonWithDefault(v.array(v.string()), "[]"),
    configOverrides: jsonWithDefault(Overrides, "{}"),
    /** Of the token by which the node proves itself to the control plane. */
    tokenHash: textOrNull("UNIQUE"),
    /** The id of the registration token; null: registered without one. */
    registeredWith: integerOrNull(),
    platform: textOrNull(),
    agentVersion: textOrNull(),
    overlayVersion: textOrNull(),
    confirmedConfigVersion: integerWithDefault("DEFAULT 0"),
    /** The version of the last change for this node alone, see versions.ts. */
    ownVersion: integerWithDefault("DEFAULT 1"),
    /** When the first of its certificates is due for renewal, ms; 0: at once; null without certificates. */
    renewAt: integerOrNull(),
    createdAt: integer(),
    registeredAt: integerOrNull(),
    revokedAt: integerOrNull(),
    /** As memberships.invitedBy. */
    revokedBy: textOrNull(),
    revokeReason: textOrNull(),
    /** The number and the signed text of the last order, a revocation or a restore. Null: there is none. */
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
    /** `publishedText` when it was last published. */
    namedAs: since(15, emptyText),
    /** The user whose node it is; null: the organization's. */
    ownerId: since(22, integerOrNull()),
    /**
     * False for nodes of earlier versions, which recorded no owner: then `offboarding/end-access.ts` looks for who
     * registered them.
     */
    ownerKnown: since(22, truth(0)),
    /** An ephemeral node ends after this silence, in seconds; null: the node stays. See nodes/contact/silence.ts. */
    ephemeralSilenceS: since(25, integerOrNull()),
    /** Silence of an ephemeral or restored node counts from this time at the earliest, ms. */
    watchedFrom: since(25, integerOrNull()),
    /** When an ephemeral node ended, ms. Its state is `revoked` then, and none of its certificates is blocked. */
    endedAt: since(25, integerOrNull()),
    /** Whether peers get the name of the node. */
    isNamed: since(25, truth(1)),
    /** Groups that the node has while it is its owner's, see nodes/owner-groups.ts. */
    ownerGroups: since(40, jsonWithDefault(v.array(v.string()), "[]")),
    /** It answers its peers' DNS queries for names of nodes, if root on the machine lets it. */
    isNameServer: since(43, truth(0)),
    /** The system of a phone, which never checks in, see nodes/phones.ts; null: a machine with an agent. */
    phone: since(47, wordOrNull(["android", "ios"])),
    /** When the newest site file of a phone was made, ms. */
    importedAt: since(47, integerOrNull()),
    /** The groups whose nodes may use it as an exit to the internet; "any": all nodes. Empty: it is no exit. */
    exitGroups: since(59, jsonWithDefault(v.array(v.string()), "[]")),
    /** The last check-in before the reported absence, ms; null: none was reported, or the node is back. */
    awaySince: since(56, integerOrNull()),
    /** Metric and maintenance of its subnets, as a router among others. */
    routeOptions: since(58, jsonWithDefault(RouteOptions, "{}")),
    /** The networks that root of its machine offers to route, as it reported last. */
    advertised: since(58, jsonWithDefault(AdvertisedList, "[]")),
    /**
     * How a lighthouse or relay is reached where UDP is blocked: the TCP port of its agent's listener, or `plane` for the
     * control plane's own; null: not by TCP.
     */
    tcp: since(60, textOrNull()),
    /** What root of its machine lets the control plane update, and its time zone: `agent,engine 120`. Null: nothing. */
    mayUpdate: since(65, textOrNull()),
    /** The update that the node should do now, an UpdateOrder as JSON; null: none. */
    updateOrder: since(65, textOrNull()),
    /** What it refuses because of its seal, as it reported last: a SealRefused as JSON; null: nothing. */
    sealRefused: since(68, textOrNull()),
  },
  {
    indexes: [
      "CREATE UNIQUE INDEX nodes_name ON nodes (org_id, name) WHERE state <> 'revoked'",
      // The pages of the list, and its length.
      "CREATE INDEX nodes_listed ON nodes (org_id, id) WHERE state <> 'revoked'",
      "CREATE INDEX nodes_host_key ON nodes (host_public_key) WHERE host_public_key IS NOT NULL",
      "CREATE INDEX nodes_confirmed ON nodes (org_id, state, confirmed_config_version)",
      `CREATE INDEX nodes_special ON nodes (org_id) WHERE ${specialIs()}`,
    ],
  },
);
export type NodeRow = TableRow<typeof nodes>;

const namedIf = (condition: string) =>
  `CASE WHEN ${condition} THEN name || ' ' || ip || ' ' || coalesce(ip6, '') || ' ' || groups ELSE '' END`;
/**
 * The names and addresses that peers know of a node; empty if it has no name. An index has this expression: never
 * change it.
 */
export const publishedText = namedIf("state = 'active' AND is_named = 1");
/** Nodes that changed since names were published. An index has exactly this condition. */
export const isUnpublished = `named_as <> ${publishedText}`;
/** The expression of the release before, which can still work on the database. */
export const formerlyUnpublished = `named_as <> ${namedIf("state = 'active'")}`;

/** The bytes of the long columns that lists show. An index has this expression: never change it. */
export const nodeBytes = "(octet_length(groups) + octet_length(subnets) + octet_length(config_overrides))";
const bytes = computed({ bytes: integer() });

/** The bytes (`nodeBytes`) of the organization's widest node; 0 without nodes. `revoked`: of those nodes, else of all others. */
export async function widestNode(reader: Reader, orgId: number, revoked: boolean): Promise<number> {
  const sql = `SELECT ${nodeBytes} AS bytes FROM nodes
    WHERE org_id = $1 AND state ${revoked ? "=" : "<>"} 'revoked' ORDER BY ${nodeBytes} DESC LIMIT 1`;
  return (await queryOne(reader, bytes, sql, [orgId]))?.bytes ?? 0;
}

/** Groups of nodes. */
export const nodeGroups = table(
  "node_groups",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    description: emptyText,
    createdAt: integer(),
  },
  { constraints: ["UNIQUE (org_id, name)"] },
);

/**
 * Every host number below next_host, and those above it that were requested. Without a node the address is free. With a
 * node it is taken. With heldUntil too, its node has left it: it becomes free when every active node has confirmed
 * heldVersion, or when the certificate that names it has expired, and open flows have ended, see allocation/holds.ts.
 */
export const addresses = table(
  "addresses",
  {
    orgId: integer("REFERENCES organizations (id)"),
    host: integer(),
    nodeId: integerOrNull("REFERENCES nodes (id)"),
    heldVersion: integerOrNull(),
    heldUntil: integerOrNull(),
    /** When the address becomes free, ms; null until all active nodes have confirmed. */
    freeAt: since(8, integerOrNull()),
    /** The version that makes engines check open flows again, raised at freeAt. The address is free once it is confirmed. */
    recheckVersion: since(12, integerOrNull()),
    /**
     * Its former node was ephemeral, so engines do not check open flows again for this address alone: they do so for another
     * one, or when few addresses are left.
     */
    isQuiet: since(25, truth(0)),
    /** Since when its node has the address, ms, if another node had it before; else 0. Flows before that are the other node's. */
    takenAt: since(62, integerWithDefault("DEFAULT 0")),
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

/** Names that nodes gave up, held while peers may still grant them something, see allocation/holds.ts. */
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

/** Aliases: further names of nodes, and names of addresses that nodes route. */
export const nameAliases = table(
  "name_aliases",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    name: text(),
    nodeId: integer("REFERENCES nodes (id)"),
    /** An address within a subnet of the node; null: the node's own addresses. */
    address: textOrNull(),
    /** An active node has this name now, which comes first: nodes are not told of the alias. */
    isShadowed: truth(0),
    /** The version of the organization's names that last changed the alias. */
    namesVersion: integer(),
    createdAt: integer(),
    /** Deleted aliases are kept until no node asks for changes since then. */
    deletedAt: integerOrNull(),
  },
  {
    indexes: [
      "CREATE UNIQUE INDEX name_aliases_name ON name_aliases (org_id, name) WHERE deleted_at IS NULL",
      "CREATE INDEX name_aliases_version ON name_aliases (org_id, names_version)",
      "CREATE INDEX name_aliases_node ON name_aliases (node_id)",
    ],
  },
);

/** When the user of a node last confirmed in a browser that it is still theirs, where the organization requires that. */
export const ownerProofs = table(
  "owner_proofs",
  {
    nodeId: integer("REFERENCES nodes (id)"),
    /** Ms; 0: never. */
    provenAt: integer(),
    /** When the user was told that the time ends, ms; null: not yet since the last proof. */
    toldAt: integerOrNull(),
    /** When an administrator last gave the node to its user, by a transfer or a restore, ms; null: never. */
    givenAt: since(41, integerOrNull()),
  },
  { constraints: ["PRIMARY KEY (node_id)"] },
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

/**
 * The files that the control plane sent to each node last, in a form that can be compared. A configuration is stored once
 * for all nodes of an organization that have the same.
 */
export const sentConfigs = table(
  "sent_configs",
  {
    orgId: integer("REFERENCES organizations (id)"),
    digest: text(),
    /** config.yml without its blocklist, gzip in base64. */
    packed: text(),
    /** When it was sent last, ms, to the hour. */
    sentAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (org_id, digest)"],
    indexes: ["CREATE INDEX sent_configs_sent ON sent_configs (sent_at)"],
  },
);

export const sentFiles = table("sent_files", {
  nodeId: key,
  orgId: integer("REFERENCES organizations (id)"),
  /** The configuration that was sent last. */
  version: integer(),
  /** `sentConfigs.digest`. The other files as a summary: see comparable-files.ts. */
  configDigest: text(),
  others: text(),
  /** Since when the node has files that it has not applied; otherwise when these files were sent. In ms. */
  sentAt: integer(),
  /** The configuration before that, which the node has confirmed. A node may refuse what was sent last. */
  formerVersion: integerOrNull(),
  formerDigest: textOrNull(),
  formerOthers: textOrNull(),
});
