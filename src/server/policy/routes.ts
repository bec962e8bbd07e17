// Handlers of src/api/rules.ts.

import type { Rule, rulesApi } from "../../api/rules.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { OrganizationCall } from "../http/route.ts";
import { inTurnOf, testingOf } from "../pipeline.ts";
import { adds } from "../retention/budget.ts";
import type { Services } from "../services.ts";
import { listRows, type Listed } from "../store/list-rows.ts";
import { namedProviderGroups } from "./provider-words.ts";
import { namesNewGroup } from "./groups.ts";
import { createRule, deleteRule, findRule, groupsIn, patchRule, testRules } from "./rules.ts";
import { ruleColumns, ruleOf } from "./stored-rules.ts";

const listed: Listed<Rule> = {
  table: "firewall_rules",
  columns: ruleColumns,
  where: "AND lower(description) LIKE $2 ESCAPE '!'",
  bytes: "octet_length(description)",
  toItem: ruleOf,
};

export const ruleHandlers = (services: Services): Handlers<typeof rulesApi> => ({
  list: (call, input) => listRows(services, call, listed, input),
  create: async (call, input) => ({
    body: await createRule(tested(services, call), call.org, input, actorOf(call)),
  }),
  async test(call, input) {
    const { db, views } = services;
    const rules = async () => (await views.of(db, call.org.id)).testable();
    // In turn, because comparing all rules takes long.
    return { body: await inTurnOf(services, call, () => testRules(services, call.org, rules, input)) };
  },
  retrieve: async (call) => ({ body: await findRule(services.db, call.org, call.id()) }),
  update: {
    // By a longer description, or by a group that the rule names first.
    grows: async (input, call) =>
      adds(await findRule(services.db, call.org, call.id()), { description: input.description }) ||
      (await namesNewGroup(services.db, call.org.id, groupsIn(input))),
    handle: async (call, input) => ({
      body: await patchRule(tested(services, call), call.org, call.id(), input, actorOf(call)),
    }),
  },
  async delete(call) {
    await deleteRule(tested(services, call), call.org, call.id(), actorOf(call));
  },
  providerGroups: async (call) => ({ body: await namedProviderGroups(services.db, call.org.id) }),
});

/** The services of a change of rules. `testing`: runs the tests of the policy on behalf of this request. */
const tested = (services: Services, call: OrganizationCall) => ({
  ...services,
  testing: testingOf(services, call),
});
