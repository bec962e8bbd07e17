// permissions.json: what the administrator of this machine allows an organization's control plane beyond the usual: routes,
// networks behind this machine, overlapping networks, listeners, interfaces, domains of names, and updates. The control plane never sends a file of this name.

import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { removeTree, writeFileAtomic } from "../../base/files.ts";
import {
  formatAddress,
  isPrivate,
  joinHostPort,
  parseAddress,
  parseNetwork,
  withoutPort,
} from "../../base/ip.ts";
import { planFile } from "../../base/plan/plan-file.ts";
import { brand } from "../../brand.ts";
import type { Step } from "../../base/plan/plan.ts";
import { quoteWord } from "../../base/quote.ts";
import { maxSubnets, parseOffer } from "../../protocol/routing/advertised.ts";
import { formatOffer } from "../../protocol/routing/format-offer.ts";
import { NameSuffix } from "../../protocol/names.ts";
import { isReleaseAddress } from "../../release/release-address.ts";
import { listOrganizations } from "./list-organizations.ts";
import { readJsonFile } from "./json-file.ts";
import { refuseForeignFile } from "./own-files.ts";
import { unsafeRoutes } from "./config/read-config.ts";

const mostEntries = 1000;
const texts = (longest: number) =>
  v.pipe(v.array(v.pipe(v.string(), v.maxLength(longest))), v.maxLength(mostEntries));
