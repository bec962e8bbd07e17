// The hosts of a hand-made network as nodes: address, name and groups of each. What the API would not accept is left out with
// a note, or refused. Pure.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { NodeName, GroupName } from "../../protocol/values.ts";
import { fingerprints, type NebulaCertificate } from "../../pki/nebula.ts";
import {
  formatAddress,
  hostOf,
  networkContains,
  parseAddress,
  parseAddressInNetwork,
  parseNetwork,
  type Network,
} from "../../base/ip.ts";
import { isUsersGroup } from "../../protocol/users-groups.ts";
import { parse } from "../http/parse-input.ts";
import { maxGroups, NodeRequest } from "../../api/nodes.ts";
import { isReservedGroup } from "../../api/values.ts";
import { quoted } from "./hand-config.ts";
import type { FromFile } from "./import-files.ts";

export type PlannedHost = {
  /** A valid, unique name for a node. */
  name: string;
  ip: string;
  ip6: string | null;
  /** The file of its certificate, for notes: of the highest version that it has. */
  file: string;
  /** The newest of each version, version 1 first. */
  current: NebulaCertificate[];
  /** Older ones that have not expired. Each may be blocked although the host is not. */
  former: NebulaCertificate[];
  groups: string[];
  subnets: string[];
  isBlocked: boolean;
  isLighthouse: boolean;
  isRelay: boolean;
  publicIp: string | null;
  externalPort: number | null;
};

/** Each host that is planned and stored passes the API's schema for creating a node. Throws validation_failed. */
export function requestOf(host: PlannedHost) {
  return parse(NodeRequest, {
    name: host.name,
    ip_address: host.ip,
    groups: host.groups,
    subnets: host.subnets,
    is_lighthouse: host.isLighthouse,
    is_relay: host.isRelay,
    public_ip: host.publicIp,
    external_port: host.externalPort,
  });
}

export type Networks = { network: string; network6: string | null };

type HostFile = FromFile<NebulaCertificate>;

/** `live`: the certificates that are valid now. Throws bad_configuration. */
export function planHosts(
  live: readonly HostFile[],
  networks: Networks,
  blocklist: ReadonlySet<string>,
  notes: string[],
): PlannedHost[] {
  refuseHiddenGroups(live, blocklist);
  // "": without an address in the network.
  const byAddress = Map.groupBy(live, ({ value }) => addressIn(value, networks.network, 4) ?? "");
  for (const host of byAddress.get("") ?? []) refuseWithoutIpv4(host, networks, notes);
  byAddress.delete("");
  if (byAddress.size === 0 && live.length > 0) {
    throw new AppError("bad_configuration", `No host has an address in ${networks.network}`, {
      hint: "Enter the network of the hosts with `--network`.",
    });
  }
  const hosts = [...byAddress].map(([ip, all]) => planHost(ip, all, blocklist));
  for (const host of hosts) noteMoreNetworks(host, notes);
  keepUsableGroups(hosts, notes);
  return withNodeNames(hosts, notes);
}

/**
 * Certificates stay in force, whatever is imported. So a host must not be in a group that rules here can name but its
 * node does not show: rules for user 17 would admit nodes of another control plane's user 17.
 */
function refuseHiddenGroups(live: readonly HostFile[], blocklist: ReadonlySet<string>): void {
  for (const { file, value } of live) {
    if (isBlockedBy(blocklist, value)) continue;
    const ofUsers = value.groups.find(isUsersGroup);
    const refuse = (reason: string, without: string) => {
      throw new AppError("bad_configuration", `${file}: the certificate of ${quoted(value.name)} ${reason}`, {
        hint: `Sign the host's key again without ${without}, or add the certificate's fingerprint to pki.blocklist in a configuration of the directory.`,
      });
    };
    if (ofUsers !== undefined)
      refuse(
        `is in the group ${ofUsers}, which stands for users here: rules for them would admit this host`,
        "this group",
      );
    if (usableGroups(value.groups).length > maxGroups)
      refuse(
        `has over ${maxGroups} groups, the maximum of a node: rules for the others would admit this host, too`,
        "them",
      );
  }
}

