// Sends the flows that the edge collected (edge/collect-flows.ts) with check-ins, until the control plane has them.

import type { FlowsReport } from "../../protocol/traffic-reports.ts";
import type { System } from "../../base/system.ts";
import type { Organization } from "../files/organizations.ts";
import { areFlowsReported, noteTaken, waitingFlows } from "../files/flows-state.ts";

/** Undefined: nothing waits, or root does not let it. */
export function flowsReport(
  organization: Organization,
  system: Pick<System, "now" | "bootTime">,
): FlowsReport | undefined {
  const waiting = areFlowsReported(organization) ? waitingFlows(organization.directory) : undefined;
  if (waiting === undefined) return undefined;
  const { boot, generation: _, at, from, to, ...report } = waiting;
  const { id = "", ms } = system.bootTime();
  // Since another boot, only the machine's clock knows how long that is ago.
  const age = id.startsWith(boot) ? ms / 1000 - to : (system.now() - at) / 1000;
  const ages = [age + to - from, age].map((each) => Math.min(Math.max(0, Math.round(each)), longestS));
  return { ...report, from: ages[0] ?? 0, to: ages[1] ?? 0 };
}

const longestS = 31_536_000;

/** Without an answer, and after `later`, the report is sent again. Does not throw. */
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
