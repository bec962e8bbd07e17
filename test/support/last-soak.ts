// The record test/last-soak: what of `bySources` passed last, with a digest of its sources. Unlike a comparison with a commit
// it needs no history, and sees what is not committed. Imports nothing that `bun install` brings.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bySources, fileOf, filesFor } from "./test-files.ts";

const root = join(import.meta.dir, "../..");
const recordPath = join(root, "test/last-soak");

// Elements become calls of one fixed name: others depend on NODE_ENV.
const tsconfig = JSON.stringify({ compilerOptions: { jsx: "react" } });
const transpilers = {
  ts: new Bun.Transpiler({ loader: "ts", minifyWhitespace: true }),
  tsx: new Bun.Transpiler({ loader: "tsx", minifyWhitespace: true, tsconfig }),
};
/** By path and hash of the content: entries have many files in common. */
const codes = new Map<string, string>();

/** What decides how a file behaves: of TypeScript the code, without comments and types, of other files all. */
function codeOf(path: string): string | Buffer {
  const bytes = readFileSync(path);
  const [kind] = /(?<=\.)tsx?$/.exec(path) ?? [];
  if (kind !== "ts" && kind !== "tsx") return bytes;
  const key = `${path} ${Bun.hash(bytes)}`;
  let code = codes.get(key);
  if (code === undefined) {
    code = bytes.toString();
    try {
      code = transpilers[kind].transformSync(code);
    } catch {
      // A file with a macro cannot be transpiled alone: it counts with its comments.
    }
    codes.set(key, code);
  }
  return code;
}

/** Of the names and the code of the files that these patterns match. */
export function digest(globs: readonly string[], base: string): string {
  const paths = new Set(globs.flatMap((glob) => [...new Bun.Glob(glob).scanSync(base)]));
  const hash = new Bun.CryptoHasher("sha256");
  for (const path of [...paths].sort()) {
    const code = codeOf(join(base, path));
    hash.update(`${path} ${code.length}\0`).update(code);
  }
  return hash.digest("hex").slice(0, 32);
}

/** Of the sources of an entry of `bySources`, and of its test. */
function digestOf(name: string): string {
  const file = fileOf(name);
  return digest([...(bySources[name] ?? []), ...(file === undefined ? [] : [`test/${file}`])], root);
}

/** Of all entries. */
export const digests = (): Map<string, string> =>
  new Map(Object.keys(bySources).map((name) => [name, digestOf(name)]));

/** `commit` is for people, who want to see the difference. */
type Passed = { digest: string; commit: string };

export const parseRecord = (text: string): Map<string, Passed> =>
  new Map(
    [...text.matchAll(/^([^#\s]\S*) (\S+) (\S+)$/gm)].map(([, name = "", digest = "", commit = ""]) => [
      name,
      { digest, commit },
    ]),
  );

export const formatRecord = (record: ReadonlyMap<string, Passed>): string =>
  [
    "# Written by `bun run soak`: what passed there last, with a digest of its sources, and at which commit.",
    ...[...record]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, { digest, commit }]) => `${name} ${digest} ${commit}`),
    "",
  ].join("\n");

const record = parseRecord(existsSync(recordPath) ? readFileSync(recordPath, "utf8") : "");

/** Whether an entry of `bySources` is to run: in long runs, and where its sources are not those of the record. */
export const isDue = (name: string): boolean =>
  process.env["SOAK"] === "1" ||
  process.env["TEST_ALL"] === "1" ||
  record.get(name)?.digest !== digestOf(name);

/** Whether a test file is to run: one without an entry always, another where its entry, or that of a part of it, is due. */
export function isFileDue(file: string): boolean {
  const entries = Object.keys(bySources).filter((name) => fileOf(name) === file);
  return entries.length === 0 || entries.some(isDue);
}

/**
 * The entries whose files are all among those that passed, or their long forms below test/soak. `before`: the digests
 * when they began.
 */
export function passedEntries(before: ReadonlyMap<string, string>, passed: readonly string[]): string[] {
  const hasPassed = (file: string) =>
    passed.includes(file) || passed.includes(file.replace(/^e2e\//, "soak/"));
  return [...before.keys()].filter((name) => filesFor(name).every(hasPassed));
}

/** Keeps these digests, and none of entries that are no more. */
export function writeRecord(passed: ReadonlyMap<string, string>, commit: string): void {
  for (const [name, digest] of passed) record.set(name, { digest, commit });
  for (const name of record.keys()) if (!(name in bySources)) record.delete(name);
  writeFileSync(recordPath, formatRecord(record));
}
