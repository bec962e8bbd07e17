// The model of docs/machines.md: what a user wants is changed by users only, what an order says by orders only, and the
// engine runs exactly if it is wanted and not revoked. Histories of commands, orders and restarts are compared with it.

import { makeRandom } from "./random.ts";

export type Model = {
  wanted: "up" | "down";
  /** What the control plane has decided last. */
  isRevoked: boolean;
  /** What this machine knows of that: the last order that it has carried out. */
  knowsRevoked: boolean;
};

export const registered: Model = { wanted: "up", isRevoked: false, knowsRevoked: false };

export const shouldRun = ({ wanted, knowsRevoked }: Model): boolean => wanted === "up" && !knowsRevoked;

/** The state that `agent status` shows when everything is at rest. */
export function shownState(model: Model): "running" | "stopped" | "revoked" {
  if (model.knowsRevoked) return "revoked";
  return model.wanted === "up" ? "running" : "stopped";
}

/** Of each seed another history; the same seed gives the same one. */
export function history<T>(steps: readonly T[], length: number, seed: number): T[] {
  const random = makeRandom(seed);
  return Array.from({ length }, () => steps[Math.floor(random() * steps.length)]).filter(
    (each) => each !== undefined,
  );
}
