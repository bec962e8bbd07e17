// Aliases of nodes. Nodes themselves get names with their check-ins.

import * as v from "valibot";
import { NodeName, recordId } from "../protocol/values.ts";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { ListQuery, policyErrors, Text, Time } from "./values.ts";

/** A host label of RFC 1035: it begins with a letter. */
const AliasName = v.pipe(
  NodeName,
  v.regex(/^[a-z]/, "An alias begins with a letter: a to z, then letters, digits and -."),
);

const AliasRequest = v.strictObject({
  name: AliasName,
  node: recordId,
  /** Of a machine behind the node; null or absent: the alias is another name of the node itself. */
  address: v.optional(v.nullable(v.pipe(foreignText(45), v.minLength(2)))),
});
export type AliasRequest = v.InferOutput<typeof AliasRequest>;

/** Of one organization, whether created here or by a policy file. One answer to a node can hold the changes of all. */
export const maxAliases = 1000;

export const Alias = v.object({
  id: v.number(),
  name: Text,
  node: v.number(),
  node_name: Text,
  address: v.nullable(Text),
  /** Whether a node has this name now. */
  is_shadowed: v.boolean(),
  created_at: Time,
});
export type Alias = v.InferOutput<typeof Alias>;

export const namesApi = {
  list: endpoint({
    name: "names_list",
    method: "GET",
    path: "/api/org/{slug}/names/",
    access: "member",
    scope: "nodes",
    summary: "Aliases: further names of nodes, and names of addresses behind routers",
    query: ListQuery,
    answers: { 200: { description: "Aliases", schema: v.array(Alias) } },
  }),
  create: endpoint({
    name: "names_create",
    method: "POST",
    path: "/api/org/{slug}/names/",
    access: "admin",
    scope: "nodes",
    summary: "Create an alias of a node, or with `address` the name of an address in its subnets",
    grows: true,
    fresh: true,
    body: AliasRequest,
    answers: { 201: { description: "The alias", schema: Alias } },
    errors: ["name_taken", "conflict", ...policyErrors],
  }),
  delete: endpoint({
    name: "names_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/names/{id}/",
    access: "admin",
    scope: "nodes",
    summary: "Delete an alias",
    fresh: true,
    answers: { 204: { description: "Deleted" } },
    errors: policyErrors,
  }),
};
