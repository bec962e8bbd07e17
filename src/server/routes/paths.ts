// Routes for the paths that nodes report. Members see those of their own nodes. Underlay addresses say where people are, so
// these are for administrators alone.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { listReply } from "../http/lists.ts";
import { ListQuery } from "../../api/values.ts";
import {
  body,
  id,
  nothing,
  organizationRoute,
  query,
  type OrganizationCall,
  type Route,
} from "../http/route.ts";
import { countPathsByNode, listPaths, Path, PathCounts, PathQuery, type Shown } from "../paths/list.ts";
import { limitRelay, listRelays, Relay, RelayPatch } from "../paths/relayed.ts";
import type { Services } from "../services.ts";
import { findNode, isOnline, type NodeRecord } from "../store/nodes.ts";

export function pathRoutes({ db, system, publicUrl, changes, reports }: Services): Route[] {
  const shown = (call: OrganizationCall) => ({
    ownerId: ownerOf(call),
    isOnline: (node: NodeRecord) => isOnline(reports.onto(node), system.now(), changes),
  });
  const answers = { 200: { description: "Paths", schema: v.array(Path) } };
  return [
    organizationRoute({
      method: "GET",
      path: "paths/",
      access: "member",
      scope: "nodes",
      name: "paths_list",
      summary:
        "How nodes reach their peers, as they reported last. `search` looks in the names of the reporting nodes. Members see those of their own nodes, without `remote`",
      takes: query(PathQuery),
      answers,
      async handle(call, input) {
        return listReply(call, publicUrl, await listPaths(db, call.org.id, input, shown(call)));
      },
    }),
    countsRoute({ db, publicUrl }, shown),
    organizationRoute({
      method: "GET",
      path: `nodes/${id}/peers/`,
      access: "member",
      scope: "nodes",
      name: "nodes_peers",
      summary:
        "How a node reaches its peers, as it reported last. Members see those of their own nodes, without `remote`",
      takes: query(PathQuery),
      answers,
      errors: ["not_found"],
      async handle(call, input) {
        const node = await findNode(db, call.org.id, call.id());
        return listReply(
          call,
          publicUrl,
          await listPaths(db, call.org.id, input, { ...shown(call), nodeId: node.id }),
        );
      },
    }),
    organizationRoute({
      method: "GET",
      path: "relays/",
      access: "member",
      scope: "nodes",
      name: "relays_list",
      summary: "The relays, what they forwarded for other nodes this month (UTC), and their monthly limits",
      takes: nothing,
      answers: { 200: { description: "Relays", schema: v.array(Relay) } },
      async handle({ org }) {
        return { body: await listRelays(db, org.id, system.now()) };
      },
    }),
    organizationRoute({
      method: "PATCH",
      path: `relays/${id}/`,
      access: "admin",
      scope: "nodes",
      name: "relays_partial_update",
      fresh: true,
      summary:
        "Set or remove the monthly limit of a relay, by the id of its node. A relay that reaches it is not used until the next month",
      takes: body(RelayPatch),
      answers: { 200: { description: "The relay", schema: Relay } },
      errors: ["not_found", "conflict"],
      async handle(call, { limit_bytes: limit }) {
        const relay = await limitRelay({ db, system }, call.org.id, call.id(), limit, actorOf(call));
        return { body: relay };
      },
    }),
  ];
}

function countsRoute(
  { db, publicUrl }: Pick<Services, "db" | "publicUrl">,
  shown: (call: OrganizationCall) => Shown,
): Route {
  return organizationRoute({
    method: "GET",
    path: "paths/counts/",
    access: "member",
    scope: "nodes",
    name: "paths_counts",
    summary:
      "How many paths each node has: direct, relayed, and broken, whose peer does not answer. Members see those of their own nodes",
    takes: query(v.omit(ListQuery, ["search"])),
    answers: { 200: { description: "Counts", schema: v.array(PathCounts) } },
    async handle(call, input) {
      const asked = { ...input, search: "" };
      return listReply(call, publicUrl, await countPathsByNode(db, call.org.id, asked, shown(call)));
    },
  });
}

/** The user whose nodes alone the caller sees; undefined for administrators. Visitors and programs own none. */
export function ownerOf({ caller, org }: OrganizationCall): number | undefined {
  if (org.role !== "member") return undefined;
  return caller.kind === "person" && !org.visiting ? caller.userId : 0;
}
