// What every request that shows flows needs: the scope for flows, and an event that tells who was shown which.

import { flowsApi } from "../../api/flows.ts";
import { actorOf, record } from "../audit/record.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Store } from "../options.ts";
import { requireScope } from "../users/token-scopes.ts";

/**
 * Runs the work of a request that shows flows: requires the scope for flows, and records an event with the details `after`. Without
 * `after`, no flow was shown, and no event is recorded.
 */
export async function withFlows<T>(
  { db, system }: Store,
  call: OrganizationCall,
  work: () => Promise<{ body: T; after: Record<string, unknown> | undefined }>,
): Promise<{ body: T }> {
  const { org, caller, address } = call;
  // Endpoints with another scope show flows as well: they need the scope of GET flows/, too.
  if (caller.kind === "service") requireScope(caller, flowsApi.list, address);
  const { body, after } = await work();
  if (after === undefined) return { body };
  await db.writeFor({ org: org.id }, (tx) =>
    record(tx, {
      orgId: org.id,
      at: system.now(),
      type: "flows.exported",
      actor: actorOf(call),
      subject: `organization/${org.slug}`,
      after,
    }),
  );
  return { body };
}
