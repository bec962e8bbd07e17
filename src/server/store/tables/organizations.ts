// Organizations, their members and verified domains, and the networks from which users signed in. A deleted organization keeps its
// row, so that its nodes still learn that they are revoked.

import * as v from "valibot";
import { OrderKey } from "../../../protocol/values.ts";
import type { YamlMap } from "../../../base/yaml.ts";
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
  word,
  wordOrNull,
} from "../table.ts";
import { roles } from "../../../api/endpoint.ts";
import { notFound } from "../../../api/values.ts";
import { AppError } from "../../../base/errors.ts";
import type { Reader, Transaction } from "../database.ts";

export const Overrides: v.GenericSchema<unknown, YamlMap> = v.record(v.string(), v.any());

const storedVersion = wordWithDefault(["1", "both", "2"], "1");
const certificateVersion: Column<1 | "both" | 2, false> = {
  ...storedVersion,
  read(value, name) {
    const version = storedVersion.read(value, name);
    if (version === "both") return version;
    return version === "1" ? 1 : 2;
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
    /** The configuration version of all nodes, and the highest of any node: see versions.ts. */
    configVersion: integerWithDefault("DEFAULT 1"),
    lastVersion: integerWithDefault("DEFAULT 1"),
    certificateVersion,
    /** How often engines test tunnels, in seconds; null: the default of the node's engine. */
    aliveInterval: integerOrNull("CHECK (alive_interval BETWEEN 1 AND 30)"),
    configOverrides: jsonWithDefault(Overrides, "{}"),
    /** The key that signs orders: an envelope of pki/secrets.ts, and its public half. */
    orderKeySealed: text(),
    orderPublic: json(OrderKey),
    /** A JWS of this key, signed with the former one, for nodes that know that one; null: it never changed. */
    orderKeyProof: textOrNull(),
    /** What a CA rotation has reached: see rollout/rotation-phases.ts. */
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
    /** When the wait before the restart of a lighthouse began in a rolling update, ms; null: it has not begun. */
    moveSettledAt: since(9, integerOrNull()),
    /** How often engines had to check open flows again, see allocation/holds.ts. */
    flowRechecks: since(12, integerWithDefault("DEFAULT 0")),
    /** Rises with each change of names; see names/publish.ts. */
    namesVersion: since(15, integerWithDefault("DEFAULT 0")),
    /** A node whose names are older than this version gets all of them again. */
    namesSince: since(15, integerWithDefault("DEFAULT 0")),
    /** Nodes see the names of all nodes, not only of those that rules let them reach. */
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
    /** Which users may add machines of their own by confirming them in a browser. */
    selfEnrollment: since(35, wordWithDefault(["off", "admins", "members"], "admins")),
    /** A domain, beside `.internal`, that names end in on machines whose root allows it. */
    nameSuffix: since(36, textOrNull()),
    /** Days after which users must confirm again that their nodes are still theirs; null: never. */
    reauthenticateDays: since(39, integerOrNull()),
    /** Start of the first period, ms: a new setting cuts off no node at once. */
    reauthenticateFrom: since(39, integerWithDefault("DEFAULT 0")),
    /**
     * Nodes of a user are revoked a day after the last sign-in, if nothing else proves that the user is still there.
     */
    revokeUnprovenNodes: since(41, truth(0)),
    /** Start of the first period, ms: neither a new setting nor an outage of the server revokes a node at once. */
    revokeUnprovenFrom: since(41, integerWithDefault("DEFAULT 0")),
    /** A node that has not checked in for this many minutes is reported as away; null: no node is. */
    notifyAwayMinutes: since(56, integerOrNull()),
    /** Since when `notifyAwayMinutes` has this value, ms. */
    notifyAwayFrom: since(56, integerWithDefault("DEFAULT 0")),
    /** Nodes report which flows there are. */
    flows: since(62, truth(0)),
    /** Nodes behind a router ask it for a UDP port. */
    portMapping: since(67, truth(1)),
    /** As src/api/organizations.ts has them: `node=30`. */
    alarmRules: since(61, jsonWithDefault(v.array(v.string()), "[]")),
  },
  { indexes: ["CREATE UNIQUE INDEX organizations_slug ON organizations (slug) WHERE deleted_at IS NULL"] },
);
export type OrganizationRow = TableRow<typeof organizations>;
/** Throws not_found. */
export async function requireOrganization(
  reader: Reader,
  where: Partial<OrganizationRow>,
): Promise<OrganizationRow> {
  const org = await organizations.find(reader, where);
  if (org === undefined) throw new AppError("not_found", notFound.organization);
  return org;
}

