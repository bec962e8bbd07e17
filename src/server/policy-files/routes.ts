// Handlers of src/api/policy.ts and history/past.ts.

import type { pastApi } from "../../api/history/past.ts";
import type { policyApi } from "../../api/policy.ts";
import { actorOf } from "../audit/record.ts";
import { reportPast } from "../flows/report-past.ts";
import { withFlows } from "../flows/with-flows.ts";
import type { Handlers } from "../http/attach.ts";
import { inSlices, jsonInPieces } from "../http/heavy-work.ts";
import { noContent } from "../http/reply.ts";
import type { OrganizationCall } from "../http/route.ts";
import { inTurnOf } from "../pipeline.ts";
import type { Services } from "../services.ts";
import { applyPolicy, patchPolicy } from "./apply.ts";
import { confirmPolicy, revertPolicy } from "./confirm.ts";
import { planChanges } from "./plan.ts";
import { showPlan } from "./show-plan.ts";
import { showPolicy, testPolicy } from "./show.ts";

/** `mayName`: see `Rights` in plan.ts. Only administrators may name groups of providers that the policy has not. */
const rightsOf = ({ org }: OrganizationCall) => ({ mayName: org.role !== "member" });

export const policyHandlers = (services: Services): Handlers<typeof policyApi> => {
  const { db, planning, system } = services;
  /** Plans have a queue of their own. */
  const inTurn = <T>(call: OrganizationCall, work: () => Promise<T>) =>
    inTurnOf({ heavyWork: planning }, call, work);
  return {
    async schema() {
      // Loaded on demand, as the OpenAPI document is.
      const { policySchema } = await import("../docs/policy-schema.ts");
      const headers = { "Content-Type": "application/schema+json" };
      return { raw: JSON.stringify(policySchema()), headers };
    },
    retrieve: async (call) => ({
      body: await inTurn(call, () => showPolicy(db, call.org.id, system.now())),
    }),
    plan: async (call, input) => ({
      raw: await inTurn(call, async () => {
        const planned = await planChanges(db, call.org.id, input, rightsOf(call), system.now());
        return inSlices(jsonInPieces(await showPlan(db, call.org.id, planned)));
      }),
    }),
    test: async (call, input) => ({
      body: await inTurn(call, () => testPolicy(db, call.org.id, input, rightsOf(call), system.now())),
    }),
    async update(call, input) {
      await patchPolicy(services, call.org, input, actorOf(call));
      return noContent;
    },
    apply: {
      // applyPolicy calls `requireRoom`: it knows whether the file makes the organization larger.
      grows: () => false,
      async handle(call, input) {
        const requireRoom = (grows: () => boolean) => call.requireRoom(input, grows);
        const apply = () => applyPolicy(services, call.org, input, actorOf(call), { requireRoom });
        return { raw: await inTurn(call, async () => inSlices(jsonInPieces(await apply()))) };
      },
    },
    confirm: async (call) => ({ body: await confirmPolicy(services, call.org, actorOf(call)) }),
    revert: async (call) => ({ body: await revertPolicy(services, call.org, actorOf(call)) }),
  };
};

export const pastHandlers = (services: Services): Handlers<typeof pastApi> => ({
  async retrieve(call, input) {
    const work = () =>
      inTurnOf({ heavyWork: services.planning }, call, () => reportPast(services, call.org, input));
    // A report about a node shows flows to it, so the request needs the scope for flows and is recorded (withFlows).
    const { body } = await (input.to === undefined ? work() : withFlows(services, call, work));
    return { body };
  },
});
