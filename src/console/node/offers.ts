// What the line for a new router offers. Pure.

import type { Route } from "../../api/paths/routes.ts";
import { formatOffer } from "../../protocol/routing/format-offer.ts";

/**
 * All that `--advertise` must name, because it replaces the list of the node: what it offers now, the approved networks that
 * it does not offer yet, and the new ones. Those that it does not offer yet masquerade, which needs no route back.
 */
export function offersWith(networks: readonly string[], name: string, routes: readonly Route[]): string[] {
  const known = routes.flatMap(({ network, routers }) =>
    routers.flatMap((each) =>
      each.node_name === name ? { ...each, network, masquerade: each.offered ? each.masquerade : true } : [],
    ),
  );
  const added = networks.filter((each) => !known.some(({ network }) => network === each));
  return [...known, ...added.map((network) => ({ network, masquerade: true }))].map(formatOffer);
}
