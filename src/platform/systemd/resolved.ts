// The settings of one network interface in systemd-resolved, by D-Bus (org.freedesktop.resolve1(5)). Nothing is on disk:
// they end with the interface. Never touches settings of other interfaces, or those of the whole machine.

import { realpathSync } from "node:fs";
import * as v from "valibot";
import { addressBytes, parseAddress } from "../../base/ip.ts";
import { BusError, type Bus } from "./dbus.ts";
import { readText } from "../../base/open-file.ts";

export const resolvedName = "org.freedesktop.resolve1";
const manager = {
  destination: resolvedName,
  path: "/org/freedesktop/resolve1",
  interface: `${resolvedName}.Manager`,
};

export type LinkNames = {
  /** The index of the interface. */
  link: number;
  server: { host: string; port: number };
  /** Without a final dot. Only names in these are asked for on the interface. */
  domains: readonly string[];
  /** The domain of these that is appended to short names. */
  search?: string;
};

/** AF_INET */
const inet = 2;
const bytes = v.pipe(v.array(v.number()), v.maxLength(16));
/** `DNSEx`: family, address, port and TLS name of each server. `Domains`: see setLinkNames. */
const Properties = v.object({
  DNSEx: v.array(v.tuple([v.number(), bytes, v.number(), v.string()])),
  Domains: v.array(v.tuple([v.string(), v.boolean()])),
  DefaultRoute: v.boolean(),
  LLMNR: v.string(),
  MulticastDNS: v.string(),
  DNSSEC: v.string(),
  DNSOverTLS: v.string(),
});

/**
 * What is switched off: by LLMNR and MulticastDNS, other machines of the overlay would see queries, and our resolver neither signs
 * answers nor speaks TLS.
 */
const off = { LLMNR: "no", MulticastDNS: "no", DNSSEC: "no", DNSOverTLS: "no" } as const;

/** Whether programs of this machine ask systemd-resolved. That it runs is not enough. */
export function asksResolved(etc = "/etc"): boolean {
  const file = `${etc}/resolv.conf`;
  const text = textOf(file);
  const server = /^\s*nameserver\s+(\S+)/m.exec(text)?.[1];
  if (server === "127.0.0.53" || server === "127.0.0.54") return true;
  const hosts = /^\s*hosts:([^#\n]*)/m.exec(textOf(`${etc}/nsswitch.conf`))?.[1] ?? "";
  if (hosts.split(/\s+/).includes("resolve")) return true;
  try {
    return realpathSync(file).endsWith("/systemd/resolve/stub-resolv.conf");
  } catch {
    return false;
  }
}

/** Whether systemd-resolved runs. Does not start it. */
export async function runsResolved(bus: Bus): Promise<boolean> {
  const [isOwned] = await bus.call({
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    member: "NameHasOwner",
    signature: "s",
    body: [resolvedName],
  });
  return isOwned === true;
}

/**
 * Sets what differs. True if something did. The server comes last: before the domains are set, an interface with a server
 * is asked for every name, and this server would refuse them.
 */
export async function setLinkNames(bus: Bus, wanted: LinkNames): Promise<boolean> {
  const present = await readLink(bus, wanted.link);
  // The boolean: names in the domain are asked for here, and the domain is not appended to short names.
  const domains = wanted.domains.map((each): [string, boolean] => [each, each !== wanted.search]);
  const dns = [[inet, hostBytes(wanted.server.host), wanted.server.port, ""]] as const;
  const areDomainsWrong = present.DefaultRoute || !Bun.deepEquals(sorted(present.Domains), sorted(domains));
  const isServerWrong = !Bun.deepEquals(present.DNSEx, dns);
  const wrongSwitches = (Object.keys(off) as (keyof typeof off)[]).filter(
    (each) => present[each] !== off[each],
  );
  if (!areDomainsWrong && !isServerWrong && wrongSwitches.length === 0) return false;
  const set = (member: string, signature: string, value: unknown) =>
    bus.call({ ...manager, member, signature: `i${signature}`, body: [wanted.link, value] });
  try {
    if (areDomainsWrong) {
      await set("SetLinkDefaultRoute", "b", false);
      await set("SetLinkDomains", "a(sb)", domains);
    }
    for (const each of wrongSwitches) await set(`SetLink${each}`, "s", off[each]);
    if (isServerWrong) await set("SetLinkDNSEx", "a(iayqs)", dns);
    return true;
  } catch (error) {
    // All or nothing: releases before 246 lack the last call, and names then belong into /etc/hosts.
    await bus.call(revertCall(wanted.link)).catch(() => undefined);
    throw error;
  }
}

const revertCall = (link: number) => ({ ...manager, member: "RevertLink", signature: "i", body: [link] });

/** Reverts all settings if the interface has our server. False if it has not, or does not exist any more. */
export async function revertLink(bus: Bus, link: number, server: LinkNames["server"]): Promise<boolean> {
  try {
    const { DNSEx } = await readLink(bus, link);
    const own = hostBytes(server.host);
    if (!DNSEx.some(([, host, port]) => port === server.port && Bun.deepEquals(host, own))) return false;
    await bus.call(revertCall(link));
    return true;
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

/** The interface does not exist, or systemd-resolved does not know it yet; or systemd-resolved has ended. */
export function isGone(error: unknown): boolean {
  return (
    error instanceof BusError &&
    /\.(NoSuchLink|UnknownObject|NameHasNoOwner|ServiceUnknown|NoReply)$/.test(error.errorName)
  );
}

async function readLink(bus: Bus, link: number): Promise<v.InferOutput<typeof Properties>> {
  const [path] = await bus.call({ ...manager, member: "GetLink", signature: "i", body: [link] });
  const [properties] = await bus.call({
    destination: resolvedName,
    path: String(path),
    interface: "org.freedesktop.DBus.Properties",
    member: "GetAll",
    signature: "s",
    body: [`${resolvedName}.Link`],
  });
  return v.parse(
    Properties,
    Object.fromEntries(v.parse(v.array(v.tuple([v.string(), v.unknown()])), properties)),
  );
}

const sorted = (domains: readonly [string, boolean][]) => domains.map(String).toSorted();

function hostBytes(host: string): number[] {
  const address = parseAddress(host);
  return address === undefined ? [] : addressBytes(address);
}

function textOf(path: string): string {
  try {
    return readText(path);
  } catch {
    // Missing or not readable: programs do not read it either.
    return "";
  }
}