/** The API's rules for groups. */
function usableGroups(groups: readonly string[]): string[] {
  return [...new Set(groups)].filter((group) => v.is(GroupName, group) && !isReservedGroup(group));
}

/**
 * A host without an address in the network is left out. One that has an address in the IPv6 network is refused: the address stays in
 * use, so no node may get it.
 */
function refuseWithoutIpv4(
  { file, value: host }: HostFile,
  { network, network6 }: Networks,
  notes: string[],
): void {
  const ip6 = network6 === null ? undefined : addressIn(host, network6, 6);
  if (ip6 === undefined) {
    notes.push(`${file}: ${quoted(host.name)} has no address in ${network}; not imported.`);
    return;
  }
  throw new AppError(
    "bad_configuration",
    `${file}: ${quoted(host.name)} has the address ${ip6}, but none in ${network}: a node has an IPv4 address in any case`,
    { hint: "Sign a certificate with both for it, or remove its certificate if it is not used any more." },
  );
}

/** A certificate of version 2 may have several networks of one family, a node has one of each. */
function noteMoreNetworks({ file, current, ip, ip6 }: PlannedHost, notes: string[]): void {
  const all = new Set(current.flatMap(({ networks }) => networks));
  const more = [...all].filter((text) => ![ip, ip6].includes(text.split("/")[0] ?? ""));
  if (more.length > 0)
    notes.push(
      `${file}: further addresses of the host are not imported: ${more.join(", ")}. A node has one of each family.`,
    );
}

function keepUsableGroups(hosts: readonly PlannedHost[], notes: string[]): void {
  /** The files of the hosts in each group that is left out. */
  const leftOut = new Map<string, string[]>();
  for (const host of hosts) {
    const usable = usableGroups(host.groups);
    for (const group of host.groups)
      if (!usable.includes(group)) leftOut.getOrInsertComputed(group, () => []).push(host.file);
    // Only a blocked host can have more: others were refused.
    host.groups = usable.slice(0, maxGroups);
  }
  for (const [group, files] of leftOut)
    notes.push(
      `${listed(files)}: the group ${quoted(group)} is not imported: a group has 1 to 63 of letters, digits, _ . : and -, and does not begin with user:, idp: or autogroup:.`,
    );
}

function listed(files: readonly string[]): string {
  const first = files.slice(0, 5).join(", ");
  return files.length > 5 ? `${first} and ${files.length - 5} more` : first;
}

/** Throws bad_configuration unless each host number of the organization is of one host alone, in both families. */
export function requireFreeAddresses(
  hosts: readonly PlannedHost[],
  { network, network6, certificateVersion }: Networks & { certificateVersion: 1 | "both" | 2 },
): void {
  /** The holder of each host number. */
  const taken = new Map<number, PlannedHost>();
  const [range, range6] = [parseNetwork(network), parseNetwork(network6 ?? "")];
  const take = (host: PlannedHost, number: number) => {
    const holder = taken.get(number) ?? host;
    if (holder !== host) {
      const both = [holder, host].map(
        ({ name, ip, ip6 }) => `${name} (${ip}${ip6 === null ? "" : `, ${ip6}`})`,
      );
      throw new AppError(
        "bad_configuration",
        `${both.join(" and ")} have crossed addresses: here the addresses of a node in both networks belong together`,
        { hint: "Give one of them another IPv6 address, and import then." },
      );
    }
    taken.set(number, host);
  };
  for (const host of hosts) {
    const [address, address6] = [parseAddress(host.ip), parseAddress(host.ip6 ?? "")];
    const number = range === undefined || address === undefined ? undefined : hostOf(range, address);
    if (number === undefined) {
      throw new AppError(
        "bad_configuration",
        `${host.name} has the address ${host.ip}, which is the first or the last of ${network}`,
        { hint: "Give the host another address, or add `--network` with a wider network." },
      );
    }
    take(host, number);
    // With version 1, no node gets its IPv6 address.
    if (certificateVersion === 1 || range6 === undefined || address6 === undefined) continue;
    const second = hostOf(range6, address6);
    if (second !== undefined) take(host, second);
  }
}

