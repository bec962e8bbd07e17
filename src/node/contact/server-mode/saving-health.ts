// What check-auth does around its work in server mode, where no daemon knows the health of an organization.

import { defer } from "../../../base/defer.ts";
import type { Organization } from "../../files/organizations.ts";
import { healthRecord, type Watch, type Watched } from "./health-record.ts";

/**
 * Does the work of check-auth, and stores what `status` shows. `isLong`: there is time to probe, so it watches and heals the
 * organization meanwhile. In desktop mode the daemon does that, and without root nothing is stored: then it only does the work.
 */
export async function savingHealth<T>(
  organization: Organization,
  { isLong, ...watched }: Watched & { isLong: boolean },
  work: (watch: Watch) => Promise<T>,
): Promise<T> {
  if (organization.config.mode !== "server" || !watched.system.isRoot) return work({});
  const record = healthRecord(organization, watched);
  if (isLong) {
    const { watchHealth } = await import("./watch-health.ts");
    return watchHealth(organization, watched, record, work);
  }
  // Without probes, the health that the run before has found stays, with its time.
  using _ = defer(() => record.save(() => record.writeFormer()));
  return await work({ onCheckin: record.onCheckin });
}
