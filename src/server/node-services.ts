// What the routes about nodes share beyond the common services.

import { openAuthorities, type Authorities } from "./authorities.ts";
import type { Services } from "./services.ts";
import { makeViews, type Views } from "./views.ts";

export type NodeServices = Services & { authorities: Authorities; views: Views };

/** What changing nodes needs, and all that the admin commands have. */
export type NodeStore = Pick<NodeServices, "db" | "system" | "secretKey" | "authorities" | "changes">;

export function makeNodeServices(services: Services): NodeServices {
  // Where somebody makes tokens or organizations, machines come soon: the X.509 library is there before the first.
  const forget = services.db.listen("auth", () => {
    forget();
    void import("../pki/x509.ts");
  });
  return { ...services, authorities: openAuthorities(services), views: makeViews(services.system.now) };
}
