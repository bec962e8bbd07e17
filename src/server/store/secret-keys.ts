// The file with the key for the secrets at rest: one key a line. The first seals, any of them opens; there are two only
// while one replaces the other (key-rotation.ts).

import { chownSync, existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../errors.ts";
import { quoteWord } from "../../plan.ts";
import { isOpenToOthers, readTextIfThere, writeFileAtomic } from "../../files.ts";
import type { SecretKeys } from "../../pki/secrets.ts";
import type { System } from "../../system.ts";

export type SecretKeyPlace = { dataDirectory: string; secretKeyFile?: string };

/** The file that is named, a systemd credential, or the data directory's own. */
export function secretKeyPath(
  { dataDirectory, secretKeyFile }: SecretKeyPlace,
  { env }: Pick<System, "env">,
): string {
  const credentials = env["CREDENTIALS_DIRECTORY"];
  const credential = credentials === undefined ? undefined : join(credentials, "secret.key");
  if (secretKeyFile !== undefined) return secretKeyFile;
  return credential !== undefined && existsSync(credential) ? credential : join(dataDirectory, "secret.key");
}

/** Made at the first start, if it is the data directory's own. Throws bad_configuration where it should be there. */
export function openSecretKeys(
  place: SecretKeyPlace,
  isUsed: boolean,
  system: Pick<System, "env" | "random">,
): SecretKeys {
  const path = secretKeyPath(place, system);
  if (!existsSync(path)) {
    if (path !== join(place.dataDirectory, "secret.key"))
      throw new AppError("bad_configuration", `There is no secret key at ${path}`);
    if (isUsed) {
      throw new AppError("bad_configuration", `${path} is missing, and the database beside it needs it`, {
        hint: "Put the key of this database back, or name it with --secret-key-file.",
      });
    }
    writeSecretKeys(path, [system.random(32)]);
  }
  return keysAt(path);
}

/** The keys of the moment: a running server follows a rotation without being told. */
function keysAt(path: string): SecretKeys {
  let keys = readSecretKeys(path);
  let seen = stampOf(path);
  return () => {
    const stamp = stampOf(path);
    if (stamp === undefined || stamp === seen) return keys;
    try {
      keys = readSecretKeys(path);
      seen = stamp;
    } catch {
      // Changed in this instant, or no longer ours to read: what is known holds, and the next use looks again.
    }
    return keys;
  };
}

function stampOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
}

/** Throws bad_configuration for a file that others can read, or that holds something else. */
export function readSecretKeys(path: string): Uint8Array[] {
  const text = readTextIfThere(path);
  if (text === undefined) throw new AppError("bad_configuration", `There is no secret key at ${path}`);
  if (isOpenToOthers(path)) {
    throw new AppError("bad_configuration", `${path} can be read by others`, {
      hint: `chmod 600 ${quoteWord(path)}`,
    });
  }
  const keys = text
    .trim()
    .split(/\s+/)
    .map((line) => new Uint8Array(Buffer.from(line, "base64url")));
  if (keys.some(({ length }) => length !== 32))
    throw new AppError("bad_configuration", `${path} does not hold a key of 32 bytes`);
  // One byte over and over is what a template or an empty disk holds: everybody knows that key.
  if (keys.some((key) => key.every((byte) => byte === key[0]))) {
    throw new AppError("bad_configuration", `${path} holds a key that is no secret`, {
      hint: "A key is made with the data directory; put back the one that belongs to this database.",
    });
  }
  return keys;
}

/** 0600, and of the owner that it had. */
export function writeSecretKeys(path: string, keys: readonly Uint8Array[]): void {
  const before = statSync(path, { throwIfNoEntry: false });
  const lines = keys.map((key) => `${Buffer.from(key).toString("base64url")}\n`);
  writeFileAtomic(path, lines.join(""), 0o600);
  if (before !== undefined && before.uid !== process.getuid?.()) chownSync(path, before.uid, before.gid);
}
