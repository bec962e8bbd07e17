// The CAs of an organization and their rotation, as GET ca/ shows them.

import type { Authorities } from "../../api/certificates/authorities.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { nodeLifetimeMs } from "../../api/values.ts";
import type { LineSpan } from "../ui/figures/line-span.ts";

export type Authority = Authorities["cas"][number];
export type Rotation = Authorities["rotation"];

const phases: Readonly<Record<Rotation["phase"], string>> = {
  none: "No rotation is running.",
  trust: "Step 1 of 3: the nodes learn to trust the new CAs.",
  issue: "Step 2 of 3: the nodes get certificates of the new CAs.",
  retire: "Step 3 of 3: the nodes stop trusting the former CAs.",
};
/** A rollback begins with the step that the rotation has reached, so its steps have no numbers. */
const phasesBack: typeof phases = {
  none: phases.none,
  trust: "The rotation is being rolled back: the nodes learn to trust the CAs from before it again.",
  issue: "The rotation is being rolled back: the nodes get certificates of the CAs from before it again.",
  retire: "The rotation is being rolled back: the nodes stop trusting its new CAs.",
};

/** A stolen key works as long as nodes trust its CA, and a rollback keeps the former CAs trusted. */
export const rollbackWarning =
  "Do not roll back if a key of the CAs from before may be known to others: nodes would go on to trust it. Finish the rotation instead. This hurries it:";

export const stepOf = ({ phase, rolling_back }: Pick<Rotation, "phase" | "rolling_back">): string =>
  (rolling_back ? phasesBack : phases)[phase];

/** A former CA that is newer than the active one was withdrawn by a rollback, maybe before it signed anything. */
export const caWord = ({ state, kind, not_before }: Authority, all: readonly Authority[]): string =>
  state === "former" &&
  all.some((each) => each.state === "active" && each.kind === kind && each.not_before < not_before)
    ? "withdrawn"
    : state;

/**
 * When the newest CAs begin, those of the present rotation, in ms: some minutes before its start, because CAs are back-dated. Signers
 * may add an offline CA at any time: it says nothing about the rotation.
 */
export const rotationBegins = (cas: readonly Pick<Authority, "offline" | "not_before">[]): number =>
  Math.max(...cas.flatMap((ca) => (ca.offline ? [] : [Date.parse(ca.not_before)])));

const steerings: readonly unknown[] = ["start", "rollback"];
/** The latest start or rollback. `events`: the newest first. */
export const lastSteering = (events: readonly AuditEvent[]): AuditEvent | undefined =>
  events.find(({ type, after }) => type === "ca.rotated" && steerings.includes(after?.["action"]));

/** Whether nodes trust the CA. `trusted` is what they are told; some may not have the news yet. */
export function trustOf({ state, trusted }: Authority, { phase, waiting_for }: Rotation): string {
  const open = `${waiting_for.length} ${waiting_for.length === 1 ? "has" : "have"} yet to confirm it`;
  if (!trusted) return phase === "retire" && waiting_for.length > 0 ? `ending: ${open}` : "no";
  const isNews = state === "next" && phase === "trust";
  return isNews && waiting_for.length > 0 ? `not all: ${open}` : "yes";
}

/** The CAs as bars of the time line. A former CA is drawn until its successor began, and one that a rollback withdrew until now. `now`: ms. */
export function spansOf(
  kind: Authority["kind"],
  { cas, rotation }: Pick<Authorities, "cas" | "rotation">,
  now: number,
): LineSpan[] {
  const ofKind = cas.filter((ca) => ca.kind === kind);
  const spans = ofKind.map((ca): LineSpan => {
    const [from, end] = [Date.parse(ca.not_before), Date.parse(ca.not_after)];
    const successors = ofKind.map((each) => Date.parse(each.not_before)).filter((each) => each > from);
    const to = ca.state === "former" ? Math.min(end, now, ...successors) : end;
    return {
      key: ca.fingerprint,
      kind: ca.state,
      from,
      to,
      words: `${caWord(ca, cas)} · ${ca.fingerprint.slice(0, 16)}`,
    };
  });
  const active = spans.find((each) => each.kind === "active");
  if (!rotation.auto || rotation.phase !== "none" || active === undefined) return spans;
  // The control plane rotates the CAs this long before the active ones end.
  const from = active.to - 2 * nodeLifetimeMs;
  return [
    ...spans,
    { key: "planned", kind: "planned", from, to: from + (active.to - active.from), words: "" },
  ];
}

const phaseOrder: readonly Rotation["phase"][] = ["trust", "issue", "retire"];
/** The three steps of a rotation, which are also its progress. */
export function progressOf({ phase }: Pick<Rotation, "phase">): readonly ("done" | "here" | "later")[] {
  const reached = phaseOrder.indexOf(phase);
  return phaseOrder.map((_, step) => {
    if (step === reached) return "here";
    return step < reached ? "done" : "later";
  });
}
