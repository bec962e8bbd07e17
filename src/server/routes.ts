// The table of all endpoints. An endpoint is declared once, in src/api/, and its handler stands in the routes.ts beside its
// subject; routing, checks, 405 with Allow, validation and the OpenAPI document come from the declaration. A handler returns
// one of the declared answers or throws an AppError. One that checks a secret counts wrong guesses with `services.throttle`.
// Handlers are loaded with the first request of their subject, so that the server starts faster.

import type { Route } from "./http/route.ts";
import {
  browserSessionApi,
  memberSessionsApi,
  ownSessionsApi,
  tokenPairsApi,
  userSessionsApi,
} from "../api/sessions.ts";
import { commandLineApi } from "../api/command-line.ts";
import { domainsApi } from "../api/providers/domains.ts";
import { organizationProvidersApi, providersApi } from "../api/providers/providers.ts";
import { identitiesApi, providerSignInApi } from "../api/providers/sign-in.ts";
import { attentionApi } from "../api/paths/attention.ts";
import { flowsApi } from "../api/flows.ts";
import { pathsApi } from "../api/paths/paths.ts";
import { relaysApi } from "../api/paths/relays.ts";
import { routesApi } from "../api/paths/routes.ts";
import { drillsApi } from "../api/drills/drills.ts";
import { authoritiesApi } from "../api/certificates/authorities.ts";
import { sealsApi } from "../api/certificates/seals.ts";
import { rolloutsApi } from "../api/rollouts.ts";
import { eventsApi } from "../api/events.ts";
import { phonesApi } from "../api/phones.ts";
import { alarmsApi } from "../api/webhooks/alarms.ts";
import { webhooksApi } from "../api/webhooks/webhooks.ts";
import { groupsApi } from "../api/groups.ts";
import { membersApi } from "../api/members.ts";
import { namesApi } from "../api/names.ts";
import { factorsApi, signInRulesApi, totpApi } from "../api/factors/factors.ts";
import { passkeyProofsApi, passkeysApi } from "../api/factors/passkeys.ts";
import { joiningApi, ownUserApi, passwordResetApi, usersApi } from "../api/users.ts";
import { organizationsApi } from "../api/organizations.ts";
import { enrollmentsApi, reauthenticationsApi } from "../api/enrollments.ts";
import { nodesApi } from "../api/nodes.ts";
import { registrationTokensApi } from "../api/tokens/registration-tokens.ts";
import { serviceTokensApi } from "../api/tokens/service-tokens.ts";
import { healthApi, serversApi } from "../api/servers.ts";
import { consoleApi } from "../api/pages.ts";
import { releasesApi } from "../api/releases.ts";
import { consoleHandlers } from "./console/routes.ts";
import { docsRoutes } from "./docs/routes.ts";
import { attach } from "./http/attach.ts";
import { healthHandlers } from "./metrics/routes.ts";
import { nodeCallsApi } from "../api/node-calls.ts";
import { registrationsApi } from "../api/registrations.ts";
import { rulesApi } from "../api/rules.ts";
import { pastApi } from "../api/history/past.ts";
import { policyApi } from "../api/policy.ts";
import type { Services } from "./services.ts";

const nodeRoutes = () => import("./nodes/routes.ts");
const sessionRoutes = () => import("./users/session-routes.ts");

