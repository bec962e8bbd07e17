// Where the control plane keeps its things: the data directory (0700), the database, and the key that encrypts what is
// secret in it. Shared by `serve` and the admin commands.

import { chmodSync, existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { AppError, fromSystemError } from "../errors.ts";
import { isOpenToOthers, makeDirectory, readTextIfThere, writeFileAtomic } from "../files.ts";
import type { System } from "../system.ts";
import type { Database } from "./store/database.ts";

export type DataOptions = {
  dataDirectory: string;
  /** PostgreSQL instead of the file in the data directory. */
  databaseUrl?: string;
  secretKeyFile?: string;
};

export type Data = { db: Database; secretKey: Uint8Array };

type Edge = Pick<System, "now" | "random" | "env">;

/** Opens what is there and creates what is missing. Throws bad_configuration or storage_unavailable. */
export async function openData(
  options: DataOptions,
  role: "server" | "visitor",
  system: Edge,
): Promise<Data> {
  const { dataDirectory, databaseUrl } = options;
  prepareDirectory(dataDirectory);
  const path = join(dataDirectory, "control.db");
  const secretKey = findSecretKey(options, existsSync(path), system);
  if (databaseUrl !== undefined) {
    const { openPostgres } = await import("./store/postgres.ts");
    return { db: await openPostgres({ url: databaseUrl, now: system.now, role }), secretKey };
  }
  const { openSqlite } = await import("./store/sqlite.ts");
  return { db: await openSqlite({ path, now: system.now, role }), secretKey };
}

/** 0700; a directory that is open to others is closed if it is ours, else refused. */
export function prepareDirectory(path: string): void {
  process.umask(0o077);
  makeDirectory(path, 0o700);
  try {
    if (!isOpenToOthers(path)) return;
    const foreign = readdirSync(path).find(
      (name) => !/^(control\.db|secret\.key|serve\.lock|tls)/.test(name),
    );
    if (foreign === undefined) chmodSync(path, 0o700);
    else {
      throw new AppError(
        "bad_configuration",
        `The data directory ${path} is open to others and holds ${foreign}`,
        {
          hint: "Give a directory of its own (--data-dir), or make this one private: chmod 700.",
        },
      );
    }
  } catch (error) {
    throw fromSystemError(`prepare ${path}`, error);
  }
}

/** The file that is named, a systemd credential, or the data directory's own, made at the first start. */
function findSecretKey(
  options: DataOptions,
  isUsed: boolean,
  { env, random }: Pick<Edge, "env" | "random">,
): Uint8Array {
  const own = join(options.dataDirectory, "secret.key");
  const credentials = env["CREDENTIALS_DIRECTORY"];
  const credential = credentials === undefined ? undefined : join(credentials, "secret.key");
  const path =
    options.secretKeyFile ?? (credential !== undefined && existsSync(credential) ? credential : own);
  const text = readTextIfThere(path);
  if (text !== undefined) return readKey(path, text);
  if (path !== own) throw new AppError("bad_configuration", `There is no secret key at ${path}`);
  if (isUsed) {
    throw new AppError("bad_configuration", `${own} is missing, and the database beside it needs it`, {
      hint: "Put the key of this database back, or name it with --secret-key-file.",
    });
  }
  const key = random(32);
  writeFileAtomic(own, `${Buffer.from(key).toString("base64url")}\n`, 0o600);
  return key;
}

function readKey(path: string, text: string): Uint8Array {
  const key = Buffer.from(text.trim(), "base64url");
  if (isOpenToOthers(path)) {
    throw new AppError("bad_configuration", `${path} can be read by others`, { hint: `chmod 600 ${path}` });
  }
  if (key.length !== 32) throw new AppError("bad_configuration", `${path} does not hold a key of 32 bytes`);
  return new Uint8Array(key);
}
