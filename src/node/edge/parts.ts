// The parts, in the order in which they start.

import type { Organization } from "../files/organizations.ts";
import type { EdgePart } from "./part.ts";
import { failoverPart, routerPart } from "./routing-parts.ts";

export const edgeParts: readonly EdgePart[] = [routerPart, failoverPart];

export function needsEdge(organization: Organization): boolean {
  return edgeParts.some((part) => part.needed(organization));
}
