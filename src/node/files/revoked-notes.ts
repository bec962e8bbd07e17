// The notes of a revocation (auth-revoked.json) and of an unfinished restore (auth-restored.json). The services of an
// organization do not start while its auth-revoked.json exists.

import { given } from "../../base/given.ts";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { closeSync, existsSync, lstatSync } from "node:fs";
import { join } from "node:path";
import { brand } from "../../brand.ts";
import { AppError, fromSystemError, hasCode } from "../../base/errors.ts";
import { removeTree, syncDirectory, writeFileAtomic } from "../../base/files.ts";
import { quoteWord } from "../../base/quote.ts";
import { organizationDeleted } from "../../protocol/orders.ts";
import { rename } from "../../platform/file-system.ts";
import { readJsonFile } from "./json-file.ts";
import { openPlain } from "../../base/open-file.ts";

/** auth-revoked.json. It exists as long as an order stops the organization on this node. */
export const RevokedNote = v.object({
  revoked_at: boundedText(64),
  reason: boundedText(4096),
  node_id: v.number(),
  /** Written by version 0.1.0: false if the overlay was stopped when the order came, so a restore does not start it. */
  was_wanted: v.optional(v.boolean()),
  /** The sequence number of the order: older orders stay invalid without orders.json. */
  seq: v.optional(v.number()),
});
export type RevokedNote = v.InferOutput<typeof RevokedNote>;

const restoredNote = "auth-restored.json";
export function revokedNotePath(directory: string): string {
  return join(directory, "auth-revoked.json");
}

/**
 * Replaces a note that cannot be read. The file's existence alone prevents a start of the services, and a damaged file
 * must not prevent signed orders from being carried out.
 */
export const damagedNote: RevokedNote = Object.freeze({
  revoked_at: "",
  reason: `auth-revoked.json is damaged, or the disk was full when the node was revoked, so the overlay stays stopped until it is restored or \`${brand.executable} register --force\` is run`,
  node_id: 0,
});

/** `damagedNote` if the file cannot be parsed. */
export function readRevokedNote(directory: string): RevokedNote | undefined {
  return readNote(revokedNotePath(directory));
}

/** Throws access_revoked, with `hint`, while an order stops the organization. */
export function refuseRevoked({ slug, directory }: { slug: string; directory: string }, hint?: string): void {
  const note = readRevokedNote(directory);
  if (note === undefined) return;
  throw revokedError(slug, note.reason, hint);
}

/** For a deleted organization the hint is another one: it never restores a node. */
export function revokedError(slug: string, reason: string, hint?: string): AppError {
  const usefulHint = reason === organizationDeleted ? leaveDeleted(slug) : hint;
  const message = `The access of ${slug} was revoked: ${reason}`;
  return new AppError("access_revoked", message, given({ hint: usefulHint }));
}

/** A hint: a user's start of a revoked node is stored, and takes effect after the restore. */
export const startsWhenRestored =
  "The start is remembered: the overlay starts when the control plane restores the node.";

/** What to do with the files of an organization that is deleted. */
export function leaveDeleted(slug: string): string {
  return `Its nodes never start again. Remove it from this machine: \`${brand.executable} unregister --org-slug ${quoteWord(slug)}\`.`;
}

function readNote(path: string): RevokedNote | undefined {
  try {
    return readJsonFile(path, RevokedNote);
  } catch (error) {
    if (hasCode(error, "bad_configuration")) return damagedNote;
    throw error;
  }
}

/**
 * Marks an organization as stopped by an order. The services do not start while the file exists. If there is no room for
 * its content, an empty file is left, which most full disks still take, and the failure is thrown.
 */
export function writeRevokedNote(directory: string, note: RevokedNote): void {
  const path = revokedNotePath(directory);
  try {
    // rename(2) cannot replace a directory.
    if (lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true) removeTree(path);
    writeFileAtomic(path, `${JSON.stringify(note)}\n`, 0o644);
  } catch (error) {
    markRevoked(directory);
    throw error;
  }
}

/** Leaves an empty note: its existence alone keeps the services from starting. */
function markRevoked(directory: string): void {
  try {
    closeSync(openPlain(revokedNotePath(directory), "append", 0o644));
    syncDirectory(directory);
  } catch {
    // The caller throws the first failure.
  }
}

/** Whether a revocation could be noted here. False on a full disk or a read-only file system. */
export function canNote(directory: string): boolean {
  const probe = join(directory, ".auth-probe");
  try {
    // About as large as a note with the longest reason.
    writeFileAtomic(probe, "x".repeat(8192), 0o600);
    removeTree(probe);
    return true;
  } catch {
    return false;
  }
}

/** A user has started the overlay since: that replaces what a note of version 0.1.0 says about the time before. */
export function forgetWasStopped(directory: string): void {
  const note = readRevokedNote(directory);
  if (note?.was_wanted === false) writeRevokedNote(directory, { ...note, was_wanted: true });
}

/** The note of an organization that an order restores. It exists until the restore is complete. */
export function readRestoredNote(directory: string): RevokedNote | undefined {
  return readNote(join(directory, restoredNote));
}

/** Lets the services start from now on. Does nothing if another run has begun the same restore. */
export function beginRestore(directory: string): void {
  try {
    if (!existsSync(revokedNotePath(directory))) return;
    // rename(2) cannot replace a directory.
    removeTree(join(directory, restoredNote));
    rename(revokedNotePath(directory), join(directory, restoredNote));
    syncDirectory(directory);
  } catch (error) {
    throw fromSystemError(`set the note in ${directory} aside`, error);
  }
}

export function removeRestoredNote(directory: string): void {
  removeTree(join(directory, restoredNote));
  syncDirectory(directory);
}
