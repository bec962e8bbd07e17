// Routes for the paths that nodes report. Underlay addresses say where people are, so all of it is for administrators.

import * as v from "valibot";
import { listReply } from "../http/lists.ts";
import { id, organizationRoute, query, type Route } from "../http/route.ts";
import { listPaths, Path, PathQuery } from "../paths/list.ts";
import type { Services } from "../services.ts";
import { findNode } from "../store/nodes.ts";

export function pathRoutes({ db, publicUrl }: Services): Route[] {
  const answers = { 200: { description: "Paths", schema: v.array(Path) } };
  return [
    organizationRoute({
      method: "GET",
      path: "paths/",
      access: "admin",
      scope: "nodes",
      name: "paths_list",
      summary:
        "How nodes reach their peers, as they reported last. `search` looks in the names of the reporting nodes",
      takes: query(PathQuery),
      answers,
      handle: async (call, input) => listReply(call, publicUrl, await listPaths(db, call.org.id, input)),
    }),
    organizationRoute({
      method: "GET",
      path: `nodes/${id}/peers/`,
      access: "admin",
      scope: "nodes",
      name: "nodes_peers",
      summary: "How a node reaches its peers, as it reported last",
      takes: query(PathQuery),
      answers,
      errors: ["not_found"],
      async handle(call, input) {
        const { id: nodeId } = await findNode(db, call.org.id, call.id());
        return listReply(call, publicUrl, await listPaths(db, call.org.id, input, nodeId));
      },
    }),
  ];
}
