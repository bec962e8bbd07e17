// The list of all routes. A route is declared once, in routes/*.ts. Routing, checks, 405 with Allow, validation and the
// OpenAPI document come from the declaration:
//
//   export function nodeRoutes(services: Services): Route[] {
//     return [
//       organizationRoute({
//         method: "POST",
//         path: `nodes/${id}/checkin/`,        // below /api/org/:slug/; `route({ path: "/api/…" })` elsewhere
//         access: "admin",                     // see Access in http/route.ts
//         node: true,                          // also the token of the path's node
//         name: "nodes_checkin",               // operationId
//         summary: "Report that the node is alive",
//         takes: body(CheckinRequest),         // or nothing, or query(…)
//         answers: { 200: { description: "…", schema: CheckinAnswer } },
//         errors: ["node_revoked"],
//         handle: async (call, input) => ({ body: await checkin(services, call.org.id, call.id(), input) }),
//       }),
//     ];
//   }
//
// A handler returns a Reply ({ status?, body?, raw?, headers? }) or throws an AppError. `call.caller` is the caller. A
// handler that checks a secret counts wrong guesses with `services.throttle`.

import type { Route } from "./http/route.ts";
import { accessRoutes } from "./routes/access.ts";
import { attentionRoutes } from "./routes/attention.ts";
import { authorityRoutes } from "./routes/authorities.ts";
import { consoleRoutes } from "./routes/console.ts";
import { commandLineRoutes } from "./routes/command-line.ts";
import { domainRoutes } from "./routes/domains.ts";
import { docsRoutes } from "./routes/docs.ts";
import { enrollmentRoutes } from "./routes/enrollments.ts";
import { phoneRoutes } from "./routes/phones.ts";
import { eventRoutes } from "./routes/events.ts";
import { factorRoutes } from "./routes/factors.ts";
import { healthRoutes } from "./routes/health.ts";
import { identityProviderRoutes } from "./routes/identity-providers.ts";
import { nameRoutes } from "./routes/names.ts";
import { oidcRoutes } from "./routes/oidc.ts";
import { organizationProviderRoutes } from "./routes/organization-providers.ts";
import { organizationRoutes } from "./routes/organizations.ts";
import { passkeyRoutes } from "./routes/passkeys.ts";
import { resetRoutes } from "./routes/password-reset.ts";
import { pathRoutes } from "./routes/paths.ts";
import { peopleRoutes } from "./routes/people.ts";
import { nodeRoutes } from "./routes/nodes.ts";
import { policyRoutes } from "./routes/policy.ts";
import { policyFileRoutes } from "./routes/policy-files.ts";
import { browserRoutes } from "./routes/browser-sessions.ts";
import { serverRoutes } from "./routes/servers.ts";
import { userSessionRoutes } from "./routes/user-sessions.ts";
import { userRoutes } from "./routes/users.ts";
import { registrationRoutes } from "./routes/registrations.ts";
import { releaseRoutes } from "./routes/releases.ts";
import { streamRoutes } from "./routes/stream.ts";
import { allTokenRoutes } from "./routes/tokens.ts";
import { webhookRoutes } from "./routes/webhooks.ts";
import type { Services } from "./services.ts";

export function allRoutes(services: Services): Route[] {
  const routes: Route[] = [
    ...consoleRoutes(),
    ...docsRoutes(services, () => routes),
    ...healthRoutes(services),
    ...releaseRoutes(services),
    ...peopleRoutes(services),
    ...browserRoutes(services),
    ...userSessionRoutes(services),
    ...factorRoutes(services),
    ...passkeyRoutes(services),
    ...resetRoutes(services),
    ...oidcRoutes(services),
    ...commandLineRoutes(services),
    ...identityProviderRoutes(services),
    ...organizationProviderRoutes(services),
    ...domainRoutes(services),
    ...userRoutes(services),
    ...serverRoutes(services),
    ...organizationRoutes(services),
    ...accessRoutes(services),
    ...allTokenRoutes(services),
    ...policyRoutes(services),
    ...nameRoutes(services),
    ...policyFileRoutes(services),
    ...pathRoutes(services),
    ...attentionRoutes(services),
    ...authorityRoutes(services),
    ...eventRoutes(services),
    ...streamRoutes(services),
    ...webhookRoutes(services),
    ...nodeRoutes(services),
    ...registrationRoutes(services),
    ...enrollmentRoutes(services),
    ...phoneRoutes(services),
  ];
  return routes;
}
