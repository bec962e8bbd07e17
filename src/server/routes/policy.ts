// Routes for firewall rules, and for testing what they permit.

import * as v from "valibot";
import { actorOf } from "../audit/record.ts";
import { AskedPatch, AskedRule, RuleTest, type Explained } from "../policy/firewall.ts";
import { reachErrors } from "../../api/values.ts";
import { ListQuery } from "../../api/values.ts";
import { created, noContent } from "../http/reply.ts";
import {
  always,
  body,
  id,
  nothing,
  organizationRoute,
  query,
  type OrganizationCall,
  type Route,
} from "../http/route.ts";
import { createRule, deleteRule, findRule, patchRule, testRules } from "../policy/rules.ts";
import { FirewallRule, ruleColumns, ruleOf } from "../policy/stored-rules.ts";
import { NamedProviderGroup, namedProviderGroups } from "../policy/group-users.ts";
import { adds } from "../retention/budget.ts";
import type { Services } from "../services.ts";
import { inTurnOf, testingOf } from "../pipeline.ts";
import { listRows, type Listed } from "../store/list-rows.ts";

const VerdictAnswer = v.object({
  allowed: v.boolean(),
  /** The inbound rule that permits it. Both rules are needed. */
  rule_id: v.nullable(v.number()),
  outbound_rule_id: v.nullable(v.number()),
  reason: v.string(),
  /** All that the rules permit between the two, whatever was asked: `icmp`, `tcp/5432`, `any`. */
  permitted: v.array(v.string()),
});

export function policyRoutes(services: Services): Route[] {
  return [...collectionRoutes(services), ...itemRoutes(services), providerGroupsRoute(services)];
}

function providerGroupsRoute({ db }: Services): Route {
  return organizationRoute({
    method: "GET",
    path: "provider_groups/",
    access: "member",
    scope: "policy",
    name: "provider_groups_list",
    summary: "Groups of providers of identities that the policy names, with their words in policy files",
    takes: nothing,
    answers: { 200: { description: "At most 64 groups", schema: v.array(NamedProviderGroup) } },
    handle: async (call) => ({ body: await namedProviderGroups(db, call.org.id) }),
  });
}

function collectionRoutes(services: Services): Route[] {
  const listed: Listed = {
    table: "firewall_rules",
    columns: ruleColumns,
    where: "AND lower(description) LIKE $2 ESCAPE '!'",
    bytes: "octet_length(description)",
    toItem: ruleOf,
  };
  return [
    organizationRoute({
      method: "GET",
      path: "firewall_rules/",
      access: "member",
      scope: "policy",
      name: "firewall_rules_list",
      summary: "Firewall rules. Traffic that no rule permits is refused",
      takes: query(ListQuery),
      answers: { 200: { description: "Rules", schema: v.array(FirewallRule) } },
      handle: (call, input) => listRows(services, call, listed, input),
    }),
    organizationRoute({
      method: "POST",
      path: "firewall_rules/",
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "firewall_rules_create",
      summary: "Create a firewall rule. Every node applies it at once",
      grows: always,
      takes: body(AskedRule),
      answers: { 201: { description: "The rule", schema: FirewallRule } },
      errors: ["too_many_rules", ...reachErrors],
      handle: async (call, input) =>
        created(await createRule(tested(services, call), call.org, input, actorOf(call))),
    }),
    organizationRoute({
      method: "POST",
      path: "firewall_rules/test/",
      access: "member",
      scope: "policy",
      reads: true,
      name: "firewall_rules_test",
      summary: "Whether one node may reach another, and which rule decides",
      takes: body(RuleTest),
      answers: { 200: { description: "The result", schema: VerdictAnswer } },
      errors: ["throttled"],
      handle: async (call, input) => ({ body: await testInTurn(services, call, input) }),
    }),
  ];
}

const tested = (services: Services, call: OrganizationCall) => ({
  ...services,
  testing: testingOf(services, call),
});

function testInTurn(services: Services, call: OrganizationCall, input: RuleTest): Promise<Explained> {
  const { db, views } = services;
  const rules = async () => (await views.of(db, call.org.id)).testable();
  return inTurnOf(services, call, () => testRules(services, call.org, rules, input));
}

function itemRoutes(services: Services): Route[] {
  const path = `firewall_rules/${id}/`;
  return [
    organizationRoute({
      method: "GET",
      path,
      access: "member",
      scope: "policy",
      name: "firewall_rules_retrieve",
      summary: "One firewall rule",
      takes: nothing,
      answers: { 200: { description: "The rule", schema: FirewallRule } },
      errors: ["not_found"],
      handle: async (call) => ({ body: await findRule(services.db, call.org, call.id()) }),
    }),
    organizationRoute({
      method: "PATCH",
      path,
      access: "admin",
      fresh: {
        description: false,
        direction: true,
        protocol: true,
        ports: true,
        peer: true,
        target: true,
      },
      scope: "policy",
      name: "firewall_rules_partial_update",
      summary: "Change a firewall rule",
      grows: async ({ description }, call) =>
        adds(await findRule(services.db, call.org, call.id()), { description }),
      takes: body(AskedPatch),
      answers: { 200: { description: "The rule", schema: FirewallRule } },
      errors: ["not_found", ...reachErrors],
      handle: async (call, input) => ({
        body: await patchRule(tested(services, call), call.org, call.id(), input, actorOf(call)),
      }),
    }),
    organizationRoute({
      method: "DELETE",
      path,
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "firewall_rules_destroy",
      summary: "Delete a firewall rule. Established connections that only it permitted are cut",
      takes: nothing,
      answers: { 204: { description: "Deleted" } },
      errors: ["not_found", ...reachErrors],
      async handle(call) {
        await deleteRule(tested(services, call), call.org, call.id(), actorOf(call));
        return noContent;
      },
    }),
  ];
}
