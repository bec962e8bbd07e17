// Reads and writes JSON files of this machine by a schema: what they hold is unknown until then.

import { rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere, writeFileAtomic } from "../../base/files.ts";
import { makeSocketDirectory, socketDirectory } from "../../platform/systemd/control-socket.ts";

/** Undefined if the file does not exist. Throws bad_configuration, naming the file, if it does not match the schema. */
export function readJsonFile<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  const text = readTextIfThere(path);
  if (text === undefined) return undefined;
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(undefined, "it is not JSON"), schema), text);
  if (parsed.success) return parsed.output;
  throw new AppError("bad_configuration", `${path} is damaged: ${damageOf(parsed.issues[0])}`);
}

/** The key and what is expected of it. The rest of the message quotes the file, which may hold a token. */
export function damageOf(issue: v.BaseIssue<unknown>): string {
  const key = v.getDotPath(issue);
  return `${key === null ? "" : `${key}: `}${issue.message.replace(/ but received [^]*$/, "")}`;
}

/**
 * A file beside the control socket of an organization. `mode`: 0o600 if root alone may read it. The functions take the organization's
 * directory.
 */
export function stateFile<T>(name: string, schema: v.GenericSchema<unknown, T>, mode: 0o600 | 0o644) {
  const path = (directory: string) => join(directory, socketDirectory, name);
  return {
    path,
    /** Undefined if there is no file, or if it is damaged. */
    read: (directory: string): T | undefined => readValidJson(path(directory), schema),
    /** Undefined removes the file. */
    write(directory: string, state: T | undefined): void {
      if (state === undefined) return rmSync(path(directory), { force: true });
      makeSocketDirectory(directory);
      writeFileAtomic(path(directory), `${JSON.stringify(state)}\n`, mode);
    },
  };
}

/** Like readJsonFile, but a damaged file counts as missing: for files that this program writes again. */
export function readValidJson<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  try {
    return readJsonFile(path, schema);
  } catch {
    return undefined;
  }
}
