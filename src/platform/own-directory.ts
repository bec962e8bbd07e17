// A directory that is the product's own: on Unix its mode says who may enter it, on Windows an access list does, because
// there everybody may make directories where the product's lies.

import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { brand } from "../brand.ts";
import { AppError } from "../errors.ts";
import { makeDirectory } from "../files.ts";
import { isAdministratorsOwn, makeAdministratorsDirectory } from "./windows-access.ts";

/** Creates it and its parents. An existing one keeps its rights, as does one that somebody has named. */
export function makeOwnDirectory(path: string, mode: number): void {
  if (process.platform !== "win32" || basename(path) !== brand.id) return makeDirectory(path, mode);
  makeDirectory(dirname(path), mode);
  if (makeAdministratorsDirectory(path)) return;
  if (!existsSync(path))
    throw new AppError("os_permission", `Cannot create the directory ${path}`, {
      hint: "Run the command as administrator.",
    });
  if (isAdministratorsOwn(path)) return;
  throw new AppError("os_permission", `${path} was made by somebody who is no administrator`, {
    hint: "Look at what is in it, remove it, and run the command again.",
  });
}
