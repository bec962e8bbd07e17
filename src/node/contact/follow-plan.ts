// The plan of a check-in for --dry-run, as far as it is known without the answer of the control plane. Changes nothing.

import { apiPath } from "../../api/endpoint.ts";
import { nodeCallsApi } from "../../api/node-calls.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import { hostsPath, readHosts } from "../files/hosts.ts";
import { readCredentials, type Organization } from "../files/organizations.ts";
import { planCopy } from "../files/damaged-organization.ts";

/** The request alone. */
export function planCheckin({ slug, directory, config }: Organization): Step {
  const url =
    readCredentials(directory).api_base + apiPath(nodeCallsApi.checkin, { slug, id: config.node_id });
  return { step: "request", method: "POST", url };
}

/**
 * The plan of followOnce, without news: the node keeps a copy of node-config.json (planCopy), and the control plane sends all names to
 * a node that has none.
 */
export function planFollow(organization: Organization): Step[] {
  const { directory } = organization;
  const names = readHosts(directory) === undefined ? [planReplaced(hostsPath(directory), 0o644)] : [];
  return [planCheckin(organization), ...planCopy(organization), ...names];
}
