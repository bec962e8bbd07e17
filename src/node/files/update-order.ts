// update-order.json: the last update that the control plane ordered, and how far it is. In the organization's directory, so that
// the process that checks in next knows it. The program that carries it out (node/update/carry-out.ts) goes on from here after a
// kill.

import { existsSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import {
  MayUpdate,
  settingsWord,
  UpdateOrder,
  UpdateReport,
  updatable,
} from "../../protocol/updates/order.ts";
import { isPrivileged } from "../../platform/privilege.ts";
import { readValidJson } from "./json-file.ts";
import { permissionsOrNone, updatingBeside } from "./permissions.ts";

const version = v.nullable(boundedText(64));
const addresses = v.pipe(v.array(boundedText(64)), v.maxLength(10_000));
export const UpdateState = v.object({
  order: UpdateOrder,
  /** taken: nothing is known to have changed yet. applied: the new versions run, and are watched. done: finished. */
  step: v.picklist(["taken", "applied", "done"]),
  /** The versions that ran before; null: none. */
  former: v.optional(v.object({ agent: version, engine: version })),
  /** When the node began to change (ms since 1970), and to what: only that is taken back. */
  change: v.optional(v.object({ at: v.number(), agent: v.optional(version), engine: v.optional(version) })),
  /** The settings of this order are chosen: whatever writes config.yml takes them. */
  settings: v.optional(v.boolean()),
  /** The last report, if the control plane was away for too long to get it. */
  unsaid: v.optional(v.omit(UpdateReport, ["order"])),
  /** Probes that were answered before the update: family of the address, size and peer, such as `4 small 10.77.0.1`. */
  answered: v.optional(v.pipe(v.array(boundedText(64)), v.maxLength(200))),
  /**
   * How the node reached its peers before the update: `Before` of compare-before.ts. Addresses of peers, the mean share of lost
   * probes (0 to 1), how many peers had a tunnel, and the engine's memory in kilobytes.
   */
  before: v.optional(
    v.object({
      direct: addresses,
      loss: v.pipe(v.number(), v.minValue(0)),
      failed: addresses,
      tunnels: v.number(),
      memory: v.optional(v.number()),
    }),
  ),
});
export type UpdateState = v.InferOutput<typeof UpdateState>;

export const updateOrderPath = (directory: string): string => join(directory, "update-order.json");
const seenPath = (directory: string): string => join(directory, "update-seen");

export function readUpdateState(directory: string): UpdateState | undefined {
  return existsSync(updateOrderPath(directory))
    ? readValidJson(updateOrderPath(directory), UpdateState)
    : undefined;
}

export function writeUpdateState(directory: string, state: UpdateState): void {
  writeFileAtomic(updateOrderPath(directory), `${JSON.stringify(state)}\n`, 0o644);
}

/**
 * The number of the order whose settings of a rollout are chosen; undefined: none are. Orders of updates have even numbers, and an
 * order to go back has the odd one after it.
 */
export function chosenSettings(directory: string): number | undefined {
  const state = readUpdateState(directory);
  if (state?.settings !== true) return undefined;
  const { order: number } = state.order;
  return number - (number % 2);
}

/**
 * What a check-in says about updates: what may be updated, and the last order. Undefined if nothing may. Trying settings needs no
 * permission, but a program with the rights of root.
 */
export function mayUpdateOf(directory: string): MayUpdate | undefined {
  const may = [...permittedUpdates(directory), ...(isPrivileged() ? [settingsWord] : [])];
  if (may.length === 0) return undefined;
  const order = readUpdateState(directory)?.order.order ?? 0;
  // Minutes east of UTC.
  return { may, order, zone: -new Date().getTimezoneOffset() };
}

/** What the control plane may update. Nothing if two organizations of the machine may: former versions did not refuse that. */
export function permittedUpdates(directory: string): readonly string[] {
  const { updates } = permissionsOrNone(directory);
  const place = { configRoot: dirname(directory), slug: basename(directory) };
  if (updates.length === 0 || updatingBeside(place) !== undefined) return [];
  // An entry is `agent`, `engine` or `engine=URL`.
  return updatable.filter((what) => updates.some((entry) => entry.split("=")[0] === what));
}

/** The mirror from which root lets engines come: the URL of `engine=URL`. */
export function engineMirror(directory: string): string | undefined {
  const entry = permissionsOrNone(directory).updates.find((text) => text.startsWith("engine="));
  return entry?.slice("engine=".length);
}

/**
 * After each check-in during an update: notes the version of the program that checked in (`agent`). By this, the watch of the
 * update (node/update/watch-update.ts) learns that the new version has reached the control plane.
 */
export function noteSeen(directory: string, agent: string): void {
  const state = readUpdateState(directory);
  if (state === undefined || state.step === "done") return;
  const newAgent = state.order.agent;
  // In server mode the replaced program goes on for up to a minute: it must not hide that the new one was here.
  const wasNewSeen = newAgent !== undefined && lastSeen(directory)?.agent === newAgent;
  if (wasNewSeen && agent !== newAgent) return;
  writeFileAtomic(seenPath(directory), agent, 0o644);
}

/** Before a change: the note may be that of an earlier update to the same version. */
export const forgetSeen = (directory: string): void => rmSync(seenPath(directory), { force: true });

/** The version of the agent that checked in last during an update, and when (ms since 1970). */
export function lastSeen(directory: string): { agent: string; at: number } | undefined {
  const agent = readTextIfThere(seenPath(directory));
  const at = statSync(seenPath(directory), { throwIfNoEntry: false })?.mtimeMs;
  return agent === undefined || at === undefined ? undefined : { agent, at };
}
