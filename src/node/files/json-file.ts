// Reads JSON files of this machine by a schema: what they hold is unknown until then.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { readTextIfThere } from "../../base/files.ts";

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

/** Like readJsonFile, but a damaged file counts as missing: for files that this program writes again. */
export function readValidJson<T>(path: string, schema: v.GenericSchema<unknown, T>): T | undefined {
  try {
    return readJsonFile(path, schema);
  } catch {
    return undefined;
  }
}
