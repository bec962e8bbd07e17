// Groups of nodes.

import { GroupName } from "../protocol/values.ts";
import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { ListQuery, policyErrors, Text } from "./values.ts";

const Description = v.pipe(foreignText(500), v.trim());
const GroupRequest = v.strictObject({ name: GroupName, description: v.optional(Description, "") });
export type GroupRequest = v.InferOutput<typeof GroupRequest>;
const GroupPatch = v.strictObject({ description: v.optional(Description) });

export const Group = v.object({ id: v.number(), name: Text, description: Text });
export type Group = v.InferOutput<typeof Group>;

export const groupsApi = {
  list: endpoint({
    name: "groups_list",
    method: "GET",
    path: "/api/org/{slug}/groups/",
    access: "member",
    scope: "policy",
    summary: "Groups of nodes",
    query: ListQuery,
    answers: { 200: { description: "Groups", schema: v.array(Group) } },
  }),
  create: endpoint({
    name: "groups_create",
    method: "POST",
    path: "/api/org/{slug}/groups/",
    access: "admin",
    scope: "policy",
    summary: "Create a group",
    grows: true,
    fresh: false,
    body: GroupRequest,
    answers: { 201: { description: "The group", schema: Group } },
    errors: ["name_taken", ...policyErrors],
  }),
  retrieve: endpoint({
    name: "groups_retrieve",
    method: "GET",
    path: "/api/org/{slug}/groups/{name}/",
    access: "member",
    scope: "policy",
    summary: "One group",
    answers: { 200: { description: "The group", schema: Group } },
  }),
  update: endpoint({
    name: "groups_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/groups/{name}/",
    access: "admin",
    scope: "policy",
    summary: "Change a group's description",
    grows: true,
    fresh: false,
    body: GroupPatch,
    answers: { 200: { description: "The group", schema: Group } },
    errors: policyErrors,
  }),
  delete: endpoint({
    name: "groups_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/groups/{name}/",
    access: "admin",
    scope: "policy",
    summary: "Delete a group that no node, firewall rule or registration token uses",
    fresh: true,
    answers: { 204: { description: "Deleted" } },
    errors: ["conflict", ...policyErrors],
  }),
};
