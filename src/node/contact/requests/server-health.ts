// The health of an organization that no daemon runs, around the work of check-auth.

import { defer } from "../../../base/defer.ts";
import type { Organization } from "../../files/organizations.ts";
import { healthRecord, type Watch, type Watched } from "../health-record.ts";

/**
 * Does the work, and writes down what `status` shows. With `isLong` there is time to probe, so it watches and heals the
 * organization meanwhile. Only in server mode and as root: else the daemon does it.
 */
export async function savingHealth<T>(
  organization: Organization,
  { isLong, ...watched }: Watched & { isLong: boolean },
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  if (organization.config.mode !== "server" || !watched.system.isRoot) return work({});
  const record = healthRecord(organization, watched);
  if (isLong) {
    const { watchHealth } = await import("../server-watch.ts");
    return watchHealth(organization, watched, record, work);
  }
  using _ = defer(() => record.save(() => record.writeFormer()));
  return await work({ onCheckin: record.onCheckin });
}
