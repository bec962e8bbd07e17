// Nodes as users and programs see and change them. The calls of nodes are in node-calls.ts.

import * as v from "valibot";
import { brand } from "../brand.ts";
import { Cidr } from "../engine/allowed-settings.ts";
import { RenewAnswer } from "../protocol/checkin.ts";
import { maxSubnets } from "../protocol/routing/advertised.ts";
import { Node } from "../protocol/node.ts";
import { sessionsEndedHeader } from "../protocol/sign-in.ts";
import { NodeName, Port, PublicAddress, GroupName, listOf } from "../protocol/values.ts";
import { foreignText, formerEmailKey } from "../base/text.ts";
import { endpoint, hasSome, isOn } from "./endpoint.ts";
import { maxOnlinePoints, OnlineHistory } from "./history/online-history.ts";
import { overridesSetting } from "./organizations.ts";
import { declare, taken } from "../protocol/settings.ts";
import {
  filesHeaders,
  idsOf,
  ListQuery,
  maxEmailLength,
  notModified,
  reachErrors,
  Switch,
  Text,
  Time,
  word,
} from "./values.ts";

/** Of one node. Its certificate holds them all, and its subnets. */
export const maxGroups = 64;

/**
 * What administrators change of a node, in the order of the help. Fields: `Setting` in protocol/settings.ts. Settings without
 * `section` are not in the form of the console.
 */
export const nodeSettings = declare({
  name: {
    takes: NodeName,
    flag: "name",
    hint: "NEW",
    help: "A new name",
    section: "Machine",
    label: "Name",
    more: "The former one ends at once, also inside the network.",
  },
  ip_address: {
    takes: v.pipe(foreignText(45), v.minLength(2)),
    flag: "ip-address",
    hint: "A",
    help: "Another overlay address",
  },
  groups: {
    takes: listOf(GroupName, maxGroups),
    flag: "group",
    hint: "G",
    help: "Add a group",
    removal: "Remove a group",
    section: "Machine",
    label: "Groups",
  },
  subnets: {
    takes: listOf(Cidr, maxSubnets),
    flag: "subnet",
    hint: "CIDR",
    help: "Let the node route this network behind it",
    removal: "Stop routing it",
    section: "Machine",
    label: "Networks behind it",
    more: "Separated by commas or blanks, such as 192.168.7.0/24. The machine routes them for the others.",
  },
  is_lighthouse: {
    takes: v.boolean(),
    flag: "lighthouse",
    help: "Make it a lighthouse; it needs a public address",
    removal: "Remove the role of a lighthouse",
    section: "Roles",
    label: "Lighthouse: machines find each other by it. It needs a public address",
  },
  is_relay: {
    takes: v.boolean(),
    flag: "relay",
    help: "Make it a relay",
    removal: "Remove the role of a relay",
    section: "Roles",
    label:
      "Relay: it forwards for machines that do not reach each other directly. Both must reach it: best by a public address",
  },
  is_name_server: {
    takes: v.boolean(),
    flag: "names",
    help: "Make it a name server: it answers nodes that ask it for names of nodes",
    removal: "Remove the role of a name server",
    section: "Roles",
    label: `Name server: it answers machines that ask it for names, once root on it has run ${brand.executable} names --on --peers`,
  },
  exit_groups: {
    takes: listOf(v.union([v.literal("any"), GroupName]), maxGroups),
    flag: "exit-group",
    hint: "G",
    help: "Make it an exit for a group (any: all)",
    removal: "End the exit for a group",
    section: "Machine",
    label: "Exit for",
    more: "Groups that may reach the internet by it (any: all), once its root has run agent up --advertise-exit.",
  },
  public_ip: {
    takes: v.nullable(PublicAddress),
    flag: "public-ip",
    hint: "ADDRESS",
    none: "none",
    help: "Public address or DNS name; none removes it",
    section: "Machine",
    label: "Public address",
    more: "IP address or DNS name, by which the others reach it first. Empty: none.",
  },
  external_port: {
    takes: v.nullable(Port),
    flag: "external-port",
    hint: "N",
    range: { min: 1, max: 65_535 },
    help: "Public UDP port",
  },
  config_overrides: overridesSetting,
});
// A node becomes a name server by PATCH alone.
const { name: Name, is_name_server: _nameServer, ...settingsOfNew } = taken(nodeSettings);

