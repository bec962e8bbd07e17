// The doctor's check of the daemon, and the report that its checks of organizations use.

import { hasCode } from "../../base/errors.ts";
import {
  asRoot,
  fail,
  ok,
  runCheck,
  skipped,
  warn,
  type Check,
  type Finding,
} from "../../node/doctor/check.ts";
import type { OrganizationSettings } from "../../node/contact/organization-deps.ts";
import { daemonRestartHint, daemonStartHint } from "../../platform/service-manager.ts";
import type { System } from "../../base/system.ts";
import type { LocalAddress } from "../ipc/transport.ts";
import { probeNow } from "./probe-now.ts";
import { isDaemonMissed, readStatus, type StatusReport } from "./status-report.ts";

type Places = OrganizationSettings & { address: LocalAddress; stateDb: string };

/** The status of all organizations, or of one, probed now. Undefined if this user may not ask the daemon. */
export async function observe(
  places: Places,
  system: System,
  slug?: string,
): Promise<StatusReport | undefined> {
  try {
    const probe = (report: StatusReport) => probeNow(report, places, system);
    return await readStatus(places, { slug, probe }, system);
  } catch (error) {
    if (hasCode(error, "os_permission")) return undefined;
    throw error;
  }
}

export async function examineDaemon(
  slugs: readonly string[],
  report: StatusReport | undefined,
  { isRoot }: Pick<System, "isRoot">,
): Promise<Check[]> {
  return [await runCheck({ id: "daemon" }, () => daemonFinding(slugs, report, isRoot))];
}

function daemonFinding(slugs: readonly string[], report: StatusReport | undefined, isRoot: boolean): Finding {
  if (slugs.length === 0) return skipped("no organization is registered");
  if (report === undefined) return skipped(`this user may not ask it: ${asRoot}`);
  if (report.daemon.running) return ok(`it answers, process ${report.daemon.pid ?? "unknown"}`);
  if (!isDaemonMissed(report)) return ok("no organization needs it: all are in server mode");
  // A team is an organization, in the protocol of the daemon. `wanted` is the desired state.
  const desktop = report.teams.filter(({ mode }) => mode === "desktop");
  const up = desktop.filter(({ wanted }) => wanted === "up").map(({ team }) => team);
  if (report.daemon.silent === true)
    return fail("it listens but does not answer", daemonRestartHint(report.daemon.pid));
  const start = daemonStartHint();
  if (up.length > 0) return fail(`the daemon does not run, but ${up.join(", ")} should be up`, start);
  const all = desktop.map(({ team }) => team).join(", ");
  if (isRoot) return ok(`it does not run, and ${all} should not be up`);
  return warn(`the daemon does not run; only root can see whether ${all} should be up`, start);
}