/**
 * A host whose name is a valid node name keeps it, and no other host gets it: rules of the running network may grant
 * rights to the name. So `DB` becomes `db-2` beside a host `db`.
 */
function withNodeNames(hosts: readonly PlannedHost[], notes: string[]): PlannedHost[] {
  const keepers = new Map<string, PlannedHost>();
  for (const host of hosts) if (v.is(NodeName, host.name)) keepers.getOrInsert(host.name, host);
  const taken = new Set(keepers.keys());
  return hosts.map((host) => {
    if (keepers.get(host.name) === host) return host;
    const name = uniqueName(labelOf(host.name), taken);
    notes.push(`${host.file}: the node of ${quoted(host.name)} (${host.ip}) is named ${name}.`);
    return { ...host, name };
  });
}

/** The host of all certificates with this address. It keeps the name of the certificates. */
function planHost(ip: string, files: readonly HostFile[], blocklist: ReadonlySet<string>): PlannedHost {
  const newest = files.toSorted((a, b) => b.value.notBefore - a.value.notBefore);
  const [first] = newest;
  const rival = newest.find(({ value }) => value.name !== first?.value.name);
  if (first === undefined || rival !== undefined) {
    const both = [first, rival].map((each) => `${quoted(each?.value.name ?? "")} (${each?.file})`);
    throw new AppError("bad_configuration", `${ip} is in the certificates of ${both.join(" and ")}`, {
      hint: "Remove the certificate that is no longer used from the directory.",
    });
  }
  const current = ([1, 2] as const).flatMap((version) =>
    newest.filter(({ value }) => value.version === version).slice(0, 1),
  );
  const { file, value: last } = current.at(-1) ?? first;
  return {
    name: last.name,
    file,
    ip,
    // In any network: the IPv6 network of the organization is the one that the hosts have in common (import-plan.ts).
    ip6: addressIn(last, undefined, 6) ?? null,
    current: current.map(({ value }) => value),
    former: newest.filter((each) => !current.includes(each)).map(({ value }) => value),
    groups: [...last.groups],
    // Roles, networks behind the host and public addresses are in configurations, not in certificates: they are added later.
    subnets: [],
    isBlocked: current.some(({ value }) => isBlockedBy(blocklist, value)),
    isLighthouse: false,
    isRelay: false,
    publicIp: null,
    externalPort: null,
  };
}

export function networksOf(host: NebulaCertificate, family: 4 | 6): Network[] {
  return host.networks
    .flatMap((text) => parseAddressInNetwork(text) ?? [])
    .filter((each) => each.family === family);
}

/** The first address of that family, within `network` if it is given. */
function addressIn(host: NebulaCertificate, network: string | undefined, family: 4 | 6): string | undefined {
  const limit = network === undefined ? undefined : parseAddressInNetwork(network);
  const address = networksOf(host, family).find(
    (each) => limit === undefined || networkContains(limit, each),
  );
  return address === undefined ? undefined : formatAddress(address);
}

/** A DNS label in lower case. */
function labelOf(name: string): string {
  const label = name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    // Of 63 characters at most: room for the number of `uniqueName`.
    .slice(0, 56)
    .replace(/^-+|-+$/g, "");
  // "any" is no node name: rules have it for all nodes.
  return label === "" || label === "any" ? "node" : label;
}

function uniqueName(base: string, taken: Set<string>): string {
  let free = base;
  for (let at = 2; taken.has(free); at++) free = `${base}-${at}`;
  taken.add(free);
  return free;
}

/** Whether the blocklist has a fingerprint of the certificate: one of P-256 has two. */
export const isBlockedBy = (blocklist: ReadonlySet<string>, certificate: NebulaCertificate): boolean =>
  fingerprints(certificate).some((each) => blocklist.has(each));
