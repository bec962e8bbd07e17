// permissions.json: what the administrator of this machine allows an organization's control plane beyond the usual: routes,
// and domains of names. The control plane never sends a file of this name.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { removeTree, writeFileAtomic } from "../../files.ts";
import { parseNetwork } from "../../ip.ts";
import { planFile } from "../../plan-file.ts";
import type { Step } from "../../plan.ts";
import { NameSuffix } from "../../protocol/names.ts";
import { readJsonFile } from "./organizations.ts";
import { refuseForeignFile } from "./own-files.ts";

const Permissions = v.object({
  routes: v.array(v.pipe(v.string(), v.maxLength(64))),
  name_suffixes: v.optional(v.pipe(v.array(NameSuffix), v.maxLength(100)), []),
});
type Permissions = v.InferOutput<typeof Permissions>;

const pathIn = (directory: string): string => join(directory, "permissions.json");

const nothing: Permissions = { routes: [], name_suffixes: [] };

/**
 * Networks that the control plane may route. Throws bad_configuration if the file is damaged, or if others than root can
 * change it.
 */
export function readAllowedRoutes(directory: string): string[] {
  return read(directory).routes;
}

/** Domains, beside `.internal`, that the organization's names may end in. Throws bad_configuration. */
export function readAllowedSuffixes(directory: string): string[] {
  return read(directory).name_suffixes;
}

function read(directory: string): Permissions {
  refuseForeignFile(pathIn(directory));
  return readJsonFile(pathIn(directory), Permissions) ?? nothing;
}

/** Replaces the allowed networks. A damaged file is replaced, and a file that allows nothing is removed. */
export function writeAllowedRoutes(directory: string, routes: readonly string[]): void {
  write(directory, { ...readOrNothing(directory), routes: [...routes] });
}

/** Replaces the allowed domains of names. Throws bad_configuration. */
export function writeAllowedSuffixes(directory: string, suffixes: readonly string[]): void {
  write(directory, { ...read(directory), name_suffixes: [...suffixes] });
}

/** The plan of writeAllowedRoutes, for --dry-run. */
export function planAllowedRoutes(directory: string, routes: readonly string[]): Step[] {
  return plan(directory, { ...readOrNothing(directory), routes: [...routes] });
}

/** The plan of writeAllowedSuffixes. */
export function planAllowedSuffixes(directory: string, suffixes: readonly string[]): Step[] {
  return plan(directory, { ...read(directory), name_suffixes: [...suffixes] });
}

function readOrNothing(directory: string): Permissions {
  try {
    return read(directory);
  } catch {
    return nothing;
  }
}

function write(directory: string, permissions: Permissions): void {
  const path = pathIn(directory);
  const text = textOf(permissions);
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  if (existsSync(path) && (text === undefined || isDirectory)) removeTree(path);
  if (text !== undefined) writeFileAtomic(path, text, 0o644);
}

function plan(directory: string, permissions: Permissions): Step[] {
  const path = pathIn(directory);
  const step = { step: "file", path, mode: "0644" } as const;
  const text = textOf(permissions);
  if (text === undefined) return existsSync(path) ? [{ ...step, change: "removed" }] : [];
  // A directory in its place is replaced: there is no text to compare.
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  return [isDirectory ? { ...step, change: "changed" } : planFile(path, text, 0o644)];
}

/** Undefined if nothing is allowed. A former version reads `routes` alone, so it is always there. */
function textOf({ routes, name_suffixes }: Permissions): string | undefined {
  if (routes.length === 0 && name_suffixes.length === 0) return undefined;
  return `${JSON.stringify({ routes, ...(name_suffixes.length === 0 ? {} : { name_suffixes }) })}\n`;
}

/** "0.0.0.0/0,::/0", or "none". Throws usage. */
export function parseAllowedRoutes(text: string): string[] {
  if (text === "none") return [];
  return text.split(",").map((each) => {
    const network = parseNetwork(each.trim());
    if (network !== undefined) return network.text;
    throw new AppError(
      "usage",
      `--allow-routes: "${each}" is not a network such as 0.0.0.0/0 (host bits must be zero)`,
    );
  });
}
