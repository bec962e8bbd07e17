// Handlers of src/api/flows.ts.

import type { flowsApi } from "../../api/flows.ts";
import type { Handlers } from "../http/attach.ts";
import { ownerOf } from "../paths/routes.ts";
import { inTurnOf } from "../pipeline.ts";
import type { Services } from "../services.ts";
import { listFlows } from "./list-flows.ts";
import { proposePolicy } from "./propose-policy.ts";
import { withFlows } from "./with-flows.ts";

/** `after`: what the event about this request says (with-flows.ts). */
export const flowHandlers = (services: Services): Handlers<typeof flowsApi> => ({
  list(call, query) {
    const { db, system } = services;
    return withFlows(services, call, async () => {
      const viewer = { ownerId: ownerOf(call), now: system.now() };
      const body = await inTurnOf(services, call, () => listFlows(db, call.org.id, query, viewer));
      const { since, flows } = body;
      return { body, after: { since, from: query.from ?? null, to: query.to ?? null, rows: flows.length } };
    });
  },
  propose(call, query) {
    const { db, system, planning } = services;
    return withFlows(services, call, async () => {
      // In the turns of plans: it takes long, and `heavyWork` goes on beside it.
      const work = () => proposePolicy(db, call.org.id, query, system.now());
      const body = await inTurnOf({ heavyWork: planning }, call, work);
      return { body, after: { since: body.since, from: null, to: null, rows: body.changes.length } };
    });
  },
});
