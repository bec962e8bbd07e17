// All endpoints of the contract, for code that enumerates them: tests, and the check of answers in tests of the console.

import { paramPattern, type Endpoint } from "./endpoint.ts";
import { drillsApi } from "./drills/drills.ts";
import { commandLineApi } from "./command-line.ts";
import { authoritiesApi } from "./certificates/authorities.ts";
import { sealsApi } from "./certificates/seals.ts";
import { rolloutsApi } from "./rollouts.ts";
import { enrollmentsApi, reauthenticationsApi } from "./enrollments.ts";
import { eventsApi } from "./events.ts";
import { factorsApi, signInRulesApi, totpApi } from "./factors/factors.ts";
import { passkeyProofsApi, passkeysApi } from "./factors/passkeys.ts";
import { groupsApi } from "./groups.ts";
import { membersApi } from "./members.ts";
import { namesApi } from "./names.ts";
import { nodeCallsApi } from "./node-calls.ts";
import { registrationsApi } from "./registrations.ts";
import { nodesApi } from "./nodes.ts";
import { organizationsApi } from "./organizations.ts";
import { consoleApi, docsApi, linksApi, viewersApi } from "./pages.ts";
import { releasesApi } from "./releases.ts";
import { attentionApi } from "./paths/attention.ts";
import { flowsApi } from "./flows.ts";
import { pathsApi } from "./paths/paths.ts";
import { relaysApi } from "./paths/relays.ts";
import { routesApi } from "./paths/routes.ts";
import { phonesApi } from "./phones.ts";
import { pastApi } from "./history/past.ts";
import { policyApi } from "./policy.ts";
import { domainsApi } from "./providers/domains.ts";
import { organizationProvidersApi, providersApi } from "./providers/providers.ts";
import { identitiesApi, providerSignInApi } from "./providers/sign-in.ts";
import { rulesApi } from "./rules.ts";
import { healthApi, serversApi } from "./servers.ts";
import {
  browserSessionApi,
  memberSessionsApi,
  ownSessionsApi,
  tokenPairsApi,
  userSessionsApi,
} from "./sessions.ts";
import { registrationTokensApi } from "./tokens/registration-tokens.ts";
import { serviceTokensApi } from "./tokens/service-tokens.ts";
import { joiningApi, ownUserApi, passwordResetApi, usersApi } from "./users.ts";
import { alarmsApi } from "./webhooks/alarms.ts";
import { webhooksApi } from "./webhooks/webhooks.ts";

const subjects = [
  alarmsApi,
  authoritiesApi,
  rolloutsApi,
  drillsApi,
  enrollmentsApi,
  reauthenticationsApi,
  eventsApi,
  factorsApi,
  totpApi,
  signInRulesApi,
  passkeysApi,
  passkeyProofsApi,
  groupsApi,
  membersApi,
  namesApi,
  nodeCallsApi,
  registrationsApi,
  nodesApi,
  organizationsApi,
  consoleApi,
  viewersApi,
  docsApi,
  linksApi,
  releasesApi,
  pathsApi,
  relaysApi,
  attentionApi,
  flowsApi,
  phonesApi,
  policyApi,
  pastApi,
  sealsApi,
  providerSignInApi,
  identitiesApi,
  providersApi,
  organizationProvidersApi,
  domainsApi,
  routesApi,
  rulesApi,
  healthApi,
  serversApi,
  tokenPairsApi,
  browserSessionApi,
  ownSessionsApi,
  memberSessionsApi,
  userSessionsApi,
  commandLineApi,
  registrationTokensApi,
  serviceTokensApi,
  ownUserApi,
  joiningApi,
  passwordResetApi,
  usersApi,
  webhooksApi,
];

export const endpoints: readonly Endpoint[] = subjects.flatMap((subject) => Object.values<Endpoint>(subject));

const patternOf = (of: Endpoint) =>
  new RegExp(`^${of.path.replace(/{(\w+)}/g, (_, name: string) => paramPattern(of, name) ?? "[^/]+")}$`);
const patterns = new Map(endpoints.map((each) => [each, patternOf(each)]));

/** The endpoint that this request is for. `path`: may have a query. */
export function endpointOf(method: string, path: string, among = endpoints): Endpoint | undefined {
  const [plain = ""] = path.split("?");
  return among.find((each) => each.method === method && patterns.get(each)?.test(plain) === true);
}
