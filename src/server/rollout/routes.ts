// Handlers of src/api/rollouts.ts, drills/ and certificates/authorities.ts.

import type { drillsApi } from "../../api/drills/drills.ts";
import type { authoritiesApi } from "../../api/certificates/authorities.ts";
import type { rolloutsApi } from "../../api/rollouts.ts";
import { learnsAddresses } from "../audit/read.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { listReply, type Page } from "../http/lists.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Services } from "../services.ts";
import { listDrills } from "./drill-report.ts";
import { abortDrill, createDrill } from "./drills.ts";
import { createRollout, steerRollout } from "./rollouts.ts";
import { findRollout, listMembers, listRollouts } from "./show-rollouts.ts";
import { showAuthorities, steerRotation } from "./rotation-commands.ts";

export const authorityHandlers = (services: Services): Handlers<typeof authoritiesApi> => ({
  retrieve: async ({ org }) => ({ body: await showAuthorities(services.db, org, services.system.now()) }),
  rotate: async (call, input) => ({ body: await steerRotation(services, call.org, input, actorOf(call)) }),
});

/** Without the line of an engine's log for members: it names network addresses of peers. */
const logShownTo = <T extends { log: string }>(call: OrganizationCall, each: T): T =>
  learnsAddresses(call) ? each : { ...each, log: "" };
/** The same of a page. */
const pageFor = <T extends { log: string }>(call: OrganizationCall, page: Page<T>): Page<T> => ({
  ...page,
  items: page.items.map((each) => logShownTo(call, each)),
});

export const rolloutHandlers = (services: Services): Handlers<typeof rolloutsApi> => {
  const { db, publicUrl } = services;
  return {
    list: async (call, input) =>
      listReply(call, publicUrl, pageFor(call, await listRollouts(services, call.org, input))),
    create: async (call, input) => ({
      body: await createRollout(services, call.org, input, actorOf(call)),
    }),
    retrieve: async (call) => ({
      body: logShownTo(call, await findRollout(services, call.org, call.id())),
    }),
    nodes: async (call, input) =>
      listReply(call, publicUrl, pageFor(call, await listMembers(db, call.org, call.id(), input))),
    steer: async (call, { action }) => ({
      body: await steerRollout(services, call.org, call.id(), action, actorOf(call)),
    }),
  };
};

export const drillHandlers = (services: Services): Handlers<typeof drillsApi> => ({
  list: async ({ org }, query) => ({ body: await listDrills(services, org, query) }),
  create: async (call, input) => ({
    body: await createDrill(services, call.org, input, actorOf(call)),
  }),
  abort: async (call) => ({ body: await abortDrill(services, call.org, call.id(), actorOf(call)) }),
});
