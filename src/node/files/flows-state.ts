// Reports of flows, in files between the part that collects them (edge/collect-flows.ts) and the check-ins that send them
// (contact/flows-in-checkins.ts). flows.json is written by the first, flows-taken.json by the second.

import { rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { writeFileAtomic } from "../../base/files.ts";
import { boundedText, foreignText } from "../../base/text.ts";
import { whyNoTables } from "../../platform/nftables.ts";
import { makeSocketDirectory, socketDirectory } from "../../platform/systemd/control-socket.ts";
import { FlowsReport } from "../../protocol/traffic-reports.ts";
import type { Organization } from "./organizations.ts";
import { readValidJson } from "./json-file.ts";
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

const pathIn = (directory: string, name: string) => join(directory, socketDirectory, name);
const collectedName = "flows.json";
const takenName = "flows-taken.json";
const faultName = "flows-fault.json";

export const readCollected = (directory: string) =>
  readValidJson(pathIn(directory, collectedName), Collected);
const readTaken = (directory: string) => readValidJson(pathIn(directory, takenName), Taken);

function write(directory: string, name: string, value: object, mode: number): void {
  makeSocketDirectory(directory);
  writeFileAtomic(pathIn(directory, name), `${JSON.stringify(value)}\n`, mode);
}

/** Readable for root alone: it shows which peers this node talks to. */
export const writeCollected = (directory: string, collected: Collected) =>
  write(directory, collectedName, collected, 0o600);
export const noteTaken = (directory: string, id: string) => write(directory, takenName, { id }, 0o600);

/** The report that waits for a check-in. */
export function waitingFlows(directory: string): Collected | undefined {
  const collected = readCollected(directory);
  return collected === undefined || collected.id === readTaken(directory)?.id ? undefined : collected;
}

/** Why flows cannot be counted; undefined: they can. `status` of users reads it. */
export function writeFlowsFault(directory: string, reason: string | undefined): void {
  if (reason !== undefined) return write(directory, faultName, { reason: reason.slice(0, 400) }, 0o644);
  rmSync(pathIn(directory, faultName), { force: true });
}

export function removeFlowsState(directory: string): void {
  for (const name of [collectedName, takenName, faultName]) rmSync(pathIn(directory, name), { force: true });
}

type Place = Pick<Organization, "directory" | "config">;

/** Whether the organization asks for reports of flows, and root of this machine permits them. */
export const areFlowsReported = ({ directory, config }: Place): boolean =>
  config.flows === true && permissionsOrNone(directory).no_flows !== true;

/** What `status` shows of them; undefined: the organization asks for none. */
export function flowsShown(place: Place): FlowsShown | undefined {
  if (place.config.flows !== true) return undefined;
  if (!areFlowsReported(place)) return { state: "off" };
  const reason = whyNoTables() ?? readValidJson(pathIn(place.directory, faultName), Fault)?.reason;
  return reason === undefined ? { state: "reported" } : { state: "failed", reason };
}

/** `off`: root of this machine does not permit them. */
export type FlowsShown = { state: "reported" | "off" } | { state: "failed"; reason: string };
