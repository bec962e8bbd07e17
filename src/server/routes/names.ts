// Routes for aliases of nodes. Nodes themselves get names with their check-ins.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { ListQuery } from "../../api/values.ts";
import { created, noContent } from "../http/reply.ts";
import { always, body, id, nothing, organizationRoute, query, type Route } from "../http/route.ts";
import { policyErrors } from "../../api/values.ts";
import { Alias, aliasList, AliasRequest, createAlias, deleteAlias } from "../names/aliases.ts";
import type { Services } from "../services.ts";
import { listRows } from "../store/list-rows.ts";

export function nameRoutes(services: Services): Route[] {
  const listed = { ...aliasList, where: "AND (name LIKE $2 ESCAPE '!' OR node_name LIKE $2 ESCAPE '!')" };
  return [
    organizationRoute({
      method: "GET",
      path: "names/",
      access: "member",
      scope: "nodes",
      name: "names_list",
      summary: "Aliases: further names of nodes, and names of addresses behind routers",
      takes: query(ListQuery),
      answers: { 200: { description: "Aliases", schema: v.array(Alias) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    organizationRoute({
      method: "POST",
      path: "names/",
      access: "admin",
      scope: "nodes",
      name: "names_create",
      fresh: true,
      summary: "Create an alias of a node, or with `address` the name of an address in its subnets",
      grows: always,
      takes: body(AliasRequest),
      answers: { 201: { description: "The alias", schema: Alias } },
      errors: ["name_taken", "conflict", ...policyErrors],
      handle: async (call, input) => created(await createAlias(services, call.org, input, actorOf(call))),
    }),
    organizationRoute({
      method: "DELETE",
      path: `names/${id}/`,
      access: "admin",
      scope: "nodes",
      name: "names_destroy",
      fresh: true,
      summary: "Delete an alias",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["not_found", ...policyErrors],
      async handle(call) {
        await deleteAlias(services, call.org, call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}
