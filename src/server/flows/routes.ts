// Handlers of src/api/flows.ts.

import type { flowsApi } from "../../api/paths.ts";
import { actorOf, record } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import { ownerOf } from "../paths/routes.ts";
import { inTurnOf } from "../pipeline.ts";
import type { Services } from "../services.ts";
import { queryOne } from "../store/table.ts";
import { organizations } from "../store/tables/organizations.ts";
import { listFlows } from "./list.ts";
import { proposePolicy } from "./propose.ts";

const wantedPick = organizations.pick("flows");

export const flowHandlers = (services: Services): Handlers<typeof flowsApi> => ({
  async list(call, query) {
    const { db, system } = services;
    const { org } = call;
    const shown = { isWanted: await isWanted(services, org.id), ownerId: ownerOf(call), now: system.now() };
    const body = await inTurnOf(services, call, () => listFlows(db, org.id, query, shown));
    const { since, flows } = body;
    await db.writeFor({ org: org.id }, (tx) =>
      record(tx, {
        orgId: org.id,
        at: system.now(),
        type: "flows.exported",
        actor: actorOf(call),
        subject: `organization/${org.slug}`,
        after: { since, from: query.from ?? null, to: query.to ?? null, rows: flows.length },
      }),
    );
    return { body };
  },
  async propose(call, { since }) {
    const { db, system, planning } = services;
    const work = () => proposePolicy(db, call.org.id, since === undefined ? {} : { since }, system.now());
    return { body: await inTurnOf({ heavyWork: planning }, call, work) };
  },
});

async function isWanted({ db }: Services, orgId: number): Promise<boolean> {
  const sql = "SELECT flows FROM organizations WHERE id = $1";
  return (await queryOne(db, wantedPick, sql, [orgId]))?.flows === true;
}
