// The update that the control plane asked for last, and how far it is: in the organization's directory, so that whoever
// checks in next knows it. The program that carries it out (node/update/carry-out.ts) goes on from here after a kill.

import { existsSync, rmSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
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

const version = v.nullable(v.pipe(v.string(), v.maxLength(64)));
const addresses = v.pipe(v.array(v.pipe(v.string(), v.maxLength(64))), v.maxLength(10_000));
export const UpdateState = v.object({
  order: UpdateOrder,
  /** taken: nothing is known to have changed. applied: the versions run, and are watched. done: nothing is left to do. */
  step: v.picklist(["taken", "applied", "done"]),
  /** What ran before. */
  former: v.optional(v.object({ agent: version, engine: version })),
  /** When the node began to change, and to what: only that is taken back. */
  change: v.optional(v.object({ at: v.number(), agent: v.optional(version), engine: v.optional(version) })),
  /** The settings of this order are chosen: whatever writes config.yml takes them. */
  settings: v.optional(v.boolean()),
  /** The last report, which the control plane has not taken yet: it may be away for longer than this was tried. */
  unsaid: v.optional(v.omit(UpdateReport, ["order"])),
  /** What answered before: `4 small 10.77.0.1`. */
  answered: v.optional(v.pipe(v.array(v.pipe(v.string(), v.maxLength(64))), v.maxLength(200))),
  /** How it reached its peers before: compare-before.ts. */
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

/** The number of the order whose settings are chosen. An order to go back has the next number. */
export function chosenSettings(directory: string): number | undefined {
  const { settings = false, order: { order } = { order: 0 } } = readUpdateState(directory) ?? {};
  return settings ? order - (order % 2) : undefined;
}

/** What a check-in says; undefined if this program may change nothing here. */
export function mayUpdateOf(directory: string): MayUpdate | undefined {
  const may = [...permittedUpdates(directory), ...(isPrivileged() ? [settingsWord] : [])];
  if (may.length === 0) return undefined;
  const order = readUpdateState(directory)?.order.order ?? 0;
  return { may, order, zone: -new Date().getTimezoneOffset() };
}

/** Root permits it to one organization of the machine; to none, if two have it from before this was refused. */
export function permittedUpdates(directory: string): readonly string[] {
  const { updates } = permissionsOrNone(directory);
  const others = { configRoot: dirname(directory), slug: basename(directory) };
  if (updates.length === 0 || updatingBeside(others) !== undefined) return [];
  return updatable.filter((each) => updates.some((entry) => entry.split("=")[0] === each));
}

/** Where root says that engines come from: `engine=URL`. */
export function engineMirror(directory: string): string | undefined {
  const entry = permissionsOrNone(directory).updates.find((each) => each.startsWith("engine="));
  return entry?.slice("engine=".length);
}

/**
 * Written after each check-in during an update, by the program that checked in. A new version checks in at its start, which is
 * before the guard has confirmed it.
 */
export function noteSeen(directory: string, agent: string): void {
  const { order, step = "done" }: Partial<UpdateState> = readUpdateState(directory) ?? {};
  // In server mode the replaced program goes on for up to a minute: it must not hide that the new one was here.
  const isReplaced = agent !== order?.agent && lastSeen(directory)?.agent === order?.agent;
  if (step !== "done" && (order?.agent === undefined || !isReplaced))
    writeFileAtomic(seenPath(directory), agent, 0o644);
}

/** Before a change: an earlier update may have tried the same version. */
export const forgetSeen = (directory: string): void => rmSync(seenPath(directory), { force: true });

/** The version of the agent that checked in last during an update, and when (ms since 1970). */
export function lastSeen(directory: string): { agent: string; at: number } | undefined {
  const agent = readTextIfThere(seenPath(directory));
  const at = statSync(seenPath(directory), { throwIfNoEntry: false })?.mtimeMs;
  return agent === undefined || at === undefined ? undefined : { agent, at };
}
