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
import { attach, type Attached, type Subject } from "./http/attach.ts";
import { healthHandlers } from "./metrics/routes.ts";
import { nodeCallsApi } from "../api/node-calls.ts";
import { registrationsApi } from "../api/registrations.ts";
import { rulesApi } from "../api/rules.ts";
import { pastApi } from "../api/history/past.ts";
import { policyApi } from "../api/policy.ts";
import type { Services } from "./services.ts";

export function allRoutes(services: Services): Route[] {
  /** `subjects`: each by the name of the function of the module that makes its handlers. */
  const lazily = <S extends Record<string, Subject>>(
    load: () => Promise<{ [Name in keyof NoInfer<S>]: (services: Services) => Attached<S[Name]> }>,
    subjects: S,
  ) => {
    const names: (keyof S)[] = Object.keys(subjects);
    return names.flatMap((name) => attach(subjects[name], async () => (await load())[name](services)));
  };
  const routes: Route[] = [
    ...attach(consoleApi, consoleHandlers),
    ...docsRoutes(services, () => routes),
    ...attach(healthApi, healthHandlers(services)),
    ...lazily(() => import("./releases/routes.ts"), { releaseHandlers: releasesApi }),
    ...lazily(() => import("./users/session-routes.ts"), { tokenPairHandlers: tokenPairsApi }),
    ...lazily(() => import("./users/routes.ts"), {
      ownUserHandlers: ownUserApi,
      joiningHandlers: joiningApi,
    }),
    ...lazily(() => import("./users/session-routes.ts"), {
      browserSessionHandlers: browserSessionApi,
      ownSessionHandlers: ownSessionsApi,
      memberSessionHandlers: memberSessionsApi,
      userSessionHandlers: userSessionsApi,
    }),
    ...lazily(() => import("./users/factor-routes.ts"), {
      factorHandlers: factorsApi,
      totpHandlers: totpApi,
      signInRuleHandlers: signInRulesApi,
      passkeyHandlers: passkeysApi,
      passkeyProofHandlers: passkeyProofsApi,
    }),
    ...lazily(() => import("./users/routes.ts"), { passwordResetHandlers: passwordResetApi }),
    ...lazily(() => import("./oidc/routes.ts"), {
      providerSignInHandlers: providerSignInApi,
      identityHandlers: identitiesApi,
    }),
    ...lazily(() => import("./users/device-routes.ts"), { commandLineHandlers: commandLineApi }),
    ...lazily(() => import("./oidc/routes.ts"), {
      providerHandlers: providersApi,
      organizationProviderHandlers: organizationProvidersApi,
      domainHandlers: domainsApi,
    }),
    ...lazily(() => import("./users/routes.ts"), { userHandlers: usersApi }),
    ...lazily(() => import("./metrics/routes.ts"), { serverHandlers: serversApi }),
    ...lazily(() => import("./organizations/routes.ts"), {
      organizationHandlers: organizationsApi,
      memberHandlers: membersApi,
      groupHandlers: groupsApi,
    }),
    ...lazily(() => import("./tokens/routes.ts"), {
      registrationTokenHandlers: registrationTokensApi,
      serviceTokenHandlers: serviceTokensApi,
    }),
    ...lazily(() => import("./policy/routes.ts"), { ruleHandlers: rulesApi }),
    ...lazily(() => import("./names/routes.ts"), { nameHandlers: namesApi }),
    ...lazily(() => import("./policy-files/routes.ts"), { policyHandlers: policyApi, pastHandlers: pastApi }),
    ...lazily(() => import("./certificates/routes.ts"), { sealHandlers: sealsApi }),
    ...lazily(() => import("./paths/routes.ts"), { pathHandlers: pathsApi, relayHandlers: relaysApi }),
    ...lazily(() => import("./flows/routes.ts"), { flowHandlers: flowsApi }),
    ...lazily(() => import("./paths/routes.ts"), { attentionHandlers: attentionApi }),
    ...lazily(() => import("./rollout/routes.ts"), {
      authorityHandlers: authoritiesApi,
      rolloutHandlers: rolloutsApi,
      drillHandlers: drillsApi,
    }),
    ...lazily(() => import("./audit/routes.ts"), { eventHandlers: eventsApi }),
    ...lazily(() => import("./alarms/routes.ts"), { alarmHandlers: alarmsApi }),
    ...lazily(() => import("./webhooks/routes.ts"), { webhookHandlers: webhooksApi }),
    ...lazily(() => import("./nodes/routes.ts"), { nodeHandlers: nodesApi, routeHandlers: routesApi }),
    ...lazily(() => import("./nodes/call-routes.ts"), { nodeCallHandlers: nodeCallsApi }),
    ...lazily(() => import("./nodes/routes.ts"), {
      registrationHandlers: registrationsApi,
      enrollmentHandlers: enrollmentsApi,
      reauthenticationHandlers: reauthenticationsApi,
      phoneHandlers: phonesApi,
    }),
  ];
  return routes;
}
