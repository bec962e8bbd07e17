// Which of the imported hosts are lighthouses and relays, at which public addresses, and which subnets they route: what the
// configurations say, as far as the API would accept it. The rest is named with file and line. Pure.

import { basename, dirname, join, relative, resolve } from "node:path";
import * as v from "valibot";
import { Cidr } from "../../engine/allowed-settings.ts";
import { messageOf } from "../../base/errors.ts";
import {
  addressBits,
  canonicalAddress,
  holdsNetwork,
  isPrivate,
  makeNetwork,
  parseAddress,
  parseNetworks,
  parseAddressInNetwork,
  formatAddress,
} from "../../base/ip.ts";
import { Port, PublicAddress } from "../../protocol/values.ts";
import { decodeBundle } from "../../pki/bundle.ts";
import { fingerprint } from "../../pki/nebula.ts";
import { hubOf, requireRoutable, unreachable, type Obstacles } from "../nodes/subnets.ts";
import type { HandMade } from "./import-files.ts";
import { above, quoted, type Machine, type Statement } from "./hand-config.ts";
import type { Networks, PlannedHost } from "./import-hosts.ts";
import { isHub } from "../../protocol/routing/roles.ts";

type Scope = Networks & {
  certificateVersion: 1 | "both" | 2;
  /** The host of the control plane's public URL. */
  controlPlane: string;
};

/** Completes the hosts: sets their roles, public addresses and subnets. Adds to `notes` what is left out, and why. */
export function assignRoles(
  hosts: readonly PlannedHost[],
  found: HandMade,
  scope: Scope,
  notes: string[],
): void {
  const { lighthouses, relays, machines, routes } = found.configs;
  const byAddress = indexByAddress(hosts);
  const hostNamed = ({ text, at }: Statement, path: string): PlannedHost | undefined => {
    const host = byAddress.get(canonicalAddress(text));
    if (host === undefined) notes.push(`${at}: ${path} ${quoted(text)} is no imported host; not imported.`);
    return host;
  };
  for (const statement of firstOfEach(lighthouses)) {
    const host = hostNamed(statement, "lighthouse.hosts");
    if (host !== undefined) host.isLighthouse = true;
  }
  for (const statement of firstOfEach(relays)) {
    const host = hostNamed(statement, "relay.relays");
    if (host !== undefined) host.isRelay = true;
  }
  const advertised = ownRoles(hosts, machines, found, notes);
  placeHosts(hosts, byAddress, { found, scope, advertised }, notes);
  routeSubnets(hosts, firstOfEach(routes), byAddress, scope, notes);
}

/** The first of equal statements: many configurations say the same. */
function firstOfEach<T extends Statement & { via?: string; overlay?: string }>(all: readonly T[]): T[] {
  const first = new Map<string, T>();
  for (const each of all) {
    first.getOrInsert(JSON.stringify([each.text, each.via, each.overlay]), each);
  }
  return [...first.values()];
}

/** The hosts by every address of their certificates, in both families. */
function indexByAddress(hosts: readonly PlannedHost[]): Map<string, PlannedHost> {
  const index = new Map<string, PlannedHost>();
  for (const host of hosts)
    for (const { networks } of host.current)
      for (const text of networks) {
        const address = parseAddressInNetwork(text);
        if (address !== undefined) index.set(formatAddress(address), host);
      }
  return index;
}

