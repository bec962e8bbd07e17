// The parts, in the order in which they start.

import type { EdgePart } from "./part.ts";
import { failoverPart, routerPart } from "./routing-parts.ts";

export const edgeParts: readonly EdgePart[] = [routerPart, failoverPart];
