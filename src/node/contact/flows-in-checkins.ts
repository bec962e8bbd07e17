// Sends the flows that the edge collected (edge/collect-flows.ts) with check-ins, until the control plane has them.

import type { FlowsReport } from "../../protocol/traffic-reports.ts";
import type { System } from "../../base/system.ts";
import type { Organization } from "../files/organizations.ts";
import { areFlowsReported, noteTaken, waitingFlows } from "../files/flows-state.ts";

/** The waiting report, with its times as seconds ago. Undefined: nothing waits, or root has not permitted reports of flows. */
export function flowsReport(
  organization: Organization,
  system: Pick<System, "now" | "bootTime">,
): FlowsReport | undefined {
  const waiting = areFlowsReported(organization) ? waitingFlows(organization.directory) : undefined;
  if (waiting === undefined) return undefined;
  // `boot`: the beginning of that boot's id. `from` and `to`: seconds since that boot. `at`: the clock at `to`, in ms.
  const { boot, generation: _, at, from, to, ...report } = waiting;
  const { id = "", ms } = system.bootTime();
  // After a reboot only the machine's clock knows how long ago the report was made.
  const toAgeS = id.startsWith(boot) ? ms / 1000 - to : (system.now() - at) / 1000;
  return { ...report, from: reportedAge(toAgeS + to - from), to: reportedAge(toAgeS) };
}

/** A year: the longest age that the control plane takes. */
const longestS = 31_536_000;

const reportedAge = (ageS: number) => Math.min(Math.max(0, Math.round(ageS)), longestS);

/** `how`: the control plane's answer. Without one, and after `later`, the report is sent again. Does not throw. */
export function noteAnswer(
  { directory }: Pick<Organization, "directory">,
  { id }: FlowsReport,
  how: string | undefined,
): void {
  if (how === undefined || how === "later") return;
  try {
    noteTaken(directory, id);
  } catch {
    // The control plane knows the report by its id.
  }
}