/** Reads the roles of machines from their own configurations. Returns the addresses that each host advertises. */
function ownRoles(
  hosts: readonly PlannedHost[],
  machines: readonly Machine[],
  found: HandMade,
  notes: string[],
): Map<PlannedHost, Statement[]> {
  const advertised = new Map<PlannedHost, Statement[]>();
  const byPrint = new Map(
    hosts.flatMap((host) =>
      [...host.current, ...host.former].map((each): [string, PlannedHost] => [fingerprint(each), host]),
    ),
  );
  const hostOf = hostsByConfig(found, byPrint);
  for (const machine of machines) {
    const { amLighthouse, amRelay } = machine;
    const roles = [amLighthouse, amRelay].flatMap((role) => (role?.value === true ? [role] : []));
    const statements: Statement[] = [...roles, ...machine.advertised];
    if (statements.length === 0) continue;
    const host = hostOf(machine);
    if (host === undefined) {
      const why =
        machine.cert === undefined
          ? "no file beside it has pki.cert"
          : `pki.cert (${machine.cert.at}) is no certificate of an imported host`;
      for (const { at } of statements)
        notes.push(`${at}: which host this is about is not known, because ${why}; not imported.`);
      continue;
    }
    if (amLighthouse?.value === true) host.isLighthouse = true;
    if (amRelay?.value === true) host.isRelay = true;
    advertised.getOrInsertComputed(host, () => []).push(...machine.advertised);
  }
  return advertised;
}

/**
 * Finds the host of a machine by its `pki.cert`, which is the certificate or its path on the machine. In the directory it is the same
 * path, the file of this name beside the configuration or above it, or the only file of this name.
 */
function hostsByConfig({ directory, hosts: files }: HandMade, byPrint: ReadonlyMap<string, PlannedHost>) {
  const byFile = new Map<string, PlannedHost>();
  const byName = new Map<string, Set<PlannedHost>>();
  for (const { file, value } of files) {
    const host = byPrint.get(fingerprint(value));
    if (host === undefined) continue;
    byFile.set(file, host);
    byName.getOrInsertComputed(basename(file), () => new Set()).add(host);
  }
  return ({ cert }: Machine): PlannedHost | undefined => {
    if (cert === undefined) return undefined;
    if (cert.text.includes("-----BEGIN")) {
      const prints = decodeBundle(`${cert.text}\n`).map(fingerprint);
      return prints.flatMap((each) => byPrint.get(each) ?? [])[0];
    }
    const name = basename(cert.text);
    const places = [
      relative(resolve(directory), resolve(directory, dirname(cert.file), cert.text)),
      ...above(cert.file).map((each) => join(each, name)),
    ];
    const found = places.flatMap((place) => byFile.get(place) ?? [])[0];
    const [only, ...more] = byName.get(name) ?? [];
    return found ?? (more.length === 0 ? only : undefined);
  };
}

/** A public address with its port, as the API accepts it: with an invalid one, engines refuse the configuration of every node. */
const Place = v.object({ address: PublicAddress, port: Port });

/** `advertised`: the addresses that each host advertises in its own configuration. */
type Placing = { found: HandMade; scope: Scope; advertised: ReadonlyMap<PlannedHost, Statement[]> };

/** Gives each host the best of the public addresses that configurations say. */
function placeHosts(
  hosts: readonly PlannedHost[],
  byAddress: ReadonlyMap<string, PlannedHost>,
  { found, scope, advertised }: Placing,
  notes: string[],
): void {
  /** By host, what static_host_map says. */
  const inHostMap = new Map<PlannedHost, Statement[]>();
  for (const each of firstOfEach(found.configs.staticHosts)) {
    const host = byAddress.get(canonicalAddress(each.overlay.trim()));
    if (host === undefined)
      notes.push(`${each.at}: static_host_map ${quoted(each.overlay)} is no imported host; not imported.`);
    else inHostMap.getOrInsertComputed(host, () => []).push(each);
  }
  for (const host of hosts) {
    const all = firstOfEach([...(inHostMap.get(host) ?? []), ...(advertised.get(host) ?? [])]);
    const usable = all.flatMap((each) => {
      const [, ipv6, other, port] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d+)$/.exec(each.text) ?? [];
      const address = ipv6 ?? other;
      const parsed = v.safeParse(Place, { address, port: Number(port) });
      if (parsed.success && unreachable(scope, parsed.output.address) === undefined)
        return [{ ...each, ...parsed.output }];
      notes.push(
        `${each.at}: ${quoted(each.text)} is no address of ${host.name} outside the overlay with a port; not imported.`,
      );
      return [];
    });
    const [best, ...others] = usable.sort((a, b) => rankOf(a.address) - rankOf(b.address));
    if (best !== undefined) {
      host.publicIp = best.address;
      host.externalPort = best.port;
      for (const { at, text } of others)
        notes.push(
          `${at}: ${quoted(text)} of ${host.name} is not imported: a node has one public address, here ${best.text}.`,
        );
    } else if (host.isLighthouse && !host.isBlocked) {
      notes.push(
        `${host.name} is a lighthouse, but no configuration has a public address of it: give it one with --public-ip when it registers.`,
      );
    }
  }
}

