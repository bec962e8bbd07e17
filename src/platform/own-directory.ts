// Creates the product's own directories: protected by modes on Unix, and by access lists on Windows, where every user
// may create directories in ProgramData.

import { existsSync, mkdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { brand } from "../brand.ts";
import { AppError, fromSystemError } from "../base/errors.ts";
import { systemErrorCode } from "../base/system-errors.ts";
import { makeDirectory } from "../base/files.ts";
import { isAdministratorsOwn, makeAdministratorsDirectory, makeOwnersDirectory } from "./windows/access.ts";

/** The platform of this machine, for code that gets no `System`. */
export const ownPlatform = process.platform;

/** Creates a directory for keys that no other user may enter. Returns false if it exists. */
export function makePrivateDirectory(path: string): boolean {
  if (process.platform === "win32") return makeUnlessThere(path, makeOwnersDirectory);
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (systemErrorCode(error) === "EEXIST") return false;
    throw fromSystemError(`create the directory ${path}`, error);
  }
}

/** Creates the directory and its parents. Existing directories, and those with a custom name, keep their rights. */
export function makeOwnDirectory(path: string, mode: number): void {
  if (process.platform !== "win32" || basename(path) !== brand.id) return makeDirectory(path, mode);
  makeDirectory(dirname(path), mode);
  if (makeUnlessThere(path, makeAdministratorsDirectory) || isAdministratorsOwn(path)) return;
  throw new AppError("os_permission", `${path} belongs to a user who is not an administrator`, {
    hint: "Check its content, delete it, and run the command again.",
  });
}

/** Returns false if it exists. */
function makeUnlessThere(path: string, make: (path: string) => boolean): boolean {
  if (make(path)) return true;
  if (existsSync(path)) return false;
  throw new AppError("os_permission", `Cannot create the directory ${path}`, {
    hint: "Run the command in a terminal started as administrator.",
  });
}
