// Swaps a set of files with one rename: `current` names the active generation. On Unix `current` and the files beside
// it are symbolic links. Windows restricts those, so `current` is a text file there, and the files are copies, which
// `follow` completes after a kill.

import { existsSync, lstatSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { systemErrorCode } from "../base/system-errors.ts";
import { rename } from "./file-system.ts";
import { readTextIfThere, syncDirectory, writeFileAtomic } from "../base/files.ts";
import { readBytes } from "../base/open-file.ts";

export type GenerationPointer = {
  activeName(directory: string): string | undefined;
  activeDirectory(directory: string): string;
  /** Makes a generation active. On Windows, readers see it after `follow`. */
  set(directory: string, name: string): void;
  /** Makes these files match the active generation. A link whose file is gone stays: readers then find no file. */
  follow(directory: string, files: readonly string[]): void;
};

export const linkPointer: GenerationPointer = {
  activeName(directory) {
    try {
      return readlinkSync(join(directory, "current")).split(/[\\/]/).at(-1);
    } catch (error) {
      if (systemErrorCode(error) === "ENOENT") return undefined;
      throw error;
    }
  },
  activeDirectory: (directory) => join(directory, "current"),
  set(directory, name) {
    const next = join(directory, ".current.tmp");
    rmSync(next, { force: true });
    symlinkSync(join("generations", name), next, "dir");
    rename(next, join(directory, "current"));
    syncDirectory(directory);
  },
  follow(directory, files) {
    for (const file of files) {
      const isThere = lstatSync(join(directory, file), { throwIfNoEntry: false }) !== undefined;
      const target = join("current", file);
      if (!isThere && existsSync(join(directory, target))) symlinkSync(target, join(directory, file));
    }
  },
};

export const copyPointer: GenerationPointer = {
  activeName: (directory) => readTextIfThere(join(directory, "current"))?.trim(),
  activeDirectory: (directory) => join(directory, "generations", copyPointer.activeName(directory) ?? "none"),
  set: (directory, name) => writeFileAtomic(join(directory, "current"), `${name}\n`, 0o644),
  follow(directory, files) {
    const active = copyPointer.activeDirectory(directory);
    if (!existsSync(active)) return;
    for (const file of files) {
      const [from, to] = [join(active, file), join(directory, file)];
      if (!existsSync(from)) rmSync(to, { force: true });
      else if (readTextIfThere(to) !== readTextIfThere(from)) writeFileAtomic(to, readBytes(from), 0o644);
    }
  },
};

export const generationPointer = process.platform === "win32" ? copyPointer : linkPointer;
