// All endpoints of the contract, for what looks at each of them.

import type { Endpoint } from "./endpoint.ts";
import { groupsApi } from "./groups.ts";
import { membersApi } from "./members.ts";
import { nodesApi } from "./nodes.ts";
import { organizationsApi } from "./organizations.ts";
import { registrationTokensApi, serviceTokensApi } from "./tokens.ts";

const subjects = [organizationsApi, membersApi, groupsApi, registrationTokensApi, serviceTokensApi, nodesApi];

export const endpoints: readonly Endpoint[] = subjects.flatMap((subject) => Object.values<Endpoint>(subject));

/** The endpoint that this request is for. `path`: may have a query. */
export function endpointOf(method: string, path: string): Endpoint | undefined {
  const [plain = ""] = path.split("?");
  return endpoints.find(
    (each) =>
      each.method === method && new RegExp(`^${each.path.replaceAll(/{\w+}/g, "[^/]+")}$`).test(plain),
  );
}