/** The smaller, the more nodes reach the address: names and public IPv4, public IPv6, private networks. */
function rankOf(text: string): number {
  const address = parseAddress(text);
  if (address === undefined) return 0;
  if (isPrivate(makeNetwork(address, addressBits(address.family)))) return 2;
  return address.family === 4 ? 0 : 1;
}

/** Gives hosts the subnets that configurations route. A subnet that only a certificate permits is not routed by any machine. */
function routeSubnets(
  hosts: readonly PlannedHost[],
  routes: readonly (Statement & { via: string })[],
  byAddress: ReadonlyMap<string, PlannedHost>,
  scope: Scope,
  notes: string[],
): void {
  // The hosts have no ids yet: their places in the list stand for them.
  const ids = new Map(hosts.map((host, id) => [host, id]));
  const routers = new Map<string, { id: number; name: string }[]>();
  const hubs = hosts
    .filter((host) => !host.isBlocked && host.publicIp !== null && isHub(host))
    .map((host) => hubOf({ ...host, id: ids.get(host) ?? -1 }));
  const routing: Obstacles = { controlPlane: scope.controlPlane, hubs, routers };
  for (const { text, via, at } of routes) {
    const host = byAddress.get(canonicalAddress(via.trim()));
    const refuse = (why: string) =>
      notes.push(`${at}: the route ${quoted(text)} by ${quoted(via)} is not imported: ${why}`);
    const network = v.safeParse(Cidr, text.trim());
    if (host === undefined) refuse("its gateway is no imported host.");
    else if (!network.success) refuse(network.issues[0].message);
    else if (host.isBlocked) refuse(`${host.name} is revoked.`);
    else if (!permits(host, network.output)) refuse(`the certificate of ${host.name} does not permit it.`);
    else if (!host.subnets.includes(network.output)) {
      const node = { id: ids.get(host) ?? -1, name: host.name, subnets: host.subnets };
      try {
        requireRoutable(scope, routing, [...host.subnets, network.output], node);
      } catch (error) {
        refuse(messageOf(error));
        continue;
      }
      host.subnets.push(network.output);
      routers.set(network.output, [node]);
    }
  }
  for (const host of hosts) notePermitted(host, notes);
}

function permits({ current }: PlannedHost, network: string): boolean {
  const [inner] = parseNetworks([network]);
  const permitted = current.flatMap(({ unsafeNetworks }) => unsafeNetworks).flatMap(parseUnsafe);
  return inner !== undefined && permitted.some((outer) => holdsNetwork(outer, inner));
}

const parseUnsafe = (text: string) => parseAddressInNetwork(text) ?? [];

function notePermitted({ file, name, current, subnets }: PlannedHost, notes: string[]): void {
  const all = new Set(current.flatMap(({ unsafeNetworks }) => unsafeNetworks));
  const unused = [...all].filter((each) => !subnets.includes(each));
  if (unused.length === 0) return;
  const more = unused.length > 8 ? ` and ${unused.length - 8} more` : "";
  notes.push(
    `${file}: the certificate of ${name} permits ${unused.slice(0, 8).join(", ")}${more}, but no configuration routes that; not imported.`,
  );
}