export const NodeRequest = v.strictObject({
  name: Name,
  ...v.partial(v.strictObject(settingsOfNew)).entries,
});
export type NodeRequest = v.InferOutput<typeof NodeRequest>;
export const NodePatch = v.partial(v.strictObject(taken(nodeSettings)));
export type NodePatch = v.InferOutput<typeof NodePatch>;

const Transfer = v.strictObject({
  /** The e-mail address of a member; null: the organization. */
  owner: v.nullable(v.pipe(foreignText(maxEmailLength), v.transform(formerEmailKey), v.minLength(1))),
});
export type Transfer = v.InferOutput<typeof Transfer>;

/** A revoked node, and how many of the other nodes (`total`) have applied the revocation. */
const Revocation = v.object({
  node_id: v.number(),
  name: Text,
  at: Time,
  reason: Text,
  /** The actor, such as `person/3`. */
  by: Text,
  applied: v.number(),
  total: v.number(),
  /** Ids of nodes that have not applied it. */
  waiting_for: v.array(v.number()),
});
export type Revocation = v.InferOutput<typeof Revocation>;

/** A change of one file of a node. */
const FileChange = v.object({
  file: word(["config.yml", "other files"]),
  /** A unified diff; null if one of the two texts was too long to be kept. */
  diff: v.nullable(Text),
});
/** What the next configuration of a node changes. */
export const NextChanges = v.object({
  node_id: v.number(),
  name: Text,
  online: v.boolean(),
  last_checkin_at: v.nullable(Time),
  applied_config_version: v.nullable(v.number()),
  config_version: v.number(),
  /** Since when the node has been sent files that it has not applied. */
  not_applied_since: v.nullable(Time),
  /** Whether the control plane knows which files the node has. */
  is_known: v.boolean(),
  /** The next check-in also renews the certificates of the node. */
  is_renewal_due: v.boolean(),
  changes: v.array(FileChange),
});
export type NextChanges = v.InferOutput<typeof NextChanges>;

const NodeListQuery = v.strictObject({
  ...ListQuery.entries,
  revoked: Switch,
  owner: v.optional(v.literal("me")),
  exits: v.optional(v.literal("true")),
  ids: v.optional(idsOf({ most: 200, maxLength: 3200 })),
});

