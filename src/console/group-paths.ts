// The nodes and paths of an organization summed by group, as GET paths/groups/ shows them. Paths change without an event of
// the audit log, so they are read again while a page shows them.

import { apiPath } from "../api/endpoint.ts";
import { pathsApi, type GroupPaths } from "../api/paths.ts";
import { useResource, type Resource } from "./resource.ts";

export const useGroupPaths = (own: string): Resource<GroupPaths> =>
  useResource(apiPath(pathsApi.groups, { slug: own }), { isCalm: true });
