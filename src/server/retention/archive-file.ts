// The format of an archive of events: a header in JSON, its Ed25519 signature in base64, then one event a line, as the
// API answers it. Knows no database.

import { hash } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { AppError, fromSystemError } from "../../base/errors.ts";
import { makeDirectory, readTextIfThere, syncDirectory } from "../../base/files.ts";
import { ArchiveHeader, headerLine } from "../audit/archive-cut.ts";
import { isSignedBy, type ArchiveKey } from "../audit/archive-key.ts";
import { continues, eventText, eventTime } from "../audit/record.ts";
import { breakAt, whatChanged, type Break, type VerifiedEvent } from "../audit/verify.ts";
import { foreignText } from "../../base/text.ts";
import type { EventRow } from "../store/tables/events.ts";
import { readText, refuseOddFile } from "../../base/open-file.ts";
import { refuseForeignEntry } from "../store/own-data.ts";
import { jsonTextOf } from "../../protocol/values.ts";

/** In the data directory. */
export const archiveName = "archive";

export type Archive = { header: ArchiveHeader; signature: string; file: string; text: string };

/** `id`, `slug`: null for the events of the operator. `previousHash`: of the event before the first one, "" if there is none. */
type Chain = { id: number | null; slug: string | null; previousHash: string };

/** `events`: the oldest of a chain, at least one. */
export function makeArchive(
  { id, slug, previousHash }: Chain,
  events: readonly [EventRow, ...EventRow[]],
  key: ArchiveKey,
): Archive {
  const [first] = events;
  const last = events.at(-1) ?? first;
  const lines = events.map(lineOf).join("");
  const header: ArchiveHeader = {
    format: 1,
    organization: slug,
    organization_id: id,
    first: first.id,
    last: last.id,
    events: events.length,
    from: eventTime(first.at),
    until: eventTime(last.at),
    previous_hash: previousHash,
    last_hash: last.hash,
    bytes: Buffer.byteLength(lines),
    sha256: hash("sha256", lines, "hex"),
    key: key.publicKey,
  };
  const line = headerLine(header);
  const signature = key.sign(line);
  // Ids are never given twice: one name means the same events, also after a restore of the database.
  const file = `events-${id ?? 0}-${first.id}-${last.id}.jsonl`;
  return { header, signature, file, text: `${line}\n${signature}\n${lines}` };
}

/** The event exactly as it was hashed, here without its braces, between its id and its hash. */
function lineOf(event: EventRow): string {
  return `{"id":${event.id},${eventText(event).slice(1, -1)},"hash":"${event.hash}"}\n`;
}

/**
 * Writes the archive so that it survives a power cut: file and directory are synced when this resolves. An earlier run
 * may have written the same file. Throws conflict if a file of this name holds something else.
 */
export async function storeArchive(directory: string, { file, text }: Archive): Promise<void> {
  const path = join(directory, file);
  const stored = readTextIfThere(path);
  if (stored !== undefined && stored !== text && !haveSameEvents(stored, text)) {
    throw new AppError("conflict", `${path} exists and holds something else`, {
      hint: "Move this file away. No event was deleted.",
    });
  }
  const part = join(directory, `.${file}.part`);
  try {
    makeDirectory(directory, 0o700);
    // Without this, a power cut could take a new directory away together with its file.
    syncDirectory(dirname(directory));
    refuseOddFile(part);
    refuseForeignEntry(part);
    const handle = await open(part, "w", 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(part, path);
    syncDirectory(directory);
  } catch (error) {
    await rm(part, { force: true }).catch(() => undefined);
    throw fromSystemError(`write ${path}`, error);
  }
}

/**
 * Deletes what runs left that ended too early: incomplete files, and complete ones whose events this archive repeats. Call
 * it after the cut.
 */
export function removeLeftovers(directory: string, { header, file, text }: Archive): void {
  const chain = `events-${header.organization_id ?? 0}-`;
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const isPart = name.startsWith(`.${chain}`) && name.endsWith(".part");
    const isOther = name.startsWith(`${chain}${header.first}-`) && name !== file;
    if (isPart || (isOther && isRepeated(path, text))) rmSync(path, { force: true });
  }
}

/** Whether the archive `text` begins with the events of this file. */
function isRepeated(path: string, text: string): boolean {
  const stored = readTextIfThere(path);
  return stored !== undefined && linesOf(text).startsWith(linesOf(stored));
}

/** Whether two archives have the same events, also if their headers differ: the database was restored, or the key is new. */
function haveSameEvents(one: string, other: string): boolean {
  return linesOf(one) === linesOf(other);
}

/** The lines with events: without those of the header and the signature. */
function linesOf(text: string): string {
  const endOfHeader = text.indexOf("\n");
  return text.slice(text.indexOf("\n", endOfHeader + 1) + 1);
}

export const EventLine = v.looseObject({ id: v.number(), hash: foreignText(64) });

/**
 * Reads an archive and verifies its signature, its checksum and each hash of its chain. Throws failed with the reason.
 * `breaks`: events that do not continue the chain, which was broken when the server archived them. `publicKey`: in hex. `see`:
 * gets each event.
 */
export function verifyArchive(
  path: string,
  publicKey: string | undefined,
  see: (event: VerifiedEvent) => void = () => undefined,
): Omit<Archive, "text"> & { breaks: Break[] } {
  const wrong = (reason: string) =>
    new AppError("failed", `The archive ${path} is not as the server wrote it: ${reason}`, {
      hint: "Compare it with a copy. Do not delete either.",
    });
  const [head = "", signature = "", ...lines] = textOf(path).split("\n");
  const parsed = v.safeParse(jsonTextOf(ArchiveHeader), head);
  if (!parsed.success) throw wrong("its first line is not the header of an archive");
  const header = parsed.output;
  if (publicKey !== header.key) throw wrong(`its key ${header.key} is not the key of this control plane`);
  if (!isSignedBy(header.key, head, signature)) throw wrong("its signature is wrong");
  if (hash("sha256", lines.join("\n"), "hex") !== header.sha256) throw wrong("its events were changed");
  const breaks: Break[] = [];
  let previous = header.previous_hash;
  let count = 0;
  for (const line of lines) {
    if (line === "") continue;
    const event = v.safeParse(jsonTextOf(EventLine), line);
    if (!event.success) throw wrong(`its line ${count + 3} is not an event`);
    const { id, hash: own, ...hashed } = event.output;
    const text = JSON.stringify(hashed);
    if (!continues(previous, text, own)) breaks.push(breakAt(id, whatChanged, `${previous}\n${text}`));
    previous = own;
    count++;
    see({ id, hash: own, type: String(hashed["type"]), after: hashed["after"] });
  }
  if (previous !== header.last_hash || count !== header.events) throw wrong("events are missing");
  return { header, signature, file: path, breaks };
}

function textOf(path: string): string {
  try {
    return readText(path);
  } catch (error) {
    throw fromSystemError(`read ${path}`, error);
  }
}
