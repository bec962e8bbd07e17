// Routes for policy as code: show, plan, test, apply, confirm, take back.

import { actorOf } from "../audit/record.ts";
import { inSlices, jsonInPieces } from "../http/heavy-work.ts";
import { body, nothing, organizationRoute, route, type OrganizationCall, type Route } from "../http/route.ts";
import {
  ApplyRequest,
  applyPolicy,
  confirmPolicy,
  patchPolicy,
  PolicyPatch,
  revertPolicy,
} from "../policy-files/apply.ts";
import { Applied, Plan, Policy, Reverted, TestResult, Version } from "../policy-files/answers.ts";
import { PlanRequest, planChanges, showPlan } from "../policy-files/plan.ts";
import { showPolicy, TestRequest, testPolicy } from "../policy-files/show.ts";
import { maxPolicyBytes } from "../policy/policy-file.ts";
import type { Services } from "../services.ts";
import { inTurnOf } from "../pipeline.ts";

/** JSON escapes the line ends and quotes of the text. */
const maxBody = 2 * maxPolicyBytes + 4096;

const planErrors = ["busy", "throttled", "conflict", "name_taken", "too_many_rules"] as const;

export function policyFileRoutes(services: Services): Route[] {
  return [...readingRoutes(services), ...writingRoutes(services)];
}

function planInTurn<T>(services: Services, call: OrganizationCall, work: () => Promise<T>): Promise<T> {
  return inTurnOf({ heavyWork: services.planning }, call, work);
}

/** Groups of a provider that the policy does not name yet. */
const mayName = ({ org }: OrganizationCall) => org.role !== "member";

function readingRoutes(services: Services): Route[] {
  const { db, system } = services;
  return [
    route({
      method: "GET",
      path: "/api/schema/policy/",
      access: "public",
      scope: "policy",
      name: "schema_policy_retrieve",
      summary: "The JSON Schema of policy files, for editors",
      takes: nothing,
      answers: { 200: { description: "JSON Schema 2020-12", type: "application/schema+json" } },
      async handle() {
        // Loaded on demand, as the OpenAPI document is.
        const { policySchema } = await import("../docs/policy-schema.ts");
        const headers = { "Content-Type": "application/schema+json" };
        return { raw: JSON.stringify(policySchema()), headers };
      },
    }),
    organizationRoute({
      method: "GET",
      path: "policy/",
      access: "member",
      scope: "policy",
      name: "policy_retrieve",
      summary: "The policy as a file: as it was applied, or the state if that differs",
      takes: nothing,
      answers: { 200: { description: "The policy", schema: Policy } },
      errors: ["busy", "throttled"],
      handle: async (call) => ({
        body: await planInTurn(services, call, () => showPolicy(db, call.org.id, system.now())),
      }),
    }),
    organizationRoute({
      method: "POST",
      path: "policy/plan/",
      access: "member",
      scope: "policy",
      reads: true,
      name: "policy_plan",
      summary: "What a policy file would change, and who would gain or lose access. Changes nothing",
      maxBody,
      takes: body(PlanRequest),
      answers: { 200: { description: "The plan", schema: Plan } },
      errors: planErrors,
      handle: async (call, input) => ({
        raw: await planInTurn(services, call, async () =>
          inSlices(
            jsonInPieces(
              await showPlan(db, call.org.id, await planChanges(db, call.org.id, input, mayName(call))),
            ),
          ),
        ),
      }),
    }),
    organizationRoute({
      method: "POST",
      path: "policy/test/",
      access: "member",
      scope: "policy",
      reads: true,
      name: "policy_test",
      summary: "Run the tests of the policy, or those of a file on the state that it would make",
      maxBody,
      takes: body(TestRequest),
      answers: { 200: { description: "The result", schema: TestResult } },
      errors: planErrors,
      handle: async (call, input) => ({
        body: await planInTurn(services, call, () => testPolicy(db, call.org.id, input, mayName(call))),
      }),
    }),
  ];
}

function writingRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "PATCH",
      path: "policy/",
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "policy_partial_update",
      summary: "Whether the policy is changed by its file only",
      takes: body(PolicyPatch),
      answers: { 204: { description: "Changed" } },
      async handle(call, input) {
        await patchPolicy(services, call.org, input, actorOf(call));
        return { status: 204 };
      },
    }),
    organizationRoute({
      method: "POST",
      path: "policy/apply/",
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "policy_apply",
      summary: "Apply a policy file. Refused if one of its tests fails",
      maxBody,
      // Asked by applyPolicy, which knows what the file changes.
      grows: () => false,
      takes: body(ApplyRequest),
      answers: { 200: { description: "What was changed", schema: Applied } },
      errors: [
        "policy_test_failed",
        "policy_changed",
        "policy_unconfirmed",
        "policy_by_file",
        "too_many_rules",
        "too_many_certificates",
        "name_taken",
        "conflict",
        "busy",
      ],
      async handle(call, input) {
        const requireRoom = (grows: () => boolean) => call.requireRoom(input, grows);
        const apply = () => applyPolicy(services, call.org, input, actorOf(call), { requireRoom });
        return { raw: await planInTurn(services, call, async () => inSlices(jsonInPieces(await apply()))) };
      },
    }),
    organizationRoute({
      method: "POST",
      path: "policy/confirm/",
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "policy_confirm",
      summary: "Confirm the policy that was applied with `confirm`, so that it stays",
      takes: nothing,
      answers: { 200: { description: "The version", schema: Version } },
      errors: ["conflict"],
      handle: async (call) => ({ body: await confirmPolicy(services, call.org, actorOf(call)) }),
    }),
    organizationRoute({
      method: "POST",
      path: "policy/revert/",
      access: "admin",
      fresh: true,
      scope: "policy",
      name: "policy_revert",
      summary: "Take back the policy that waits for its confirmation",
      takes: nothing,
      answers: { 200: { description: "The version, and what could not be taken back", schema: Reverted } },
      errors: ["conflict"],
      handle: async (call) => ({ body: await revertPolicy(services, call.org, actorOf(call)) }),
    }),
  ];
}
