// Work of routes that waits for its turn: on whose behalf, and with which rights once the turn has come.

import { actorOf, principal } from "../audit/record.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Testing } from "../policy/edits.ts";
import { clientLeft, promptMs } from "../pipeline.ts";
import type { Services } from "../services.ts";

/** Does the work in turn, unless the client left or lost its rights meanwhile. */
export function inTurnOf<T>(
  { heavyWork }: Pick<Services, "heavyWork">,
  call: OrganizationCall,
  work: () => Promise<T>,
): Promise<T> {
  const since = performance.now();
  return heavyWork({ owner: call.org.id, caller: principal(actorOf(call)) }, async () => {
    if (call.request.signal.aborted) throw clientLeft();
    if (performance.now() - since > promptMs) await call.admitAgain();
    return work();
  });
}

/** Tests of the policy on behalf of this request. */
export function testingOf({ testing }: Pick<Services, "testing">, call: OrganizationCall): Testing {
  return {
    inTurn: (work) => inTurnOf({ heavyWork: testing }, call, work),
    admitAgain: () => call.admitAgain(),
  };
}