export function allRoutes(services: Services): Route[] {
  const routes: Route[] = [
    ...attach(consoleApi, consoleHandlers),
    ...docsRoutes(services, () => routes),
    ...attach(healthApi, healthHandlers(services)),
    ...attach(releasesApi, async () => (await import("./releases/routes.ts")).releaseHandlers(services)),
    ...attach(tokenPairsApi, async () => (await sessionRoutes()).tokenPairHandlers(services)),
    ...attach(ownUserApi, async () => (await import("./users/routes.ts")).ownUserHandlers(services)),
    ...attach(joiningApi, async () => (await import("./users/routes.ts")).joiningHandlers(services)),
    ...attach(browserSessionApi, async () => (await sessionRoutes()).browserSessionHandlers(services)),
    ...attach(ownSessionsApi, async () => (await sessionRoutes()).ownSessionHandlers(services)),
    ...attach(memberSessionsApi, async () => (await sessionRoutes()).memberSessionHandlers(services)),
    ...attach(userSessionsApi, async () => (await sessionRoutes()).userSessionHandlers(services)),
    ...attach(factorsApi, async () => (await import("./users/factor-routes.ts")).factorHandlers(services)),
    ...attach(totpApi, async () => (await import("./users/factor-routes.ts")).totpHandlers(services)),
    ...attach(signInRulesApi, async () =>
      (await import("./users/factor-routes.ts")).signInRuleHandlers(services),
    ),
    ...attach(passkeysApi, async () => (await import("./users/factor-routes.ts")).passkeyHandlers(services)),
    ...attach(passkeyProofsApi, async () =>
      (await import("./users/factor-routes.ts")).passkeyProofHandlers(services),
    ),
    ...attach(passwordResetApi, async () =>
      (await import("./users/routes.ts")).passwordResetHandlers(services),
    ),
    ...attach(providerSignInApi, async () =>
      (await import("./oidc/routes.ts")).providerSignInHandlers(services),
    ),
    ...attach(identitiesApi, async () => (await import("./oidc/routes.ts")).identityHandlers(services)),
    ...attach(commandLineApi, async () =>
      (await import("./users/device-routes.ts")).commandLineHandlers(services),
    ),
    ...attach(providersApi, async () => (await import("./oidc/routes.ts")).providerHandlers(services)),
    ...attach(organizationProvidersApi, async () =>
      (await import("./oidc/routes.ts")).organizationProviderHandlers(services),
    ),
    ...attach(domainsApi, async () => (await import("./oidc/routes.ts")).domainHandlers(services)),
    ...attach(usersApi, async () => (await import("./users/routes.ts")).userHandlers(services)),
    ...attach(serversApi, async () => (await import("./metrics/routes.ts")).serverHandlers(services)),
    ...attach(organizationsApi, async () =>
      (await import("./organizations/routes.ts")).organizationHandlers(services),
    ),
    ...attach(membersApi, async () => (await import("./organizations/routes.ts")).memberHandlers(services)),
    ...attach(groupsApi, async () => (await import("./organizations/routes.ts")).groupHandlers(services)),
    ...attach(registrationTokensApi, async () =>
      (await import("./tokens/routes.ts")).registrationTokenHandlers(services),
    ),
    ...attach(serviceTokensApi, async () =>
      (await import("./tokens/routes.ts")).serviceTokenHandlers(services),
    ),
    ...attach(rulesApi, async () => (await import("./policy/routes.ts")).ruleHandlers(services)),
    ...attach(namesApi, async () => (await import("./names/routes.ts")).nameHandlers(services)),
    ...attach(policyApi, async () => (await import("./policy-files/routes.ts")).policyHandlers(services)),
    ...attach(pastApi, async () => (await import("./policy-files/routes.ts")).pastHandlers(services)),
    ...attach(sealsApi, async () => (await import("./certificates/routes.ts")).sealHandlers(services)),
    ...attach(pathsApi, async () => (await import("./paths/routes.ts")).pathHandlers(services)),
    ...attach(relaysApi, async () => (await import("./paths/routes.ts")).relayHandlers(services)),
    ...attach(flowsApi, async () => (await import("./flows/routes.ts")).flowHandlers(services)),
    ...attach(attentionApi, async () => (await import("./paths/routes.ts")).attentionHandlers(services)),
    ...attach(authoritiesApi, async () => (await import("./rollout/routes.ts")).authorityHandlers(services)),
    ...attach(rolloutsApi, async () => (await import("./rollout/routes.ts")).rolloutHandlers(services)),
    ...attach(drillsApi, async () => (await import("./rollout/routes.ts")).drillHandlers(services)),
    ...attach(eventsApi, async () => (await import("./audit/routes.ts")).eventHandlers(services)),
    ...attach(alarmsApi, async () => (await import("./alarms/routes.ts")).alarmHandlers(services)),
    ...attach(webhooksApi, async () => (await import("./webhooks/routes.ts")).webhookHandlers(services)),
    ...attach(nodesApi, async () => (await nodeRoutes()).nodeHandlers(services)),
    ...attach(routesApi, async () => (await nodeRoutes()).routeHandlers(services)),
    ...attach(nodeCallsApi, async () => (await import("./nodes/call-routes.ts")).nodeCallHandlers(services)),
    ...attach(registrationsApi, async () => (await nodeRoutes()).registrationHandlers(services)),
    ...attach(enrollmentsApi, async () => (await nodeRoutes()).enrollmentHandlers(services)),
    ...attach(reauthenticationsApi, async () => (await nodeRoutes()).reauthenticationHandlers(services)),
    ...attach(phonesApi, async () => (await nodeRoutes()).phoneHandlers(services)),
  ];
  return routes;
}
