// What the line for a new router offers. Pure.

import type { Route } from "../../api/paths/routes.ts";
import { formatOffer } from "../../protocol/routing/format-offer.ts";

/**
 * All that `--advertise` must name, because it replaces the list of the node: what it offers now, and the new networks. They
 * masquerade, which needs no route back.
 */
export function offersWith(networks: readonly string[], name: string, routes: readonly Route[]): string[] {
  const offered = routes.flatMap(({ network, routers }) =>
    routers.flatMap((each) => (each.offered && each.node_name === name ? { ...each, network } : [])),
  );
  const added = networks.filter((each) => !offered.some(({ network }) => network === each));
  return [...offered, ...added.map((network) => ({ network, masquerade: true }))].map(formatOffer);
}
