// Paths of the requests that many tests send, by the contract.

import { apiPath } from "../../src/api/endpoint.ts";
import { nodeCallsApi } from "../../src/api/node-calls.ts";
import { registrationsApi } from "../../src/api/registrations.ts";
import { nodesApi } from "../../src/api/nodes.ts";
import { organizationsApi } from "../../src/api/organizations.ts";

export const paths = {
  organizations: organizationsApi.list.path,
  organization: (slug: string) => apiPath(organizationsApi.retrieve, { slug }),
  nodes: (slug: string) => apiPath(nodesApi.list, { slug }),
  register: (slug: string) => apiPath(registrationsApi.register, { slug }),
  node: (slug: string, id: number) => apiPath(nodesApi.retrieve, { slug, id }),
  config: (slug: string, id: number) => apiPath(nodesApi.config, { slug, id }),
  downloadConfig: (slug: string, id: number) => apiPath(nodeCallsApi.download, { slug, id }),
  checkin: (slug: string, id: number) => apiPath(nodeCallsApi.checkin, { slug, id }),
  renewCert: (slug: string, id: number) => apiPath(nodesApi.renewCertificate, { slug, id }),
  restore: (slug: string, id: number) => apiPath(nodesApi.restore, { slug, id }),
};
