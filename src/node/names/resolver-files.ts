// Files of macOS, one for each domain, that say which server to ask for names in it (resolver(5)). They outlive this process,
// so each start compares them and each end removes them. A file that is not marked as ours is never changed.

import { linkSync, lstatSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { brand } from "../../brand.ts";
import { fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { readTextIfThere, syncDirectory, writeNewFile } from "../../base/files.ts";
import { rename } from "../../platform/file-system.ts";
import { makeLastingSettings, type ResolutionSettings } from "./lasting-settings.ts";
import type { Zone } from "./name-records.ts";
import type { HostPort } from "./resolver.ts";
import type { LinkState } from "./service-state.ts";

export const resolverDirectory = "/etc/resolver";

const mark = `# Written by ${brand.id} (${brand.executable} names), which replaces and removes this file\n`;

/** Pure. */
function resolverFile({ host, port }: HostPort): string {
  return `${mark}nameserver ${host}\nport ${port}\n`;
}

type Deps = { directory: string; server: HostPort; monotonic: () => number };

export function makeResolverFiles({ directory, server, monotonic }: Deps): ResolutionSettings {
  return makeLastingSettings({
    monotonic,
    clear: () => clearResolverFiles(directory),
    apply: (zones) => ({ way: "resolver_files", links: putFiles(directory, zones, resolverFile(server)) }),
  });
}

/** Removes all our files. */
export function clearResolverFiles(directory: string): void {
  removeExcept(directory, new Set());
}

function putFiles(directory: string, zones: readonly Zone[], text: string): LinkState[] {
  removeExcept(directory, new Set(zones.flatMap(({ domains }) => domains)));
  return zones.map(({ slug, domains }) => {
    // Writes the files that are missing or old. What stays in the list belongs to another program.
    const foreign = domains
      .map((domain) => join(directory, domain))
      .filter((path) => {
        const owner = ownershipOf(path);
        if (owner === "foreign") return true;
        if (owner === "ours" && readTextIfThere(path) === text) return false;
        return !installFile(path, text, owner);
      });
    if (foreign.length === 0) return { slug, state: "served" };
    return { slug, state: "refused", reason: `${foreign.join(", ")}: a file of another program` };
  });
}

/** False if another program has created the file meanwhile. Written outside the directory first: macOS reads every file in it. */
function installFile(path: string, text: string, owner: "ours" | "none"): boolean {
  const directory = dirname(path);
  const temporary = join(dirname(directory), `.${brand.id}.resolver.tmp`);
  try {
    mkdirSync(directory, { recursive: true, mode: 0o755 });
    rmSync(temporary, { force: true });
    writeNewFile(temporary, text, 0o644);
    // Unlike a rename, a link replaces nothing.
    if (owner === "ours") rename(temporary, path);
    else linkSync(temporary, path);
    syncDirectory(directory);
    return true;
  } catch (error) {
    if (systemErrorCode(error) === "EEXIST") return false;
    throw fromSystemError(`write ${path}`, error);
  } finally {
    rmSync(temporary, { force: true });
  }
}

function removeExcept(directory: string, kept: ReadonlySet<string>): void {
  try {
    for (const name of readdirSync(directory)) {
      const path = join(directory, name);
      if (!kept.has(name) && ownershipOf(path) === "ours") rmSync(path, { force: true });
    }
  } catch (error) {
    if (systemErrorCode(error) !== "ENOENT") throw fromSystemError(`read ${directory}`, error);
  }
}

const maxBytes = 4096;

function ownershipOf(path: string): "none" | "ours" | "foreign" {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return "none";
  if (!found.isFile() || found.size > maxBytes) return "foreign";
  return readTextIfThere(path)?.startsWith(mark) === true ? "ours" : "foreign";
}
