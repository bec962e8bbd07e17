// Whether the router maps a UDP port to this node. None is no fault: most nodes reach each other without.

import { readMappingState, whyNoMapping } from "../files/mapping-state.ts";
import type { Organization } from "../files/organizations.ts";
import type { System } from "../../base/system.ts";
import { ok, skipped, type Finding } from "./check.ts";

export async function examinePortMapping(
  organization: Pick<Organization, "directory" | "config">,
  isRunning: boolean,
  system: Pick<System, "machineState">,
): Promise<Finding> {
  const why = whyNoMapping(organization);
  if (why !== undefined) return skipped(why);
  const state = readMappingState(organization.directory);
  if (state === undefined)
    return skipped(`No router was asked for a port: ${await whyNotAsked(isRunning, system)}`);
  const { gateway, mapped, refused } = state;
  if (mapped !== undefined)
    return ok(`The router ${gateway} maps ${mapped.at} to this node, by ${mapped.by}, since ${mapped.since}`);
  if (refused !== undefined) return skipped(`The router ${gateway} maps no port to this node: ${refused}`);
  return skipped(
    `No port is mapped: ${gateway} knows neither PCP, NAT-PMP nor UPnP, or this machine has a public address`,
  );
}

async function whyNotAsked(isRunning: boolean, system: Pick<System, "machineState">): Promise<string> {
  if (!isRunning) return "the overlay does not run";
  const { gateways } = await system.machineState();
  if (gateways.every((each) => each.includes(":"))) return "this machine has no default gateway of IPv4";
  return "the overlay started just now, or the agent that asks does not run";
}
