// The parts, in the order in which they start. What runs them is loaded only where one is needed: every check asks this.

import { whyNoTables } from "../../platform/nftables.ts";
import { areFlowsReported } from "../files/flows-state.ts";
import type { Organization } from "../files/organizations.ts";
import { readTcpState, tcpListenersOf, tcpWaysOf } from "../files/tcp-state.ts";
import { isMappingWanted } from "../files/mapping-state.ts";
import { exitServer, exitUser } from "./exit-parts.ts";
import type { EdgePart } from "./part.ts";
import { failoverPart, routerPart } from "./routing-parts.ts";

const tcpListener: EdgePart = {
  name: "the listener of TCP fallback",
  needed: (organization) => tcpListenersOf(organization).length > 0,
  key: (organization) => tcpListenersOf(organization).join(" "),
  start: async (context) => (await import("./tcp-listener.ts")).startTcpListener(context),
};

const tcpFallback: EdgePart = {
  name: "TCP fallback",
  // In server mode check-auth notices a blocked UDP (keep-edge.ts): this part has its own process only while UDP is blocked.
  needed(organization) {
    if (Object.keys(tcpWaysOf(organization)).length === 0) return false;
    return organization.config.mode === "desktop" || readTcpState(organization.directory) !== undefined;
  },
  start: async (context) => (await import("./tcp-fallback.ts")).startTcpFallback(context),
};

const flowsPart: EdgePart = {
  name: "the count of flows",
  // Without nft `status` says so, and nothing runs.
  needed: (organization) => areFlowsReported(organization) && whyNoTables() === undefined,
  start: async (context) => (await import("./collect-flows.ts")).startFlows(context),
};

const portMapping: EdgePart = {
  name: "the port mapping of the router",
  // In server mode check-auth keeps the mapping (keep-edge.ts): this part needs no process of its own.
  needed: (organization) => organization.config.mode === "desktop" && isMappingWanted(organization),
  start: async (context) => (await import("./port-mapping/keep-mapping.ts")).startPortMapping(context),
};

export const edgeParts: readonly EdgePart[] = [
  routerPart,
  failoverPart,
  exitUser,
  exitServer,
  tcpListener,
  tcpFallback,
  flowsPart,
  portMapping,
];

export function needsEdge(organization: Organization): boolean {
  return edgeParts.some((part) => part.needed(organization));
}
