// The table of all routes. A route is declared once, in routes/*.ts, and from that come routing, the order of checks,
// 405 with Allow, validation and the OpenAPI document:
//
//   export function nodeRoutes(services: Services): Route[] {
//     return [
//       organizationRoute({
//         method: "POST",
//         path: `nodes/${id}/checkin/`,        // below /api/org/:slug/; `route({ path: "/api/…" })` elsewhere
//         access: "member",                    // who may; see Access in route.ts
//         node: true,                          // and that node's own token
//         name: "nodes_checkin",               // operationId
//         summary: "Report that the node lives",
//         takes: body(CheckinRequest),         // or nothing, or query(…)
//         answers: { 200: { description: "…", schema: CheckinAnswer } },
//         errors: ["node_revoked"],
//         handle: async (call, input) => ({ body: await checkin(services, call.org.id, call.id(), input) }),
//       }),
//     ];
//   }
//
// A handler answers a Reply ({ status?, body?, raw?, headers? }) or throws an AppError. `call.caller` says who calls.
// New errors of a guessing caller (a registration token that never was) count by `services.throttle`.

import type { Route } from "./http/route.ts";
import { accessRoutes } from "./routes/access.ts";
import { authorityRoutes } from "./routes/authorities.ts";
import { docsRoutes } from "./routes/docs.ts";
import { eventRoutes } from "./routes/events.ts";
import { healthRoutes } from "./routes/health.ts";
import { organizationRoutes } from "./routes/organizations.ts";
import { peopleRoutes } from "./routes/people.ts";
import { makeNodeServices } from "./nodes/services.ts";
import { nodeRoutes } from "./routes/nodes.ts";
import { policyRoutes } from "./routes/policy.ts";
import { releaseRoutes } from "./routes/releases.ts";
import { allTokenRoutes } from "./routes/tokens.ts";
import { webhookRoutes } from "./routes/webhooks.ts";
import type { Services } from "./services.ts";

export function allRoutes(services: Services): Route[] {
  const routes: Route[] = [
    ...docsRoutes(services, () => routes),
    ...healthRoutes(services),
    ...releaseRoutes(services),
    ...peopleRoutes(services),
    ...organizationRoutes(services),
    ...accessRoutes(services),
    ...allTokenRoutes(services),
    ...policyRoutes(services),
    ...authorityRoutes(services),
    ...eventRoutes(services),
    ...webhookRoutes(services),
    ...nodeRoutes(makeNodeServices(services)),
  ];
  return routes;
}
