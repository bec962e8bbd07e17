// Routes for nodes: list, create, change, revoke. node-calls.ts has those that nodes call themselves.

import type { ErrorCode } from "../../errors.ts";
import * as v from "valibot";
import { reachErrors } from "../policy/edits.ts";
import { RenewAnswer } from "../../protocol/checkin.ts";
import { Node } from "../../protocol/node.ts";
import { sessionsEndedHeader } from "../../protocol/sign-in.ts";
import { actorOf } from "../audit/record.ts";
import { ListQuery, listReply } from "../http/lists.ts";
import { OnlineHistory, onlineHistory, OnlineQuery } from "../metrics/online-history.ts";
import { findNode } from "../store/nodes.ts";
import type { Services } from "../services.ts";
import { NodePatch, NodeRequest, createNode, listNodes, patchNode, renewNode } from "../nodes/nodes.ts";
import { showOne } from "../nodes/shown.ts";
import { NextChanges, nextChanges } from "../nodes/next-changes.ts";
import { mustOwn, requireMe } from "../nodes/node-owner.ts";
import { Transfer, transferNode } from "../nodes/transfer.ts";
import { adds } from "../retention/budget.ts";
import { listRevocations, restoreNode, revokeNode } from "../nodes/revoke.ts";
import {
  always,
  body,
  hasSome,
  id,
  isOn,
  nothing,
  organizationRoute,
  query,
  type Route,
} from "../http/route.ts";
import { inTurnOf, testingOf } from "./heavy.ts";
import { nodeCallRoutes } from "./node-calls.ts";
import { currentFiles, filesHeaders, hasAlready, headersOf, jsonReply, notModified } from "./node-files.ts";
import { foreignText } from "../../text.ts";

const ConfigAnswer = v.object({ config_version: v.number(), etag: v.string(), config_yml: v.string() });
const Revocation = v.object({
  node_id: v.number(),
  name: v.string(),
  at: v.string(),
  reason: v.string(),
  by: v.string(),
  applied: v.number(),
  total: v.number(),
  waiting_for: v.array(v.number()),
});
const NodeListQuery = v.strictObject({
  ...ListQuery.entries,
  revoked: v.optional(v.picklist(["true", "false"]), "false"),
  owner: v.optional(v.literal("me")),
  ids: v.optional(
    v.pipe(
      foreignText(3200),
      v.regex(/^[1-9]\d{0,14}(,[1-9]\d{0,14}){0,199}$/, "At most 200 ids, separated by commas."),
      v.transform((text) => text.split(",").map(Number)),
    ),
  ),
});
/** The reason is stored, and sent to the node. */
const NodeDeletion = v.strictObject({
  reason: v.optional(v.pipe(foreignText(500), v.trim(), v.minLength(1))),
});

export function nodeRoutes(services: Services): Route[] {
  return [
    ...collectionRoutes(services),
    ...itemRoutes(services),
    ...endRoutes(services),
    configRoute(services),
    diffRoute(services),
    ...certificateRoutes(services),
    ...nodeCallRoutes(services),
  ];
}

function collectionRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "nodes/",
      access: "member",
      scope: "nodes",
      name: "nodes_list",
      summary:
        "Nodes, ordered by id. With `revoked=true` only the revoked nodes, otherwise all others; with `owner=me` only those of the signed-in user; with `ids=3,7` only these of them, at most 200",
      takes: query(NodeListQuery),
      answers: { 200: { description: "One page", schema: v.array(Node) } },
      async handle(call, { revoked, owner, ids, ...input }) {
        const ownerId = owner === undefined ? undefined : requireMe(call);
        const page = await listNodes(services, call.org, input, {
          revoked: revoked === "true",
          ownerId,
          ids,
        });
        return listReply(call, services.publicUrl, page);
      },
    }),
    organizationRoute({
      method: "POST",
      path: "nodes/",
      access: "admin",
      scope: "nodes",
      name: "nodes_create",
      // Its machine claims it with what it carries.
      fresh: {
        groups: hasSome,
        subnets: hasSome,
        is_lighthouse: isOn,
        is_relay: isOn,
        config_overrides: true,
        name: false,
        ip_address: false,
        public_ip: false,
        external_port: false,
      },
      summary: "Create a node before its machine registers",
      grows: always,
      takes: body(NodeRequest),
      answers: { 201: { description: "The node, pending", schema: Node } },
      errors: ["name_taken", "conflict", "address_taken", "network_full"],
      handle: async (call, input) => ({
        status: 201,
        body: await createNode(services, call.org, input, actorOf(call)),
      }),
    }),
    organizationRoute({
      method: "GET",
      path: "online/",
      access: "member",
      scope: "nodes",
      name: "nodes_online",
      summary:
        "How many nodes were online, as counted every five minutes in the last `days`. Times in which no server ran, or no node was active, are left out",
      takes: query(OnlineQuery),
      answers: { 200: { description: "At most 300 points, oldest first", schema: OnlineHistory } },
      handle: async ({ org }, { days }) => ({
        body: await onlineHistory(services.db, org.id, days, services.system.now()),
      }),
    }),
    organizationRoute({
      method: "GET",
      path: "revocations/",
      access: "member",
      scope: "nodes",
      name: "revocations_list",
      summary:
        "Revoked nodes, and how many nodes have applied each revocation; `waiting_for` lists at most 100 that have not",
      takes: query(ListQuery),
      answers: { 200: { description: "Revocations", schema: v.array(Revocation) } },
      handle: async (call, input) =>
        listReply(call, services.publicUrl, await listRevocations(services, call.org.id, input)),
    }),
  ];
}

const changeErrors: readonly ErrorCode[] = [
  ...reachErrors,
  "not_found",
  "conflict",
  "name_taken",
  "address_taken",
  "network_full",
  "too_many_certificates",
];

function itemRoutes(services: Services): Route[] {
  const path = `nodes/${id}/`;
  return [
    organizationRoute({
      method: "GET",
      path,
      access: "member",
      scope: "nodes",
      name: "nodes_retrieve",
      summary: "One node",
      takes: nothing,
      answers: { 200: { description: "The node", schema: Node } },
      errors: ["not_found"],
      handle: async (call) => ({
        body: await showOne(services, call.org, await findNode(services.db, call.org.id, call.id())),
      }),
    }),
    organizationRoute({
      method: "PATCH",
      path,
      access: "admin",
      scope: "nodes",
      name: "nodes_partial_update",
      fresh: true,
      summary: "Change a node. If its certificate changes, a new one is issued",
      grows: async ({ name, config_overrides: configOverrides }, call) =>
        adds(await findNode(services.db, call.org.id, call.id()), { name, configOverrides }),
      takes: body(NodePatch),
      answers: { 200: { description: "The node", schema: Node } },
      errors: changeErrors,
      handle: async (call, input) => ({
        body: await patchNode(
          { ...services, testing: testingOf(services, call) },
          call.org,
          call.id(),
          input,
          actorOf(call),
        ),
      }),
    }),
  ];
}

