// The flags of commands by which the administrator of this machine changes permissions.json, such as --allow-routes.

import { join } from "node:path";
import { AppError } from "../../../base/errors.ts";
import { formatAddress, joinHostPort, parseAddress, parseNetwork, withoutPort } from "../../../base/ip.ts";
import { quoteWord } from "../../../base/quote.ts";
import { brand } from "../../../brand.ts";
import { parseOffer } from "../../../protocol/routing/advertised.ts";
import { formatOffer } from "../../../protocol/routing/format-offer.ts";
import { isReleaseAddress } from "../../../release/release-address.ts";
import { overlayIn } from "./networks.ts";
import { permissionsOrNone, updatingBeside, type Permissions } from "../permissions.ts";

/** The permission of each flag that has a list. `read`: an entry in its usual form; undefined for other text. */
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
    read: readTcpListener,
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
  // Digits and dots alone are a mistyped address, not a host name.
  return host === "" || /^(?![\d.]+$)[A-Za-z0-9.-]{1,253}$/.test(host)
    ? `${host}:${Number(port)}`
    : undefined;
}

function readTcpListener(text: string): string | undefined {
  if (text === "off") return text;
  const listener = readListener(text);
  const host = listener === undefined ? undefined : withoutPort(listener);
  return host === "" || (host !== undefined && parseAddress(host) !== undefined) ? listener : undefined;
}

function readUpdates(text: string): string | undefined {
  if (text === "agent" || text === "engine") return text;
  const [, url = ""] = /^engine=(.{1,290})$/.exec(text) ?? [];
  // The address may have a place for the version: any version makes it a whole address.
  return isReleaseAddress(url.replace("{version}", "1.2.3")) ? text : undefined;
}

function readInterface(text: string): string | undefined {
  return /^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}$/.test(text) ? text : undefined;
}

/** The flag that also allows these. It has what was allowed before, too, because a flag replaces the whole list. */
export function flagAllowing(directory: string, flag: PermissionFlag, entries: readonly string[]): string {
  const key = flags.find((known) => known.flag === flag)?.key;
  const allowed = key === undefined ? [] : permissionsOrNone(directory)[key];
  return `--${flag} ${[...new Set([...allowed, ...entries])].map(quoteWord).join(",")}`;
}

type Place = { configRoot: string; slug: string };

/** A registration has no certificate yet: then offers.ts leaves the offer out. */
function refuseOverlay(offers: readonly string[], { configRoot, slug }: Place): void {
  for (const text of offers) {
    const offer = parseOffer(text);
    const overlay = offer && overlayIn(offer, join(configRoot, slug));
    if (overlay !== undefined)
      throw new AppError("usage", `--advertise: ${text} overlaps the overlay's own network ${overlay}`, {
        hint: "Offer networks behind this machine alone: nodes reach each other without a route.",
      });
  }
}

/**
 * Throws conflict if another organization may update already: if two may, none is obeyed, and the first would lose its updates
 * without a word.
 */
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
  const before = permissionsOrNone(directory);
  const difference = (flag: string, now: string, was: string) =>
    now === was ? [] : [{ flag, text: `--${flag} is now ${now}, was ${was}` }];
  const list = (entries: readonly string[]) => (entries.length === 0 ? "none" : entries.join(","));
  const onOff = (value = false) => (value ? "on" : "off");
  return [
    ...flags.flatMap(({ flag, key }) =>
      difference(flag, list(change[key] ?? before[key]), list(before[key])),
    ),
    ...switches.flatMap(({ key, on }) =>
      difference(on, onOff(change[key] ?? before[key]), onOff(before[key])),
    ),
  ];
}

/** The flags that switch a permission on and off. `safe`: the value that wins if both flags are given. */
const switches = [
  { key: "advertise_exit", on: "advertise-exit", off: "no-advertise-exit", safe: false },
  { key: "no_flows", on: "no-flows", off: "flows", safe: true },
  { key: "no_port_mapping", on: "no-port-mapping", off: "port-mapping", safe: true },
] as const;

type SwitchFlag = (typeof switches)[number]["on" | "off"];

/**
 * The permissions from flags: lists with commas, or "none". Flags that are not given change nothing. Throws usage, and
 * conflict if another organization of the machine has a permission that one alone can have.
 */
export function parsePermissions(
  valueOf: (flag: PermissionFlag | SwitchFlag | "no-tcp") => string | undefined,
  place: Place,
): Partial<Permissions> {
  const allowed: Partial<Permissions> = {};
  for (const { key, on, off, safe } of switches) {
    const isOn = valueOf(on) === "true";
    const isOff = valueOf(off) === "true";
    if (isOn || isOff) allowed[key] = isOn && isOff ? safe : isOn;
  }
  for (const { flag, key, read, example } of flags) {
    const text = flag === "tcp-fallback" && valueOf("no-tcp") === "true" ? "off" : valueOf(flag);
    if (text === undefined) continue;
    const words = text === "none" ? [] : text.split(",").map((word) => word.trim());
    const entries = words.map((word) => {
      const entry = read(word);
      if (entry !== undefined) return entry;
      throw new AppError("usage", `--${flag}: "${word}" is not ${example}`);
    });
    if (key === "advertise") refuseOverlay(entries, place);
    allowed[key] = entries;
    // Now root has decided: routes from before an upgrade that stayed without a permission (grants.ts) end unless the list has them.
    if (key === "routes") allowed.former_routes = [];
    if (key === "updates" && entries.length > 0) refuseSecondUpdater(place);
  }
  return allowed;
}