/**
 * Members of organizations. A row without a user is an open invitation; the secret of its link, stored as a hash,
 * accepts it.
 */
export const memberships = table(
  "memberships",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    email: text(),
    userId: integerOrNull("REFERENCES users (id)"),
    role: word(roles),
    /** SHA-256 of the invitation's secret, and when the invitation ends, ms; null once it is accepted. */
    secretHash: textOrNull("UNIQUE"),
    expiresAt: integerOrNull(),
    createdAt: integer(),
    /** `person/7`, `service/3` or `operator/`; null for rows of older versions. */
    invitedBy: since(7, textOrNull()),
    /** The provider whose groups gave the role, and may remove it; null: an administrator gave it. */
    providerId: since(27, integerOrNull()),
  },
  {
    constraints: ["UNIQUE (org_id, email)"],
    indexes: ["CREATE INDEX memberships_user ON memberships (user_id)"],
  },
);
export type MembershipRow = TableRow<typeof memberships>;

/** The networks from which users signed in: they are still admitted while the user's password is guessed from others. */
export const knownNetworks = table(
  "known_networks",
  {
    userId: integer("REFERENCES users (id)"),
    /** An IPv4 address, or an IPv6 /64. */
    network: text(),
    /** The last sign-in from there. */
    seenAt: integer(),
  },
  {
    constraints: ["PRIMARY KEY (user_id, network)"],
    indexes: ["CREATE INDEX known_networks_seen ON known_networks (seen_at)"],
  },
);

/** A network or device without a sign-in for this long is no longer known. */
export const knownForMs = 90 * 86_400_000;
/** Networks that are remembered of one user. */
const maxOfUser = 32;

export async function isKnownNetwork(
  reader: Reader,
  { userId, network, now }: { userId: number; network: string; now: number },
): Promise<boolean> {
  const known = await knownNetworks.find(reader, { userId, network });
  return known !== undefined && known.seenAt > now - knownForMs;
}

/** Remembers a sign-in. Forgets old networks of all users, and all but the newest of this one. */
export async function rememberNetwork(
  tx: Transaction,
  { userId, network, now }: { userId: number; network: string; now: number },
): Promise<void> {
  // Empty: the client disconnected before its address was read.
  if (network === "") return;
  const newest = "ON CONFLICT (user_id, network) DO UPDATE SET seen_at = excluded.seen_at";
  await knownNetworks.upsert(tx, { userId, network, seenAt: now }, newest);
  await tx.run("DELETE FROM known_networks WHERE seen_at < $1", [now - knownForMs]);
  // If the wall clock was set back, times in the future count as now: no network is known for longer, or kept before
  // newer ones.
  await tx.run("UPDATE known_networks SET seen_at = $2 WHERE user_id = $1 AND seen_at > $2", [userId, now]);
  await tx.run(
    `DELETE FROM known_networks WHERE user_id = $1 AND network NOT IN (
       SELECT network FROM known_networks WHERE user_id = $1 ORDER BY seen_at DESC, network LIMIT ${maxOfUser})`,
    [userId],
  );
}

/**
 * Domains of e-mail addresses that an organization has claimed. An address that the organization's provider names counts
 * only if its domain is verified.
 */
export const verifiedDomains = table(
  "verified_domains",
  {
    id: serial,
    orgId: integer("REFERENCES organizations (id)"),
    /** Lower case, without a dot at the end. */
    domain: text(),
    /** The value of the TXT record. Not a secret: only the owner of the domain can publish it. */
    proof: text(),
    createdAt: integer(),
    verifiedAt: integerOrNull(),
    /** By the record in DNS, or by the word of staff. */
    verifiedBy: wordOrNull(["dns", "staff"]),
  },
  {
    constraints: ["UNIQUE (org_id, domain)"],
    indexes: [
      "CREATE INDEX verified_domains_domain ON verified_domains (domain) WHERE verified_at IS NOT NULL",
    ],
  },
);
export type VerifiedDomainRow = TableRow<typeof verifiedDomains>;
