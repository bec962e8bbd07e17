// Authenticates backups. The last line of a backup holds an HMAC-SHA256 of all bytes before it, under the secret key of
// the control plane. SQLite ignores what follows its last page, so the file is still a database that any tool opens.

import { defer } from "../../base/defer.ts";
import { timingSafeEqual } from "node:crypto";
import { closeSync, fstatSync, fsyncSync, readSync, writeSync } from "node:fs";
import { createFileFor, type FileOwner } from "../../base/files.ts";
import { startMac, type SecretKeys } from "../../pki/secrets.ts";
import { AppError } from "../../base/errors.ts";
import { openPlain } from "../../base/open-file.ts";

const purpose = "backup 1";
const trailerPattern = /^\ncontrol-plane-backup 1 ([0-9a-f]{16}) ([0-9a-f]{64})\n$/;
const trailerStart = "\ncontrol-plane-backup 1 ";
const trailerBytes = trailer("0".repeat(16), "0".repeat(64)).length;
const chunkBytes = 1_048_576;

function trailer(keyId: string, mac: string): string {
  return `${trailerStart}${keyId} ${mac}\n`;
}

/** Whether a trailer that was cut off can begin so. */
export function beginsTrailer(text: string): boolean {
  return (
    text !== "" && text.length < trailerBytes && trailerStart.startsWith(text.slice(0, trailerStart.length))
  );
}

/** Appends the authentication to a complete database that no process uses. */
export function authenticate(path: string, keys: SecretKeys): void {
  const started = startMac(keys, purpose);
  if (started === undefined) throw new AppError("bad_configuration", "The secret key is missing");
  const fd = openPlain(path, "update");
  using _ = defer(() => closeSync(fd));
  const { size } = fstatSync(fd);
  readChunks(fd, size, (chunk) => void started.mac.update(chunk));
  writeSync(fd, trailer(started.keyId, started.mac.digest("hex")), size);
  fsyncSync(fd);
}

/**
 * `isSigned`: the file ends with a proof. `isAuthentic`: the proof is right. `missingKey`: the id of the key that the proof was
 * made with, if the keys lack it: then it cannot be checked.
 */
export type Origin = { isAuthentic: boolean; missingKey?: string; isSigned: boolean };

/**
 * Copies the database of a backup into a new file, and checks in the same pass that a holder of one of the keys made it.
 * What is checked is what is used, even if the backup changes meanwhile.
 */
export function copyBackup(
  from: string,
  to: string,
  keys: SecretKeys,
  { mode, owner }: { mode: number; owner: FileOwner },
): Origin {
  const source = openPlain(from);
  using _ = defer(() => closeSync(source));
  const { size } = fstatSync(source);
  const end = Buffer.alloc(Math.min(size, trailerBytes));
  readSync(source, end, 0, end.length, size - end.length);
  const [, keyId, sent = ""] = trailerPattern.exec(end.toString("latin1")) ?? [];
  const started = keyId === undefined ? undefined : startMac(keys, purpose, keyId);
  const target = createFileFor(to, mode, owner);
  try {
    readChunks(source, keyId === undefined ? size : size - trailerBytes, (chunk) => {
      started?.mac.update(chunk);
      for (let at = 0; at < chunk.length;) at += writeSync(target, chunk, at);
    });
  } finally {
    closeSync(target);
  }
  if (keyId === undefined) return { isAuthentic: false, isSigned: false };
  if (started === undefined) return { isAuthentic: false, isSigned: true, missingKey: keyId };
  const isAuthentic = timingSafeEqual(started.mac.digest(), Buffer.from(sent, "hex"));
  return { isAuthentic, isSigned: true };
}

function readChunks(fd: number, length: number, take: (chunk: Uint8Array) => void): void {
  const buffer = Buffer.alloc(Math.min(chunkBytes, length));
  for (let at = 0; at < length;) {
    const read = readSync(fd, buffer, 0, Math.min(buffer.length, length - at), at);
    // The file became shorter meanwhile. The check of the database finds that.
    if (read === 0) return;
    take(buffer.subarray(0, read));
    at += read;
  }
}
