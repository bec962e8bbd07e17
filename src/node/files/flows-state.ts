// Reports of flows, in files between the part that collects them (edge/collect-flows.ts) and the check-ins that send them
// (contact/flows-in-checkins.ts). flows.json is written by the first, flows-taken.json by the second.

import * as v from "valibot";
import { boundedText, foreignText } from "../../base/text.ts";
import { whyNoTables } from "../../platform/nftables.ts";
import { FlowsReport } from "../../protocol/traffic-reports.ts";
import type { Organization } from "./organizations.ts";
import { stateFile } from "./json-file.ts";
import { permissionsOrNone } from "./permissions.ts";

const seconds = v.pipe(v.number(), v.minValue(0));
/** The interval that is being reported, or was reported last. `from`, `to`: seconds after the boot with this id. */
const Collected = v.object({
  ...v.omit(FlowsReport, ["from", "to"]).entries,
  boot: boundedText(64),
  /** The newest generation of the kernel's counters (platform/network/flow-counter.ts) that is in the report. */
  generation: v.pipe(v.number(), v.integer(), v.minValue(0)),
  from: seconds,
  to: seconds,
  /** `to` by the machine's clock, ms: for the time after another boot. */
  at: v.number(),
});
export type Collected = v.InferOutput<typeof Collected>;
/** The report that the control plane has. */
const Taken = v.object({ id: boundedText(32) });
/** Why flows cannot be counted. */
const Fault = v.object({ reason: foreignText(400) });

/** Readable for root alone: it shows which peers this node talks to. */
const collectedFile = stateFile("flows.json", Collected, 0o600);
const takenFile = stateFile("flows-taken.json", Taken, 0o600);
/** `status` of users reads it. */
const faultFile = stateFile("flows-fault.json", Fault, 0o644);

export const { read: readCollected, write: writeCollected } = collectedFile;
export const noteTaken = (directory: string, id: string) => takenFile.write(directory, { id });

/** The report that waits for a check-in. */
export function waitingFlows(directory: string): Collected | undefined {
  const collected = readCollected(directory);
  return collected === undefined || collected.id === takenFile.read(directory)?.id ? undefined : collected;
}

/** Why flows cannot be counted; undefined: they can. */
export function writeFlowsFault(directory: string, reason: string | undefined): void {
  faultFile.write(directory, reason === undefined ? undefined : { reason: reason.slice(0, 400) });
}

export function removeFlowsState(directory: string): void {
  for (const file of [collectedFile, takenFile, faultFile]) file.write(directory, undefined);
}

type Place = Pick<Organization, "directory" | "config">;

/** Whether the organization asks for reports of flows, and root of this machine permits them. */
export const areFlowsReported = ({ directory, config }: Place): boolean =>
  config.flows === true && permissionsOrNone(directory).no_flows !== true;

/** What `status` shows of them; undefined: the organization asks for none. */
export function flowsShown(place: Place): FlowsShown | undefined {
  if (place.config.flows !== true) return undefined;
  if (!areFlowsReported(place)) return { state: "off" };
  const reason = whyNoTables() ?? faultFile.read(place.directory)?.reason;
  return reason === undefined ? { state: "reported" } : { state: "failed", reason };
}

/** `off`: root of this machine does not permit them. */
export type FlowsShown = { state: "reported" | "off" } | { state: "failed"; reason: string };
