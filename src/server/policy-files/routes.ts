// Handlers of src/api/policy.ts.

import type { policyApi } from "../../api/policy.ts";
import { AppError } from "../../base/errors.ts";
import { actorOf } from "../audit/record.ts";
import { forgetSeals, publishSeal, sealedStateOf } from "../config/seals.ts";
import { reportPast } from "../flows/past.ts";
import { withFlows } from "../flows/read.ts";
import type { Handlers } from "../http/attach.ts";
import { inSlices, jsonInPieces } from "../http/heavy-work.ts";
import { noContent } from "../http/reply.ts";
import type { OrganizationCall } from "../http/route.ts";
import { inTurnOf } from "../pipeline.ts";
import type { Services } from "../services.ts";
import type { Transaction } from "../store/database.ts";
import { readSeals } from "../store/tables/policies.ts";
import { requireRole } from "../users/late-rights.ts";
import { applyPolicy, patchPolicy } from "./apply.ts";
import { confirmPolicy, revertPolicy } from "./confirm.ts";
import { planChanges } from "./plan.ts";
import { showPlan } from "./show-plan.ts";
import { showPolicy, testPolicy } from "./show.ts";

/** Groups of a provider that the policy does not name yet. */
const mayName = ({ org }: OrganizationCall) => org.role !== "member";

/** An administrator who names the signers would take the organization from its owners: no owner could replace them. */
async function requireOwner(tx: Transaction, call: OrganizationCall): Promise<void> {
  try {
    await requireRole(tx, call.org.id, actorOf(call), "owner");
  } catch (cause) {
    if (!(cause instanceof AppError && cause.code === "permission_denied")) throw cause;
    throw new AppError("permission_denied", "Only an owner can publish the first seal of an organization.", {
      cause,
      hint: "Sign in as an owner, not with a service token. Administrators publish later seals, which its signers have signed.",
    });
  }
}

export const policyHandlers = (services: Services): Handlers<typeof policyApi> => {
  const { db, planning, system } = services;
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
    async past(call, input) {
      const work = () => inTurn(call, () => reportPast(services, call.org, input));
      // About a node, the report says who did reach it.
      const { body } = await (input.to === undefined ? work() : withFlows(services, call, work));
      return { body };
    },
    plan: async (call, input) => ({
      raw: await inTurn(call, async () => {
        const planned = await planChanges(db, call.org.id, input, mayName(call));
        return inSlices(jsonInPieces(await showPlan(db, call.org.id, planned)));
      }),
    }),
    test: async (call, input) => ({
      body: await inTurn(call, () => testPolicy(db, call.org.id, input, mayName(call))),
    }),
    async update(call, input) {
      await patchPolicy(services, call.org, input, actorOf(call));
      return noContent;
    },
    apply: {
      // Asked by applyPolicy, which knows what the file changes.
      grows: () => false,
      async handle(call, input) {
        const requireRoom = (grows: () => boolean) => call.requireRoom(input, grows);
        const apply = () => applyPolicy(services, call.org, input, actorOf(call), { requireRoom });
        return { raw: await inTurn(call, async () => inSlices(jsonInPieces(await apply()))) };
      },
    },
    confirm: async (call) => ({ body: await confirmPolicy(services, call.org, actorOf(call)) }),
    revert: async (call) => ({ body: await revertPolicy(services, call.org, actorOf(call)) }),
    async seals({ org }) {
      const view = await services.views.of(db, org.id);
      const state = await sealedStateOf(db, view);
      return { body: { seals: await readSeals(db, org.id), state, authorities: view.trust.caPem } };
    },
    publishSeal: async (call, input) => ({
      status: 201,
      body: await publishSeal(services, call.org, input, actorOf(call), (tx) => requireOwner(tx, call)),
    }),
    async forgetSeals(call) {
      const actor = actorOf(call);
      await forgetSeals(services, call.org, actor, (tx) => requireRole(tx, call.org.id, actor, "owner"));
      return noContent;
    },
  };
};
