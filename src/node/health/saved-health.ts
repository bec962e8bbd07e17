// The health of organizations in server mode, between the runs of check-auth, as `status` shows it to everyone. What the next run
// goes on with is beside it (saved-probes.ts, saved-healing.ts). The files are not in the daemon's run directory, which is removed when
// the daemon stops, and not on a disk, since nothing of them is true after another boot.

import { join, resolve } from "node:path";
import * as v from "valibot";
import { brand, defaultPlaces } from "../../brand.ts";
import { makeDirectory, readTextIfThere, writeFileUntilBoot } from "../../base/files.ts";
import { ConfirmationAnswer } from "../../protocol/confirmation.ts";
import { RelayedAnswer } from "../../protocol/traffic-reports.ts";
import { ownPlatform } from "../../platform/own-directory.ts";
import { allKinds } from "./findings.ts";

export const text = (max: number) => v.pipe(v.string(), v.maxLength(max));
export const count = v.pipe(v.number(), v.integer(), v.minValue(0));

/** A finding names up to 20 peers. */
const longestText = 10_000;

const SavedHealth = v.object({
  written_at: text(64),
  /** When a check last ran. Unset: at `written_at`. */
  run_at: v.optional(text(64)),
  /** When a check-in was last answered. */
  last_checkin_at: v.optional(text(64)),
  /** What that answer said to a relay. */
  relayed: v.optional(RelayedAnswer),
  /** What that answer said about confirming the node, if it did. */
  confirm: v.optional(ConfirmationAnswer),
  health: v.optional(
    v.object({
      verdict: v.picklist(["running", "degraded", "not_probed"]),
      reason: v.exactOptional(text(longestText)),
      lighthouses: v.object({ answering: count, of: count }),
      routes: v.exactOptional(
        v.object({
          answering: count,
          of: count,
          used: v.exactOptional(
            v.pipe(v.array(v.object({ network: text(64), router: text(255) })), v.maxLength(64)),
          ),
        }),
      ),
      tunnels: v.exactOptional(v.object({ direct: count, relayed: count })),
      findings: v.exactOptional(
        v.pipe(
          v.array(
            v.object({
              kind: v.picklist(allKinds),
              light: v.picklist(["degraded", "unknown", "note"]),
              what: text(longestText),
              cure: text(longestText),
            }),
          ),
          v.maxLength(100),
        ),
      ),
      broken: v.pipe(v.array(text(1024)), v.maxLength(100)),
      engine_version: v.exactOptional(text(64)),
      is_lighthouse: v.exactOptional(v.literal(true)),
      checked_at: text(64),
    }),
  ),
});
export type SavedHealth = v.InferOutput<typeof SavedHealth>;

/** A result of this age is outdated: check-auth runs each minute. */
const freshMs = 90_000;

export function savedHealthDirectory(configRoot: string, platform: NodeJS.Platform = ownPlatform): string {
  const directory = `/run/${brand.id}-health`;
  const root = resolve(configRoot);
  if (root === resolve(defaultPlaces(platform, {}).configRoot)) return directory;
  // Organizations of another configuration root may have the same slugs.
  return join(directory, `at-${Bun.hash(root).toString(36)}`);
}

/**
 * The files of one organization, whether they exist or not. Written here and by saved-probes.ts, saved-healing.ts and
 * contact/server-mode/watch-health.ts.
 */
export function savedHealthFiles(directory: string, slug: string): string[] {
  return ["", ".probes", ".healing", ".reported"].map((what) => join(directory, `${slug}${what}.json`));
}

export function readSavedHealth(directory: string, slug: string, now: number): SavedHealth | undefined {
  const saved = readSaved(SavedHealth, join(directory, `${slug}.json`));
  if (saved === undefined) return undefined;
  const { health, ...rest } = saved;
  const age = now - Date.parse(saved.written_at);
  // The absolute value, because the clock may have been set back.
  return Math.abs(age) < freshMs && health !== undefined ? { ...rest, health } : rest;
}

/** Throws disk_full and os_permission. */
export function writeSavedHealth(directory: string, slug: string, saved: SavedHealth): void {
  makeDirectory(directory, 0o755);
  writeFileUntilBoot(join(directory, `${slug}.json`), `${JSON.stringify(saved)}\n`, 0o644);
}

/** Undefined if the file is missing, damaged, or not readable for this user. */
export function readSaved<T extends v.GenericSchema>(schema: T, path: string): v.InferOutput<T> | undefined {
  let source: string | undefined;
  try {
    source = readTextIfThere(path);
  } catch {
    // The probes are for root alone.
    return undefined;
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), source);
  return parsed.success ? parsed.output : undefined;
}
