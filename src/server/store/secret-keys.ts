// The file with the keys that encrypt secrets in the database, one key a line. The first key encrypts; all keys
// decrypt. There are two only during a key rotation (backup/key-rotation.ts).

import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { isOpenToOthers, readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../base/system.ts";

export type SecretKeyPlace = { dataDirectory: string; secretKeyFile?: string };

/** `--secret-key-file`, else the systemd credential, else the data directory's own file. */
export function secretKeyPath(
  { dataDirectory, secretKeyFile }: SecretKeyPlace,
  { env }: Pick<System, "env">,
): string {
  const credentials = env["CREDENTIALS_DIRECTORY"];
  const credential = credentials === undefined ? undefined : join(credentials, "secret.key");
  if (secretKeyFile !== undefined) return secretKeyFile;
  return credential !== undefined && existsSync(credential) ? credential : join(dataDirectory, "secret.key");
}

/** `isUsed`: there is a database, which needs its keys. */
type KeyUse = SecretKeyPlace & { isUsed: boolean };

/** Creates the data directory's own file at the first start. Throws bad_configuration if the file is missing and used. */
export function openSecretKeys(place: KeyUse, system: Pick<System, "env" | "random">): SecretKeys {
  const { path, isThere } = findSecretKeys(place, system);
  if (!isThere) writeSecretKeys(path, [system.random(32)]);
  return keysAt(path);
}

/** Where the file is, or would be created. Throws like openSecretKeys. */
export function findSecretKeys(
  place: KeyUse,
  system: Pick<System, "env">,
): { path: string; isThere: boolean } {
  const path = secretKeyPath(place, system);
  if (existsSync(path)) return { path, isThere: true };
  if (path !== join(place.dataDirectory, "secret.key")) throw missing(path);
  if (place.isUsed) {
    throw new AppError("bad_configuration", `${path} is missing, but the database needs it`, {
      hint: "Restore this database's key file, or give its path with --secret-key-file.",
    });
  }
  return { path, isThere: false };
}

/** Reads the file again when it changes, so that a running server follows a rotation. */
function keysAt(path: string): SecretKeys {
  let keys = readSecretKeys(path);
  let usedStamp = stampOf(path);
  return () => {
    const stamp = stampOf(path);
    if (stamp === undefined || stamp === usedStamp) return keys;
    try {
      keys = readSecretKeys(path);
      usedStamp = stamp;
    } catch {
      // The file is being replaced or is unreadable: keep the known keys and look again at the next use.
    }
    return keys;
  };
}

function stampOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
}

/** Throws bad_configuration for a file that other users can read, or that does not hold keys. */
export function readSecretKeys(path: string): Uint8Array[] {
  const text = readTextIfThere(path);
  if (text === undefined) throw missing(path);
  if (isOpenToOthers(path)) {
    throw new AppError("bad_configuration", `${path} can be read by other users`, {
      hint: `chmod 600 ${quoteWord(path)}`,
    });
  }
  const keys = text
    .trim()
    .split(/\s+/)
    .map((line) => new Uint8Array(Buffer.from(line, "base64url")));
  if (keys.some(({ length }) => length !== 32))
    throw new AppError("bad_configuration", `${path} must hold one key of 32 bytes per line, in base64url`);
  // One byte repeated is a template or an empty disk, so the key is not secret.
  if (keys.some((key) => key.every((byte) => byte === key[0]))) {
    throw new AppError("bad_configuration", `${path} holds a key of one repeated byte, which is not secret`, {
      hint: "Restore the key file that belongs to this database, for example from a backup.",
    });
  }
  return keys;
}

function missing(path: string): AppError {
  return new AppError("bad_configuration", `There is no secret key at ${path}`, {
    hint: "Give the path of this database's key with --secret-key-file.",
  });
}

/** Writes mode 0600 and keeps the file's owner. A new file belongs to the owner of its directory. */
export function writeSecretKeys(path: string, keys: readonly Uint8Array[]): void {
  const owner = statSync(path, { throwIfNoEntry: false }) ?? statSync(dirname(path));
  const lines = keys.map((key) => `${Buffer.from(key).toString("base64url")}\n`);
  writeFileAtomic(path, lines.join(""), 0o600, { owner });
}
