// The format of sync.json: how a configuration was received, checked and applied. Each generation has one (generations.ts).

import * as v from "valibot";
import { boundedText } from "../../../base/text.ts";
import { buildInfo } from "../../../build-info.ts";
import { maxEtagLength } from "../../../protocol/download.ts";
import { DataPlane } from "./data-plane.ts";

const time = boundedText(64);
const address = boundedText(64);
const hostName = boundedText(253);
const LeftOutList = v.pipe(
  v.array(
    v.object({
      key: boundedText(1000),
      reason: boundedText(1000),
    }),
  ),
  v.maxLength(10_000),
);
export const SyncState = v.object({
  etag: boundedText(maxEtagLength),
  config_version: v.number(),
  applied_at: time,
  certificate_not_after: v.optional(time),
  /** When certificates or CAs of the overlay last changed; unset if never since the registration. */
  certificates_changed_at: v.optional(time),
  /** By DNS name: the addresses that config.yml has instead (host-names.ts). */
  host_names: v.optional(
    v.pipe(v.record(hostName, v.pipe(v.array(address), v.maxLength(10_000))), v.maxEntries(200_000)),
  ),
  /**
   * A later configuration that the running engine refused (applying/recent-refusal.ts); unset if none was since this one was
   * applied.
   */
  refused: v.optional(
    v.object({
      digest: boundedText(64),
      reason: boundedText(4000),
      at: time,
    }),
  ),
  /** The configuration that is left out as a whole is refused because of overrides.yml; unset: not so, or not known. */
  refused_overrides: v.optional(v.boolean()),
  /** The state of this machine that decided about routes and ports (machine-facts.ts); unset if nothing depended on it. */
  surroundings: v.optional(v.pipe(v.array(address), v.maxLength(10_000))),
  /** The number of the order whose settings of a rollout came with it, and whether config.yml has them; unset: none came. */
  settings: v.optional(v.object({ order: v.number(), used: v.boolean() })),
  /** Names that had no address, so that settings were left out (unresolved-names.ts); unset if there are none. */
  unresolved: v.optional(v.pipe(v.array(hostName), v.maxLength(100))),
  /** Offloads and buffers, as config.yml has them (data-plane.ts); unset before they were first decided. */
  data_plane: v.optional(DataPlane),
  /** `rulesVersion` of the program that checked config.yml. */
  rules: v.optional(v.number()),
  /** The version of that program; unset by earlier programs. */
  checked_by: v.optional(boundedText(64)),
  /** The settings that the check left out. */
  left_out: v.optional(LeftOutList),
  /** The seal that was held when the configuration was examined, and what it would refuse; unset if there is none. */
  seal: v.optional(
    v.object({
      number: v.number(),
      hash: boundedText(64),
      /** Seconds since 1970. */
      made_at: v.number(),
      objections: LeftOutList,
      /** What it objects to is kept out. */
      enforced: v.optional(v.literal(true)),
    }),
  ),
});

export type SyncState = v.InferOutput<typeof SyncState>;
/** Increase with every change of what sent-config.ts leaves out: the configuration in force is then checked again. */
export const rulesVersion = 10;

/**
 * Whether this version of the program has checked config.yml. If another version has run since, it may have followed other rules or
 * damaged the file, which nothing else would notice after a return to this version.
 */
export function isChecked({ rules, checked_by: by }: SyncState): boolean {
  return rules === rulesVersion && by === buildInfo.version;
}
