// permissions.json: what the administrator of this machine allows an organization's control plane beyond the usual: routes,
// networks behind this machine, overlapping networks, listeners, interfaces, domains of names, and updates. The control plane
// never sends a file of this name. The flags of commands that change it: granted/permission-flags.ts.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { boundedText } from "../../base/text.ts";
import { removeTree, writeFileAtomic } from "../../base/files.ts";
import { isPrivate, parseNetwork } from "../../base/ip.ts";
import { planFile } from "../../base/plan/plan-file.ts";
import type { Step } from "../../base/plan/plan.ts";
import { maxSubnets } from "../../protocol/routing/advertised.ts";
import { NameSuffix } from "../../protocol/names.ts";
import { listOrganizations } from "./list-organizations.ts";
import { readJsonFile } from "./json-file.ts";
import { refuseForeignFile } from "./own-files.ts";
import { unsafeRoutes } from "./config/read-config.ts";

const mostEntries = 1000;
const texts = (longest: number) => v.pipe(v.array(boundedText(longest)), v.maxLength(mostEntries));
const Permissions = v.object({
  /** Networks that the control plane may route. A former version reads this alone, so it is always there. */
  routes: texts(64),
  /** Domains, beside `.internal`, that the organization's names may end in. */
  name_suffixes: v.optional(v.pipe(v.array(NameSuffix), v.maxLength(100)), []),
  /** Networks of the overlay that may take over networks of this machine. */
  overlaps: v.optional(texts(64), []),
  /** Where the engine may listen: "127.0.0.1:9100"; ":443" is its own UDP port. */
  listeners: v.optional(texts(270), []),
  /** Names of the engine's interface. */
  interfaces: v.optional(texts(15), []),
  /** Where the agent offers TCP fallback for its engine: ":443". "off": this node never goes by TCP itself. */
  tcp_fallback: v.optional(texts(64), []),
  /** Networks behind this machine that it offers to route, as parseOffer reads them. */
  advertise: v.optional(v.pipe(texts(200), v.maxLength(maxSubnets)), []),
  /** What the control plane may update: `agent`, `engine`, or `engine=URL` with a mirror. */
  updates: v.optional(v.pipe(texts(300), v.maxLength(4)), []),
  /** Parts of the internet that were routed before this needed a permission. They end when root sets `routes`. */
  former_routes: v.optional(texts(64), []),
  /** Other nodes may reach the internet through this machine, if the control plane makes it an exit. */
  advertise_exit: v.exactOptional(v.boolean()),
  /** No control plane learns which flows there are on this machine. */
  no_flows: v.exactOptional(v.boolean()),
  /** No router is asked to map a port to the engine. */
  no_port_mapping: v.exactOptional(v.boolean()),
  /** Which exit the packets of this machine take; `auto`: the best one. */
  exit: v.exactOptional(
    v.object({
      use: boundedText(255),
      /** Packets leave by the exit alone, and are blocked while it is away. */
      strict: v.boolean(),
      /** Private networks that the machine is in stay reachable. */
      lan: v.boolean(),
    }),
  ),
});
export type Permissions = v.InferOutput<typeof Permissions>;

const pathIn = (directory: string): string => join(directory, "permissions.json");

export const noPermissions: Permissions = {
  routes: [],
  name_suffixes: [],
  overlaps: [],
  listeners: [],
  interfaces: [],
  tcp_fallback: [],
  advertise: [],
  updates: [],
  former_routes: [],
};

/** Throws bad_configuration if the file is damaged, or if others than root can change it. */
export function readPermissions(directory: string): Permissions {
  refuseForeignFile(pathIn(directory));
  return readJsonFile(pathIn(directory), Permissions) ?? noPermissions;
}

/** Like readPermissions, but a file that cannot be read allows nothing. Most organizations have none: that is cheap to see. */
export function permissionsOrNone(directory: string): Permissions {
  if (!existsSync(pathIn(directory))) return noPermissions;
  try {
    return readPermissions(directory);
  } catch {
    return noPermissions;
  }
}

/** The permissions that change. `exit`: undefined ends the use of an exit. */
type PermissionChange = Partial<Omit<Permissions, "exit">> & { exit?: Permissions["exit"] | undefined };
type Written = PermissionChange & Pick<Permissions, "routes">;

/** Replaces these permissions. A damaged file is replaced, and a file that allows nothing is removed. */
export function writePermissions(directory: string, change: PermissionChange): void {
  write(directory, { ...permissionsOrNone(directory), ...change });
}

/**
 * At the upgrade from a version that asked for no permission: notes the parts of the internet that config.yml routes. Throws
 * bad_configuration for a damaged file, which stays as it is.
 */
export function keepFormerRoutes(directory: string, configYml: string): void {
  const former = unsafeRoutes(configYml).flatMap(({ network }) => {
    const parsed = parseNetwork(network);
    return parsed === undefined || isPrivate(parsed) ? [] : [parsed.text];
  });
  if (former.length > 0)
    write(directory, {
      ...readPermissions(directory),
      former_routes: [...new Set(former)].slice(0, mostEntries),
    });
}

/** The plan of writePermissions, for --dry-run. */
export function planPermissions(directory: string, change: PermissionChange): Step[] {
  return plan(directory, { ...permissionsOrNone(directory), ...change });
}

/** Replaces the allowed domains of names. Throws bad_configuration. */
export function writeAllowedSuffixes(directory: string, suffixes: readonly string[]): void {
  write(directory, { ...readPermissions(directory), name_suffixes: [...suffixes] });
}

/** The plan of writeAllowedSuffixes. */
export function planAllowedSuffixes(directory: string, suffixes: readonly string[]): Step[] {
  return plan(directory, { ...readPermissions(directory), name_suffixes: [...suffixes] });
}

function write(directory: string, permissions: Written): void {
  const path = pathIn(directory);
  const text = textOf(permissions);
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  if (existsSync(path) && (text === undefined || isDirectory)) removeTree(path);
  if (text !== undefined) writeFileAtomic(path, text, 0o644);
}

function plan(directory: string, permissions: Written): Step[] {
  const path = pathIn(directory);
  const step = { step: "file", path, mode: "0644" } as const;
  const text = textOf(permissions);
  if (text === undefined) return existsSync(path) ? [{ ...step, change: "removed" }] : [];
  // A directory in its place is replaced: there is no text to compare.
  const isDirectory = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  return [isDirectory ? { ...step, change: "changed" } : planFile(path, text, 0o644)];
}

/** Undefined if nothing is allowed. */
function textOf({ routes, ...others }: Written): string | undefined {
  const set = Object.entries(others).filter(([, value]) =>
    Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false,
  );
  if (routes.length === 0 && set.length === 0) return undefined;
  return `${JSON.stringify({ routes, ...Object.fromEntries(set) })}\n`;
}

/** Another organization of this machine whose control plane may update it. */
export const updatingBeside = ({
  configRoot,
  slug,
}: {
  configRoot: string;
  slug: string;
}): string | undefined =>
  listOrganizations(configRoot).find(
    (other) => other !== slug && permissionsOrNone(join(configRoot, other)).updates.length > 0,
  );