const Permissions = v.object({
  /** Networks that the control plane may route. A former version reads this alone, so it is always there. */
  routes: texts(64),
  /** Domains, beside `.internal`, that the organization's names may end in. */
  name_suffixes: v.optional(v.pipe(v.array(NameSuffix), v.maxLength(100)), []),
  /** Networks of the overlay that may take over networks of this machine. */
  overlaps: v.optional(texts(64), []),
  /** "127.0.0.1:9100"; ":443" is the UDP port of the engine. */
  listeners: v.optional(texts(270), []),
  /** Names of the engine's interface. */
  interfaces: v.optional(texts(15), []),
  /** Where the agent offers TCP fallback for its engine: ":443". "off": this node never goes by TCP itself. */
  tcp_fallback: v.optional(texts(64), []),
  /** Networks behind this machine that it offers to route, as parseOffer reads them. */
  advertise: v.optional(v.pipe(texts(200), v.maxLength(maxSubnets)), []),
  /** What the control plane may update: `agent`, `engine`, or `engine=URL` with a mirror. */
  updates: v.optional(v.pipe(texts(300), v.maxLength(4)), []),
  /** Parts of the internet that were routed before this needed a permission, until root says what is allowed. */
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
      use: v.pipe(v.string(), v.maxLength(255)),
      /** Packets never leave beside the exit, not even while it is dead. */
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

/** Undefined takes a permission away. */
type PermissionChange = Partial<Omit<Permissions, "exit">> & { exit?: Permissions["exit"] | undefined };
type Written = PermissionChange & Pick<Permissions, "routes">;

/** Replaces these permissions. A damaged file is replaced, and a file that allows nothing is removed. */
export function writePermissions(directory: string, change: PermissionChange): void {
  write(directory, { ...permissionsOrNone(directory), ...change });
}

/** At the upgrade of this program, whose former version asked for no permission. A damaged file stays as it is, and is named. */
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
  const given = Object.entries(others).filter(([, each]) =>
    Array.isArray(each) ? each.length > 0 : each !== undefined && each !== false,
  );
  if (routes.length === 0 && given.length === 0) return undefined;
  return `${JSON.stringify({ routes, ...Object.fromEntries(given) })}\n`;
}

/** The permission of each flag, and how its entries are read: undefined for other text. */
const flags = [
  {
    flag: "allow-routes",
    key: "routes",
    read: readNetwork,
    example: "a network such as 0.0.0.0/0 (host bits must be zero)",
  },
  {
    flag: "allow-overlap",
    key: "overlaps",
    read: readNetwork,
    example: "a network such as 10.77.0.0/16 (host bits must be zero)",
  },
  {
    flag: "allow-listeners",
    key: "listeners",
    read: readListener,
    example: "an address and a port such as 127.0.0.1:9100, or :443 for the UDP port of the engine",
  },
  {
    flag: "allow-interfaces",
    key: "interfaces",
    read: readInterface,
    example: "a name of 1 to 15 characters",
  },
  {
    flag: "tcp-fallback",
    key: "tcp_fallback",
    read: readTcp,
    example: "a TCP port of this machine such as :443, an address with one, or off",
  },
  {
    flag: "advertise",
    key: "advertise",
    read: readOffer,
    example:
      "a network such as 192.168.7.0/24, 10.201.7.0/24=192.168.7.0/24 (translated), 192.168.7.0/24@192.168.7.1 (watched) or 192.168.7.0/24+masquerade",
  },
  {
    flag: "allow-updates",
    key: "updates",
    read: readUpdates,
    example: "agent, engine, or engine=URL with the https:// address of a mirror of engines",
  },
] as const;

export type PermissionFlag = (typeof flags)[number]["flag"];

function readNetwork(text: string): string | undefined {
  return parseNetwork(text)?.text;
}

function readOffer(text: string): string | undefined {
  const offer = parseOffer(text);
  return offer === undefined ? undefined : formatOffer(offer);
}

function readListener(text: string): string | undefined {
  const [, host, port] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  if (host === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined;
  const address = parseAddress(host.replace(/^\[(.*)\]$/, "$1"));
  if (address !== undefined) return joinHostPort(formatAddress(address), Number(port));
  return host === "" || /^(?![\d.]+$)[A-Za-z0-9.-]{1,253}$/.test(host)
    ? `${host}:${Number(port)}`
    : undefined;
}

function readTcp(text: string): string | undefined {
  if (text === "off") return text;
  const listener = readListener(text);
  const host = listener === undefined ? undefined : withoutPort(listener);
  return host === "" || (host !== undefined && parseAddress(host) !== undefined) ? listener : undefined;
}

function readUpdates(text: string): string | undefined {
  const [what, ...address] = text.split("=");
  if (address.length === 0) return what === "agent" || what === "engine" ? what : undefined;
  const url = address.join("=");
  return what === "engine" && url.length <= 290 && isReleaseAddress(url.replace("{version}", "1.2.3"))
    ? text
    : undefined;
}

function readInterface(text: string): string | undefined {
  return /^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}$/.test(text) ? text : undefined;
}

/** The flag that allows these too: it replaces the whole list, so what was allowed before is in it. */
export function flagAllowing(directory: string, flag: PermissionFlag, entries: readonly string[]): string {
  const present = flags.flatMap((each) => (each.flag === flag ? permissionsOrNone(directory)[each.key] : []));
  return `--${flag} ${[...new Set([...present, ...entries])].map(quoteWord).join(",")}`;
}

type Place = { configRoot: string; slug: string };

/** Another organization of this machine that root permits updates. */
export const updatingBeside = ({ configRoot, slug }: Place): string | undefined =>
  listOrganizations(configRoot).find(
    (other) => other !== slug && permissionsOrNone(join(configRoot, other)).updates.length > 0,
  );

/** Throws conflict if another organization may update already: with two, neither may, and the first would lose its updates silently. */
function refuseSecondUpdater(place: Place): void {
  const other = updatingBeside(place);
  if (other === undefined) return;
  throw new AppError(
    "conflict",
    `--allow-updates: one organization of a machine may update it, and on this machine that is ${other}`,
    {
      hint: `End that permission first: \`${brand.executable} sync-config --org-slug ${quoteWord(other)} --allow-updates none\``,
    },
  );
}

/** What this change makes different, as sentences. `flag`: without dashes. */
export function permissionChanges(
  directory: string,
  change: Partial<Permissions>,
): { flag: string; text: string }[] {
  const former = permissionsOrNone(directory);
  const difference = (flag: string, now: string, before: string) =>
    now === before ? [] : [{ flag, text: `--${flag} is now ${now}, was ${before}` }];
  const list = (entries: readonly string[]) => (entries.length === 0 ? "none" : entries.join(","));
  const onOff = (value = false) => (value ? "on" : "off");
  return [
    ...flags.flatMap(({ flag, key }) =>
      difference(flag, list(change[key] ?? former[key]), list(former[key])),
    ),
    ...(["advertise_exit", "no_flows", "no_port_mapping"] as const).flatMap((key) =>
      difference(key.replaceAll("_", "-"), onOff(change[key] ?? former[key]), onOff(former[key])),
    ),
  ];
}

/**
 * The permissions from flags: lists with commas, or "none". Flags that are not given change nothing. Throws usage, and
 * conflict if another organization of the machine has a permission that one alone can have.
 */
export function parsePermissions(
  valueOf: (
    flag:
      | PermissionFlag
      | "advertise-exit"
      | "no-advertise-exit"
      | "flows"
      | "no-flows"
      | "no-tcp"
      | "port-mapping"
      | "no-port-mapping",
  ) => string | undefined,
  place: Place,
): Partial<Permissions> {
  const allowed: Partial<Permissions> = {};
  for (const [key, yes, no] of [
    ["advertise_exit", "advertise-exit", "no-advertise-exit"],
    ["no_flows", "no-flows", "flows"],
    ["no_port_mapping", "no-port-mapping", "port-mapping"],
  ] as const) {
    if (valueOf(yes) === "true") allowed[key] = true;
    // If both flags are given, the safe one wins.
    if (valueOf(no) === "true" && (allowed[key] !== true || key === "advertise_exit")) allowed[key] = false;
  }
  for (const { flag, key, read, example } of flags) {
    const text = flag === "tcp-fallback" && valueOf("no-tcp") === "true" ? "off" : valueOf(flag);
    if (text === undefined) continue;
    const entries = text === "none" ? [] : text.split(",").map((each) => each.trim());
    allowed[key] = entries.map((each) => {
      const entry = read(each);
      if (entry !== undefined) return entry;
      throw new AppError("usage", `--${flag}: "${each}" is not ${example}`);
    });
    if (key === "routes") allowed.former_routes = [];
    if (key === "updates" && entries.length > 0) refuseSecondUpdater(place);
  }
  return allowed;
}
