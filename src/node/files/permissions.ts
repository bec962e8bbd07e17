// permissions.json: the routes that the administrator of this machine allows an organization's control plane in addition
// to the default ones. The control plane never sends a file of this name.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { removeTree, writeFileAtomic } from "../../files.ts";
import { parseNetwork } from "../../ip.ts";
import { planFile } from "../../plan-file.ts";
import type { Step } from "../../plan.ts";
import { readJsonFile } from "./organizations.ts";
import { refuseForeignFile } from "./own-files.ts";

const Permissions = v.object({ routes: v.array(v.pipe(v.string(), v.maxLength(64))) });

const pathIn = (directory: string): string => join(directory, "permissions.json");

/**
 * Networks that the control plane may route. Throws bad_configuration if the file is damaged, or if others than root can
 * change it.
 */
export function readAllowedRoutes(directory: string): string[] {
  refuseForeignFile(pathIn(directory));
  return readJsonFile(pathIn(directory), Permissions)?.routes ?? [];
}

/** Replaces the allowed networks. An empty list removes the file. */
export function writeAllowedRoutes(directory: string, routes: readonly string[]): void {
  const path = pathIn(directory);
  if (existsSync(path)) removeTree(path);
  if (routes.length > 0) writeFileAtomic(path, textOf(routes), 0o644);
}

/** The plan of writeAllowedRoutes, for --dry-run. */
export function planAllowedRoutes(directory: string, routes: readonly string[]): Step[] {
  const path = pathIn(directory);
  const step = { step: "file", path, mode: "0644" } as const;
  if (routes.length === 0) return existsSync(path) ? [{ ...step, change: "removed" }] : [];
  // A directory in its place is replaced: there is no text to compare.
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  return [isDirectory ? { ...step, change: "changed" } : planFile(path, textOf(routes), 0o644)];
}

const textOf = (routes: readonly string[]): string => `${JSON.stringify({ routes })}\n`;

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