/** How a node leaves its user, or the organization. */
function endRoutes(services: Services): Route[] {
  const path = `nodes/${id}/`;
  return [
    organizationRoute({
      method: "DELETE",
      path,
      access: "own",
      scope: "nodes",
      name: "nodes_destroy",
      fresh: true,
      summary:
        "Revoke a node: an administrator any node, a member only their own. Its name and address are reserved until all other nodes have applied the revocation. The node is told the `reason`",
      takes: query(NodeDeletion),
      answers: {
        204: {
          description: "Revoked",
          headers: { [sessionsEndedHeader]: "How many sessions of command lines on its machine have ended" },
        },
      },
      errors: ["not_found"],
      async handle(call, { reason }) {
        const ownerId = mustOwn(call);
        const why = reason ?? (ownerId === undefined ? undefined : "removed by its owner");
        const { sessionsEnded } = await revokeNode(
          services,
          call.org,
          call.id(),
          actorOf(call),
          why,
          ownerId,
        );
        return { status: 204, headers: { [sessionsEndedHeader]: String(sessionsEnded) } };
      },
    }),
    organizationRoute({
      people: true,
      method: "POST",
      path: `${path}transfer/`,
      access: "admin",
      name: "nodes_transfer",
      fresh: true,
      summary:
        "Give a node to a member, or to the organization (`owner` null). When a member leaves, their nodes are listed, and revoked if the organization is so set",
      takes: body(Transfer),
      answers: { 200: { description: "The node", schema: Node } },
      errors: ["not_found"],
      handle: async (call, input) => ({
        body: await transferNode(services, call.org, call.id(), input, actorOf(call)),
      }),
    }),
  ];
}

function configRoute(services: Services): Route {
  return organizationRoute({
    method: "GET",
    path: `nodes/${id}/config/`,
    access: "member",
    scope: "nodes",
    name: "nodes_config",
    summary: "The node's current configuration",
    takes: nothing,
    answers: {
      200: { description: "config.yml and its ETag", schema: ConfigAnswer, headers: filesHeaders },
      304: notModified,
    },
    errors: ["not_found", "node_revoked", "conflict", "payload_too_large", "throttled"],
    async handle(call) {
      const { files } = await currentFiles(services, call);
      const headers = headersOf(files);
      if (hasAlready(call, files)) return { status: 304, headers };
      return inTurnOf(services, call, async () => {
        const { config_version, etag, files: texts } = await files.answer();
        return jsonReply(
          { config_version, etag: etag ?? files.etag, config_yml: texts["config.yml"] },
          headers,
        );
      });
    },
  });
}

function diffRoute(services: Services): Route {
  return organizationRoute({
    method: "GET",
    path: `nodes/${id}/diff/`,
    access: "member",
    scope: "nodes",
    name: "nodes_diff",
    summary:
      "What the node's next configuration changes, compared with the files that it was sent. `is_known` is false if the control plane does not know which files the node has. Blocked certificates are shown by their number, and overrides on the machine itself are not seen",
    takes: nothing,
    answers: { 200: { description: "The changes; none for a node that is up to date", schema: NextChanges } },
    errors: ["not_found", "node_revoked", "conflict", "throttled"],
    handle: async (call) => ({
      body: await nextChanges(services, call.org, call.id(), (work) => inTurnOf(services, call, work)),
    }),
  });
}

/** Each of these changes gives the node new certificates. */
function certificateRoutes(services: Services): Route[] {
  const path = `nodes/${id}/`;
  return [
    organizationRoute({
      method: "POST",
      path: `${path}restore/`,
      access: "admin",
      scope: "nodes",
      name: "nodes_restore",
      fresh: true,
      summary: "Restore a revoked node",
      takes: body(v.strictObject({})),
      answers: { 200: { description: "The node, with a new certificate", schema: Node } },
      errors: ["not_found", "node_revoked", "conflict", "too_many_certificates"],
      handle: async (call) => ({
        body: await showOne(
          services,
          call.org,
          await restoreNode(services, call.org, call.id(), actorOf(call)),
        ),
      }),
    }),
    organizationRoute({
      method: "POST",
      path: `${path}renew_cert/`,
      access: "admin",
      scope: "nodes",
      name: "nodes_renew_cert",
      fresh: false,
      summary: "Renew the node's certificates",
      takes: body(v.strictObject({})),
      answers: { 200: { description: "The new certificate", schema: RenewAnswer } },
      errors: ["not_found", "node_revoked", "conflict", "too_many_certificates"],
      async handle(call) {
        const node = await showOne(
          services,
          call.org,
          await renewNode(services, call.org, call.id(), actorOf(call)),
        );
        return { body: { certificate: node.certificate, config_version: node.config_version } };
      },
    }),
  ];
}
