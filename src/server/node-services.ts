// What the routes about nodes share beyond the common services.

import { openAuthorities, type Authorities } from "./authorities.ts";
import type { Services } from "./services.ts";
import { makeViews, type Views } from "./views.ts";

export type NodeServices = Services & { authorities: Authorities; views: Views };

/** What changing nodes needs, and all that the admin commands have. */
export type NodeStore = Pick<NodeServices, "db" | "system" | "secretKey" | "authorities" | "changes">;

export function makeNodeServices(services: Services): NodeServices {
  return { ...services, authorities: openAuthorities(services), views: makeViews(services.system.now) };
}
