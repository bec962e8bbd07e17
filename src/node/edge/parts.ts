// The parts, in the order in which they start.

import { exitServer, exitUser } from "./exit-parts.ts";
import type { EdgePart } from "./part.ts";
import { failoverPart, routerPart } from "./routing-parts.ts";

export const edgeParts: readonly EdgePart[] = [routerPart, failoverPart, exitUser, exitServer];
