// Networks behind nodes, each with its routers: a view of the nodes' subnets.

import * as v from "valibot";
import { Cidr } from "../../engine/allowed-settings.ts";
import { maxMetric } from "../../protocol/routing/advertised.ts";
import { recordId, wholeWithin } from "../../protocol/values.ts";
import { endpoint } from "../endpoint.ts";
import { idsOf, ListQuery, policyErrors, Text } from "../values.ts";

const Metric = wholeWithin(0, maxMetric);
/** Of one network in one request. */
const maxRouters = 16;
const Routers = v.pipe(v.array(recordId), v.minLength(1), v.maxLength(maxRouters));

const Router = v.object({
  node: v.number(),
  node_name: Text,
  online: v.boolean(),
  /** False: root of its machine offers the network, and no administrator has approved it. */
  approved: v.boolean(),
  /** Whether root of its machine offers the network. Otherwise the machine has to be made ready by hand. */
  offered: v.boolean(),
  /** Nodes use the router with the lowest one. */
  metric: v.number(),
  /** Nodes use other routers of the network, as long as one of them works. */
  maintenance: v.boolean(),
  /** If the router translates addresses: the network as it is called behind it. */
  behind: v.nullable(Text),
  /** Packets leave the router with its own address. Null: not reported. */
  masquerade: v.nullable(v.boolean()),
  /** The address behind the router that must answer it, else the router counts as down. */
  watch: v.nullable(Text),
  /** As the node reported: `ready`, `down` if what is behind does not answer, `failed`, `not_approved`. */
  state: v.nullable(Text),
  why: v.nullable(Text),
});

export const Route = v.object({ network: Text, routers: v.array(Router) });
export type Route = v.InferOutput<typeof Route>;

const routesPath = "/api/org/{slug}/routes/";
const routeAnswers = { 200: { description: "The route", schema: Route } };

export const routesApi = {
  list: endpoint({
    name: "routes_list",
    method: "GET",
    path: routesPath,
    access: "member",
    scope: "nodes",
    summary:
      "Networks behind nodes with their routers, and those that nodes offer and no administrator has approved, ordered by network. Of 5,000 nodes at most: first those with approved networks",
    query: ListQuery,
    answers: { 200: { description: "Routes", schema: v.array(Route) } },
  }),
  create: endpoint({
    name: "routes_create",
    method: "POST",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary:
      "Make nodes routers of a network, in addition to those that it has. This also approves what they offer",
    grows: true,
    fresh: true,
    body: v.strictObject({ network: Cidr, via: Routers, metric: v.optional(Metric) }),
    answers: { 201: { description: "The route", schema: Route } },
    errors: ["conflict", "too_many_certificates", ...policyErrors],
  }),
  update: endpoint({
    name: "routes_partial_update",
    method: "PATCH",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary: "Change metric or maintenance of routers of a network; without `via`, of all of them",
    fresh: true,
    body: v.strictObject({
      network: Cidr,
      via: v.optional(Routers),
      metric: v.optional(Metric),
      maintenance: v.optional(v.boolean()),
    }),
    answers: routeAnswers,
  }),
  delete: endpoint({
    name: "routes_destroy",
    method: "DELETE",
    path: routesPath,
    access: "admin",
    scope: "nodes",
    summary: "Let nodes route a network no longer; without `via`, all that do",
    fresh: true,
    query: v.strictObject({
      network: Cidr,
      // 272 characters: room for 16 ids of 16 digits, each with a comma.
      via: v.optional(idsOf({ most: maxRouters, maxLength: 272 })),
    }),
    answers: { 204: { description: "Deleted" } },
    errors: policyErrors,
  }),
};
