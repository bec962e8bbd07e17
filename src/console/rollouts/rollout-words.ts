// Updates in rings, in words. Pure.

import type { SentOf } from "../../api/endpoint.ts";
import type { rolloutsApi } from "../../api/rollouts.ts";
import type { StateName } from "../nodes/states.ts";

export type Shown = SentOf<typeof rolloutsApi.retrieve>;
type Ring = Shown["rings"][number];

export const isOpen = ({ ended_at }: Pick<Shown, "ended_at">): boolean => ended_at === null;

const named = (what: string, version: string | null) => (version === null ? [] : [`${what} ${version}`]);

export const versionsOf = ({
  agent,
  engine,
  settings,
}: Pick<Shown, "agent" | "engine" | "settings">): string =>
  [...named("agent", agent), ...named("engine", engine)].join(", ") ||
  `settings ${Object.keys(settings ?? {}).join(", ") || "as usual"}`;

/** A rollout that stopped and has ended needs no action: its nodes run their former version again. */
export function stateOf({
  state,
  ring,
  rings,
}: Pick<Shown, "state" | "ring" | "rings">): [StateName, string] {
  if (state === "running") return ["waiting", `ring ${ring} of ${rings.length}`];
  if (state === "returning") return ["attention", `ring ${ring} goes back`];
  if (state === "paused") return ["waiting", "paused"];
  return state === "passed" ? ["online", "finished"] : ["revoked", "stopped"];
}

export const sizeOf = ({ waiting, updating, passed, left_out }: Ring): number =>
  waiting + updating + passed + left_out;

/** "3 of 12": the nodes that have the new version, and all. */
export function nodesOf({ rings }: Pick<Shown, "rings">): string {
  const sum = (count: (ring: Ring) => number) => rings.reduce((all, ring) => all + count(ring), 0);
  return `${sum(({ passed }) => passed)} of ${sum(sizeOf)}`;
}

/** "3 updating, 1 left out", of the ring with this number (from 1). After an abort or a failure, nodes go back instead. */
export function ringWords(
  ring: Ring,
  number: number,
  { state, ring: present }: Pick<Shown, "state" | "ring">,
): string {
  const { waiting, updating, left_out: leftOut } = ring;
  const isBack = state === "returning" || state === "stopped";
  const parts = [
    updating === 0 ? "" : `${updating} ${isBack ? "going back" : "updating"}`,
    waiting === 0 || isBack || number > present ? "" : `${waiting} waiting`,
    leftOut === 0 ? "" : `${leftOut} left out`,
  ].filter((part) => part !== "");
  if (parts.length > 0) return parts.join(", ");
  if (waiting === 0) return "all updated";
  return isBack ? "not updated" : "comes later";
}

/** The drawn state. One that is not in the table is between two states, or comes from a newer control plane. */
const memberSigns: Readonly<Record<string, StateName>> = {
  passed: "online",
  failed: "attention",
  returned: "revoked",
  refused: "revoked",
  skipped: "away",
};

/** As the command line says it. */
export const memberState = (state: string): [StateName, string] => [memberSigns[state] ?? "waiting", state];
