// Steps of a --dry-run plan: what writing a file or creating a directory would change. It changes nothing.

import { existsSync, lstatSync, readdirSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { hasMode, readTextIfThere } from "../files.ts";
import type { Step } from "./plan.ts";
import { diff } from "./diff.ts";

/** Plans writing `content` to `path`. With `secret`, the plan holds no content. */
export function planFile(
  path: string,
  content: string,
  mode: number,
  options: { secret?: boolean } = {},
): Step {
  const before = readTextIfThere(path);
  let change: "created" | "changed" | "same" = "changed";
  if (before === undefined) change = "created";
  else if (before === content && hasMode(path, mode)) change = "same";
  const shown = change === "same" || options.secret ? {} : { diff: diff(before ?? "", content) };
  return { step: "file", path, mode: octal(mode), change, ...shown };
}

/** Plans replacing a file whose new content is not known yet or is secret. */
export function planReplaced(path: string, mode: number): Step {
  return { step: "file", path, mode: octal(mode), change: existsSync(path) ? "changed" : "created" };
}

/** Plans creating directories of one user: a step for each and for each missing parent. Their paths end with a slash. */
export function planDirectories(paths: readonly string[]): Step[] {
  const missing = new Set<string>();
  for (const path of paths) {
    for (let each = resolve(path); !existsSync(each); each = dirname(each)) missing.add(join(each, "/"));
  }
  return [...missing].sort().map((path) => ({ step: "file", path, mode: octal(0o700), change: "created" }));
}

/** Plans removing a file or a tree: a step for each file. Links are not followed: their targets stay. */
export function planRemoved(path: string): Step[] {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return [];
  if (found.isDirectory())
    return readdirSync(path)
      .sort()
      .flatMap((name) => planRemoved(join(path, name)));
  const { mode } = statSync(path, { throwIfNoEntry: false }) ?? found;
  return [{ step: "file", path, mode: octal(mode & 0o777), change: "removed" }];
}

/** 0755. */
function octal(mode: number): string {
  return `0${mode.toString(8)}`;
}
