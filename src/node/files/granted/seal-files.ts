// The files of the seal that a node holds (held-seal.ts).

import { existsSync } from "node:fs";
import { join } from "node:path";

export const sealFile = "seal.json";
/** Holds the hash of the first seal that was enforced. It stays if seal.json is damaged or lost. */
export const enforcedMark = "seal-enforced";
export const isSealMarked = (directory: string) => existsSync(join(directory, enforcedMark));

/** The seal's files that exist. */
export const sealFilesIn = (directory: string): string[] =>
  [enforcedMark, sealFile].map((name) => join(directory, name)).filter((path) => existsSync(path));
