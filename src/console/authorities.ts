// The CAs of an organization and their rotation, as GET ca/ shows them.

import type { Authorities } from "../api/authorities.ts";
import type { Event as AuditEvent } from "../api/events.ts";

export type Authority = Authorities["cas"][number];
export type Rotation = Authorities["rotation"];

const phases: Readonly<Record<Rotation["phase"], string>> = {
  none: "No rotation is running.",
  trust: "Step 1 of 3: the machines learn to trust the new CAs.",
  issue: "Step 2 of 3: the machines get certificates of the new CAs.",
  retire: "Step 3 of 3: the machines stop trusting the former CAs.",
};
/** A rollback begins with the step that the rotation has reached, so its steps have no numbers. */
const phasesBack: typeof phases = {
  none: phases.none,
  trust: "The rotation is being rolled back: the machines learn to trust the CAs from before it again.",
  issue: "The rotation is being rolled back: the machines get certificates of the CAs from before it again.",
  retire: "The rotation is being rolled back: the machines stop trusting its new CAs.",
};

/** A stolen key works as long as machines trust its CA, and a rollback keeps the former CAs trusted. */
export const rollbackWarning =
  "Do not roll back if a key of the CAs from before may be known to others: machines would go on to trust exactly that key. Finish the rotation instead. This hurries it:";

export const stepOf = ({ phase, rolling_back }: Pick<Rotation, "phase" | "rolling_back">): string =>
  (rolling_back ? phasesBack : phases)[phase];

/** A former CA that is newer than the active one was withdrawn by a rollback, maybe before it signed anything. */
export const caWord = ({ state, kind, not_before }: Authority, all: readonly Authority[]): string =>
  state === "former" &&
  all.some((each) => each.state === "active" && each.kind === kind && each.not_before < not_before)
    ? "withdrawn"
    : state;

const steerings: readonly unknown[] = ["start", "rollback"];
/** The latest start or rollback. `events`: the newest first. */
export const lastSteering = (events: readonly AuditEvent[]): AuditEvent | undefined =>
  events.find(({ type, after }) => type === "ca.rotated" && steerings.includes(after?.["action"]));

/** Whether machines trust the CA. `trusted` is what they are told; some may not have the news yet. */
export function trustOf({ state, trusted }: Authority, { phase, waiting_for }: Rotation): string {
  const have = `${waiting_for.length} ${waiting_for.length === 1 ? "has" : "have"} yet to confirm`;
  if (!trusted) return phase === "retire" && waiting_for.length > 0 ? `ending: ${have} it` : "no";
  if (state !== "next" || phase !== "trust" || waiting_for.length === 0) return "yes";
  return `not all: ${have} it`;
}
