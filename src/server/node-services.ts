// What the routes about nodes share beyond the common services.

import { openAuthorities, type Authorities } from "./authorities.ts";
import type { Services } from "./services.ts";
import { makeViews, type Views } from "./views.ts";

export type NodeServices = Services & { authorities: Authorities; views: Views };

export function makeNodeServices(services: Services): NodeServices {
  return { ...services, authorities: openAuthorities(services), views: makeViews(services.system.now) };
}
