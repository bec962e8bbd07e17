// Routes for the paths that nodes report. Members see those of their own nodes. Underlay addresses say where people are, so
// these are for administrators alone.

import * as v from "valibot";
import { listReply } from "../http/lists.ts";
import { id, organizationRoute, query, type OrganizationCall, type Route } from "../http/route.ts";
import { listPaths, Path, PathQuery } from "../paths/list.ts";
import type { Services } from "../services.ts";
import { findNode } from "../store/nodes.ts";

export function pathRoutes({ db, publicUrl }: Services): Route[] {
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
        const ownerId = ownerOf(call);
        return listReply(call, publicUrl, await listPaths(db, call.org.id, input, { ownerId }));
      },
    }),
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
        const ownerId = ownerOf(call);
        const node = await findNode(db, call.org.id, call.id());
        return listReply(
          call,
          publicUrl,
          await listPaths(db, call.org.id, input, { nodeId: node.id, ownerId }),
        );
      },
    }),
  ];
}

/** The user whose nodes alone the caller sees; undefined for administrators. Visitors and programs own none. */
function ownerOf({ caller, org }: OrganizationCall): number | undefined {
  if (org.role !== "member") return undefined;
  return caller.kind === "person" && !org.visiting ? caller.userId : 0;
}
