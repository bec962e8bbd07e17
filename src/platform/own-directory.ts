// A directory that is the product's own: on Unix its mode says who may enter it, on Windows an access list does,
// because there everybody may make directories where the product's lies.

import { existsSync, mkdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { brand } from "../brand.ts";
import { AppError, fromSystemError, systemErrorCode } from "../errors.ts";
import { makeDirectory } from "../files.ts";
import { isAdministratorsOwn, makeAdministratorsDirectory, makeOwnersDirectory } from "./windows-access.ts";

/** Creates a directory that nobody else may enter, for keys; false if there is one. */
export function makePrivateDirectory(path: string): boolean {
  if (process.platform === "win32") return makeOrFind(path, makeOwnersDirectory);
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch (error) {
    if (systemErrorCode(error) === "EEXIST") return false;
    throw fromSystemError(`create the directory ${path}`, error);
  }
}

/** Creates it and its parents. An existing one keeps its rights, as does one that somebody has named. */
export function makeOwnDirectory(path: string, mode: number): void {
  if (process.platform !== "win32" || basename(path) !== brand.id) return makeDirectory(path, mode);
  makeDirectory(dirname(path), mode);
  if (makeOrFind(path, makeAdministratorsDirectory) || isAdministratorsOwn(path)) return;
  throw new AppError("os_permission", `${path} was made by somebody who is no administrator`, {
    hint: "Look at what is in it, remove it, and run the command again.",
  });
}

/** Whether it was made; false if it was there. */
function makeOrFind(path: string, make: (path: string) => boolean): boolean {
  if (make(path)) return true;
  if (existsSync(path)) return false;
  throw new AppError("os_permission", `Cannot create the directory ${path}`, {
    hint: "Run the command as administrator.",
  });
}