export const nodesApi = {
  list: endpoint({
    name: "nodes_list",
    method: "GET",
    path: "/api/org/{slug}/nodes/",
    access: "member",
    scope: "nodes",
    summary:
      "Nodes, ordered by id. With `revoked=true` only the revoked nodes, otherwise all others; with `owner=me` only those of the signed-in user; with `exits=true` only exits; with `ids=3,7` only these of them, at most 200",
    query: NodeListQuery,
    answers: { 200: { description: "One page", schema: v.array(Node) } },
  }),
  create: endpoint({
    name: "nodes_create",
    method: "POST",
    path: "/api/org/{slug}/nodes/",
    access: "admin",
    scope: "nodes",
    summary: "Create a node before its machine registers",
    grows: true,
    // What the machine gets that claims the node, such as groups and roles, needs a fresh factor.
    fresh: {
      groups: hasSome,
      subnets: hasSome,
      exit_groups: hasSome,
      is_lighthouse: isOn,
      is_relay: isOn,
      config_overrides: true,
      name: false,
      ip_address: false,
      public_ip: false,
      external_port: false,
    },
    body: NodeRequest,
    answers: { 201: { description: "The node, pending", schema: Node } },
    errors: ["name_taken", "conflict", "address_taken", "network_full"],
  }),
  online: endpoint({
    name: "nodes_online",
    method: "GET",
    path: "/api/org/{slug}/online/",
    access: "member",
    scope: "nodes",
    summary:
      "How many nodes were online and had their newest configuration, how many paths were direct, relayed and broken, and their round trips, as counted every five minutes in the last `days`. Times in which no server ran, or no node was active, are left out; what was not counted is null. Members get null for paths",
    query: v.strictObject({
      days: v.optional(v.pipe(v.picklist(["1", "2", "7", "30"]), v.transform(Number)), "1"),
    }),
    answers: {
      200: { description: `At most ${maxOnlinePoints} points, oldest first`, schema: OnlineHistory },
    },
  }),
  revocations: endpoint({
    name: "revocations_list",
    method: "GET",
    path: "/api/org/{slug}/revocations/",
    access: "member",
    scope: "nodes",
    summary:
      "Revoked nodes, and how many nodes have applied each revocation; `waiting_for` lists at most 100 that have not",
    query: ListQuery,
    answers: { 200: { description: "Revocations", schema: v.array(Revocation) } },
  }),
  retrieve: endpoint({
    name: "nodes_retrieve",
    method: "GET",
    path: "/api/org/{slug}/nodes/{id}/",
    access: "member",
    scope: "nodes",
    summary: "One node",
    answers: { 200: { description: "The node", schema: Node } },
  }),
  update: endpoint({
    name: "nodes_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/nodes/{id}/",
    access: "admin",
    scope: "nodes",
    summary: "Change a node. If its certificate changes, a new one is issued",
    grows: true,
    fresh: true,
    body: NodePatch,
    answers: { 200: { description: "The node", schema: Node } },
    errors: [
      ...reachErrors,
      "conflict",
      "name_taken",
      "address_taken",
      "network_full",
      "too_many_certificates",
    ],
  }),
  revoke: endpoint({
    name: "nodes_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/nodes/{id}/",
    access: "own",
    scope: "nodes",
    summary:
      "Revoke a node: an administrator any node, a member only their own. Its name and address are reserved until all other nodes have applied the revocation. The node is told the `reason`",
    fresh: true,
    // The reason is stored, and sent to the node.
    query: v.strictObject({ reason: v.optional(v.pipe(foreignText(500), v.trim(), v.minLength(1))) }),
    answers: {
      204: {
        description: "Revoked",
        headers: { [sessionsEndedHeader]: "How many sessions of command lines on its machine have ended" },
      },
    },
  }),
  transfer: endpoint({
    name: "nodes_transfer",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/transfer/",
    access: "admin",
    usersOnly: true,
    summary:
      "Give a node to a member, or to the organization (`owner` null). When a member leaves, their nodes are listed, and revoked if the organization is so set",
    fresh: true,
    body: Transfer,
    answers: { 200: { description: "The node", schema: Node } },
  }),
  config: endpoint({
    name: "nodes_config",
    method: "GET",
    path: "/api/org/{slug}/nodes/{id}/config/",
    access: "member",
    scope: "nodes",
    summary: "The node's current configuration",
    answers: {
      200: {
        description: "config.yml and its ETag",
        schema: v.object({ config_version: v.number(), etag: Text, config_yml: Text }),
        headers: filesHeaders,
      },
      304: notModified,
    },
    errors: ["node_revoked", "conflict", "payload_too_large"],
  }),
  diff: endpoint({
    name: "nodes_diff",
    method: "GET",
    path: "/api/org/{slug}/nodes/{id}/diff/",
    access: "member",
    scope: "nodes",
    summary:
      "What the node's next configuration changes, compared with the files that it was sent. `is_known` is false if the control plane does not know which files the node has. Blocked certificates are shown by their number, and overrides on the machine itself are not seen",
    answers: { 200: { description: "The changes; none for a node that is up to date", schema: NextChanges } },
    errors: ["node_revoked", "conflict"],
  }),
  restore: endpoint({
    name: "nodes_restore",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/restore/",
    access: "admin",
    scope: "nodes",
    summary: "Restore a revoked node",
    fresh: true,
    body: v.strictObject({}),
    answers: { 200: { description: "The node, with a new certificate", schema: Node } },
    errors: ["node_revoked", "conflict", "too_many_certificates"],
  }),
  renewCertificate: endpoint({
    name: "nodes_renew_cert",
    method: "POST",
    path: "/api/org/{slug}/nodes/{id}/renew_cert/",
    access: "admin",
    scope: "nodes",
    summary: "Renew the node's certificates",
    fresh: false,
    body: v.strictObject({}),
    answers: { 200: { description: "The new certificate", schema: RenewAnswer } },
    errors: ["node_revoked", "conflict", "too_many_certificates"],
  }),
};
