// The wire of updates in rings: what the control plane asks of a node, and what the node says of it. Both sides use it.

import * as v from "valibot";
import { foreignSentence, foreignText } from "../../base/text.ts";
import { isVersion } from "./version.ts";
import { wholeNumber, wholeWithin, listOf, jsonTextOf } from "../values.ts";

/** What root of a machine may let a control plane update. */
export const updatable = ["agent", "engine"] as const;

/** Of the agent or the engine. */
export const UpdateVersion = v.pipe(foreignText(20), v.check(isVersion, "Enter a version such as 1.2.3."));

/**
 * In `MayUpdate`: the node can try settings of the engine. This needs no permission of root, since an organization may change
 * settings at any time.
 */
export const settingsWord = "settings";

/** In each check-in: what root of the machine permits, and `settings`. A newer node may name more. */
export const MayUpdate = v.object({
  may: listOf(foreignText(16), 8),
  /** The number of the last order that it took; 0: none. */
  order: wholeNumber,
  /** Its clock's distance from UTC, in minutes. */
  zone: wholeWithin(-900, 900),
});
export type MayUpdate = v.InferOutput<typeof MayUpdate>;

/** An order. Its number rises; a node that has taken it does not take it again. */
export const UpdateOrder = v.object({
  order: wholeNumber,
  /** Go back to what was before the order `order - 1`. */
  back: v.optional(v.boolean()),
  agent: v.optional(UpdateVersion),
  engine: v.optional(UpdateVersion),
  /** Use the settings that config.yml has for this order (sent-settings.ts). */
  settings: v.optional(v.boolean()),
  /** How long the node watches itself, in seconds. */
  watch_s: wholeWithin(1, 86_400),
});
export type UpdateOrder = v.InferOutput<typeof UpdateOrder>;

const StoredOrder = jsonTextOf(UpdateOrder);

/** Reads an order from a column. Undefined: there is none, or another version wrote it. */
export function readOrder(text: string | null): UpdateOrder | undefined {
  const parsed = v.safeParse(StoredOrder, text);
  return parsed.success ? parsed.output : undefined;
}

/**
 * `state`: taken: it begins. applied: it runs the versions, and watches itself. passed: it has watched for long enough.
 * failed: it does not work, and the former versions are back. returned: it went back by an order. refused: it
 * changes nothing, for example because root withdrew the permission. A newer node may say another word.
 */
export const UpdateReport = v.object({
  order: wholeNumber,
  state: foreignText(16),
  /** What runs now. */
  agent: v.optional(foreignText(64)),
  engine: v.optional(foreignText(64)),
  /** Why it failed, or was refused. */
  reason: v.optional(foreignSentence(500)),
  /** The probe that failed, such as "large packets to 10.77.0.1". */
  probe: v.optional(foreignSentence(200)),
  /** The line of a log that says most about it. */
  log: v.optional(foreignSentence(500)),
  /** How many peers answered. */
  answered: v.optional(wholeWithin(0, 1000)),
  /** Overlay addresses of peers that answered before, and do not now. */
  lost: v.optional(listOf(foreignText(45), 32)),
});
export type UpdateReport = v.InferOutput<typeof UpdateReport>;

/** The probes that look only at a program of the node. The network can fail all others. */
export const programProbes = {
  engine: "process of the engine",
  memory: "memory of the engine",
  agent: "process of the agent",
  checkin: "check-in of the agent",
} as const;

/** Whether the network can have failed this probe. `probe`: of a report; "" if the change itself failed, and no probe. */
export const mayBeOfNetwork = (probe: string): boolean =>
  probe !== "" && !Object.values<string>(programProbes).includes(probe);
