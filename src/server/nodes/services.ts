// What the routes about nodes share beyond the common services, and what goes on in the background for them.

import { messageOf } from "../../errors.ts";
import { openAuthorities, type Authorities } from "../certificates/authorities.ts";
import { makeCheckins, type Checkins } from "./checkins.ts";
import { makeLive } from "./live.ts";
import { advanceMoves } from "../rollout/rolling-update.ts";
import { makeProbes, type Probes } from "./probe.ts";
import { makeRenewals, type Renewals } from "./renewal.ts";
import { makeRotations } from "../rollout/rotation-schedule.ts";
import { makeRenderings, type Renderings } from "../config/renderings.ts";
import { makeReports, type Reports } from "./reports.ts";
import type { Services } from "../services.ts";
import { settle, tellExpiring } from "./upkeep.ts";
import { makeViews, type Views } from "../config/views.ts";

export type NodeServices = Services & {
  authorities: Authorities;
  views: Views;
  renderings: Renderings;
  checkins: Checkins;
  renewals: Renewals;
  reports: Reports;
  probes: Probes;
};

const upkeepMs = 5000;
/** What a phase of a rotation takes at least. */
const rotationMs = 1000;

/** What changing nodes needs, and all that the admin commands have. */
export type NodeStore = Pick<NodeServices, "db" | "system" | "secretKey" | "authorities" | "changes"> &
  Partial<Pick<NodeServices, "reports">>;

export function makeNodeServices(services: Services): NodeServices {
  const { system, log, atStop } = services;
  const authorities = openAuthorities(services);
  const live = makeLive(services.db);
  const reports = makeReports({ ...services, live });
  const renewals = makeRenewals({ ...services, authorities });
  const closing = new AbortController();

  const repeat = async (everyMs: number, what: string, work: () => Promise<void>) => {
    for (;;) {
      // Ended early only when the server stops.
      await system.sleep(everyMs, closing.signal).catch(() => undefined);
      if (closing.signal.aborted) return;
      await work().catch((error: unknown) => {
        log.warn(`${what} failed; it is tried again`, { reason: messageOf(error) });
      });
    }
  };
  // Where somebody makes tokens or organizations, machines come soon: the X.509 library is there before the first.
  const forget = services.db.listen("auth", () => {
    forget();
    void import("../../pki/x509.ts");
  });
  void repeat(upkeepMs, "the upkeep of nodes", async () => {
    await settle(services);
    await advanceMoves({ ...services, authorities });
    await tellExpiring(services);
  });
  void repeat(rotationMs, "the rotation of CAs", makeRotations({ ...services, authorities }));
  atStop(async () => closing.abort());

  return {
    ...services,
    authorities,
    views: makeViews(system.now),
    renderings: makeRenderings(services.meters, services.log),
    checkins: makeCheckins({ ...services, authorities, live, renewals, reports }),
    renewals,
    reports,
    probes: makeProbes(system.now),
  };
}
