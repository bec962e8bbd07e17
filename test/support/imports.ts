// Finds the imports of each file of src/, for the architecture test. Reads text only and loads no module.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

export const sourceRoot = join(import.meta.dir, "../../src");

export type Import = {
  /** The importing file, relative to src/: "cli/run.ts". */
  from: string;
  /** The imported file, relative to src/, or the package: "hono", "node:fs", "@peculiar/x509". */
  to: string;
  own: boolean;
  /** `lazy`: import() inside a function; `type`: erased in the executable. */
  kind: "static" | "lazy" | "type";
};

/** Every file of src/, relative, sorted. */
export function sourceFiles(): string[] {
  return [...new Bun.Glob("**/*.{ts,tsx}").scanSync(sourceRoot)].sort();
}

const known = new Map<string, Import[]>();

/** Reads each file once: the architecture test asks thousands of times. */
export function importsOf(file: string): Import[] {
  const found = known.get(file) ?? readImports(file);
  known.set(file, found);
  return found;
}

function readImports(file: string): Import[] {
  if (!/\.tsx?$/.test(file) || !existsSync(join(sourceRoot, file))) return [];
  const text = withoutComments(readFileSync(join(sourceRoot, file), "utf8"));
  const statements = [
    ...text.matchAll(/^\s*(?:import|export)\s+(type\s+)?(?:[\w*{][^;"]*?\sfrom\s+)"([^"]+)"/gm),
  ];
  const bare = [...text.matchAll(/^\s*import\s+()"([^"]+)"/gm)];
  const lazy = [...text.matchAll(/\bimport\(\s*"([^"]+)"/g)];
  return [
    ...[...statements, ...bare].map((match) =>
      resolve(file, match[2] ?? "", match[1] === undefined || match[1] === "" ? "static" : "type"),
    ),
    ...lazy.map((match) => resolve(file, match[1] ?? "", "lazy")),
  ];
}

function resolve(from: string, specifier: string, kind: Import["kind"]): Import {
  if (!specifier.startsWith(".")) {
    const parts = specifier.split("/");
    const name = specifier.startsWith("@") ? parts.slice(0, 2).join("/") : (parts[0] ?? "");
    return { from, to: name, own: false, kind };
  }
  return { from, to: normalize(join(dirname(from), specifier)), own: true, kind };
}

export function withoutComments(text: string): string {
  return text.replace(/\/\*.*?\*\//gs, "").replace(/^\s*\/\/.*$/gm, "");
}

/** All files and packages that imports accepted by `follow` reach from `start`, with their paths. */
export function reached(start: string, follow: (each: Import) => boolean): Map<string, string> {
  const ways = new Map([[start, start]]);
  const open = [start];
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    for (const each of importsOf(file).filter(follow)) {
      if (ways.has(each.to)) continue;
      ways.set(each.to, `${ways.get(file) ?? file} > ${each.to}`);
      if (each.own) open.push(each.to);
    }
  }
  return ways;
}
