// State of agent updates, in files beside the state database: release.json with the highest sequence number of a release that was
// seen, against downgrades, and update.json with the last update and its result.

import { dirname, join } from "node:path";
import * as v from "valibot";
import { boundedText, jsonText } from "../../base/text.ts";
import { AppError, messageOf } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import type { Log } from "../../base/log.ts";
import type { Step } from "../../base/plan/plan.ts";
import { planFile } from "../../base/plan/plan-file.ts";
import { makeDirectory, readTextIfThere, writeFileAtomic } from "../../base/files.ts";

const Seen = v.object({ sequence: v.number() });

const Path = boundedText(4096);
const Version = boundedText(64);

/** The last update. */
export const Marker = v.object({
  executable: Path,
  /** Path of the new executable before it replaces the installed one. */
  candidate: Path,
  from: Version,
  to: Version,
  started_at: boundedText(64),
  /** Unset while the new version is on trial. */
  result: v.optional(v.picklist(["healthy", "returned"])),
  reason: v.optional(boundedText(65_536)),
});
export type Marker = v.InferOutput<typeof Marker>;

/** The highest number of a release that was seen; 0: none was. */
export function readSeenSequence(stateDb: string): number {
  return read(releasePath(stateDb), Seen)?.sequence ?? 0;
}

export function writeSeenSequence(stateDb: string, sequence: number): void {
  if (sequence > readSeenSequence(stateDb)) write(releasePath(stateDb), { sequence });
}

/** The plan of writeSeenSequence. */
export function planSeenSequence(stateDb: string, sequence: number): Step[] {
  if (sequence <= readSeenSequence(stateDb)) return [];
  return [planFile(releasePath(stateDb), render({ sequence }), 0o644)];
}

/** After a command has only looked at a release. A failure is no error: ordinary users may look, but cannot write here. */
export function rememberSequence(
  { stateDb, dryRun }: { stateDb: string; dryRun: boolean },
  sequence: number,
  log: Pick<Log, "debug">,
): void {
  if (dryRun) return;
  try {
    writeSeenSequence(stateDb, sequence);
  } catch (error) {
    if (!(error instanceof AppError) && systemErrorCode(error) === undefined) throw error;
    log.debug(`cannot remember release number ${sequence}: ${messageOf(error)}`);
  }
}

export function readMarker(stateDb: string): Marker | undefined {
  return read(markerPath(stateDb), Marker);
}

export function writeMarker(stateDb: string, marker: Marker): void {
  write(markerPath(stateDb), marker);
}

export function markerPath(stateDb: string): string {
  return join(dirname(stateDb), "update.json");
}

function releasePath(stateDb: string): string {
  return join(dirname(stateDb), "release.json");
}

/** A damaged file counts as missing: it must not prevent an update. */
function read<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  const parsed = v.safeParse(jsonText(schema), readTextIfThere(path));
  return parsed.success ? parsed.output : undefined;
}

function write(path: string, value: object): void {
  makeDirectory(dirname(path), 0o755);
  writeFileAtomic(path, render(value), 0o644);
}

const render = (value: object): string => `${JSON.stringify(value, null, 2)}\n`;
