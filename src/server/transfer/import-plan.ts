// What a hand-made Nebula network becomes here: which CA signs, one node for each host, its address, its groups. Pure; throws
// bad_configuration where the network cannot be led on without breaking it.

import { AppError } from "../../errors.ts";
import { fingerprint, verifyCertificate, type NebulaCertificate } from "../../pki/nebula.ts";
import { holdsNetwork, parseNetwork, type Network } from "../../pki/networks.ts";
import { formatAddress, maskNetwork, parseAddress } from "../../ip.ts";
import type { HandConfig, HandMade } from "./import-files.ts";

export type PlannedHost = {
  /** As a node may be called; unique. */
  name: string;
  ip: string;
  ip6: string | null;
  /** The newest of each version, version 1 first. */
  current: NebulaCertificate[];
  /** Older ones that still live; each of them may be blocked without the host being. */
  former: NebulaCertificate[];
  groups: string[];
  subnets: string[];
  isBlocked: boolean;
  isLighthouse: boolean;
  isRelay: boolean;
  publicIp: string | null;
  externalPort: number | null;
};

export type ImportPlan = {
  ca: NebulaCertificate;
  /** Also trusted by the network, without a key here. */
  otherCas: NebulaCertificate[];
  certificateVersion: 1 | "both" | 2;
  network: string;
  network6: string | null;
  hosts: PlannedHost[];
  /** All that the configurations block. */
  blocklist: ReadonlySet<string>;
  /** What is blocked of no certificate that is here. */
  unknownBlocked: string[];
  /** What was left out or changed, a sentence each. */
  notes: string[];
};

/** `signing`: public halves of the CA keys that are there. `networkGiven` wins over what the certificates say. */
export function planImport(
  found: HandMade,
  signing: readonly Uint8Array[],
  nowS: number,
  networkGiven: string | undefined,
): ImportPlan {
  const notes: string[] = [];
  const cas = unique(found.cas).filter((ca) => ca.notBefore <= nowS && nowS < ca.notAfter);
  const ca = signingCa(cas, signing);
  const live = unique(found.hosts).filter((host) => isLive(host, cas, nowS, notes));
  const blocklist = new Set(found.configs.flatMap((config) => config.blocklist));
  const network = networkGiven ?? commonNetwork(live, 4);
  if (network === undefined) {
    throw new AppError("bad_configuration", "No host's certificate says what the network is", {
      hint: "Put the hosts' certificates (*.crt) there, or give --network.",
    });
  }
  const hosts = planHosts(live, network, blocklist, notes);
  placeHubs(hosts, found.configs);
  const known = new Set(live.map(fingerprint));
  return {
    ca,
    otherCas: cas.filter((each) => each !== ca && live.some((host) => host.issuer === fingerprint(each))),
    certificateVersion: versionOf(hosts),
    network,
    network6: commonNetwork(live, 6) ?? null,
    hosts,
    blocklist,
    unknownBlocked: [...blocklist].filter((each) => !known.has(each)).sort(),
    notes,
  };
}

function unique(certificates: readonly NebulaCertificate[]): NebulaCertificate[] {
  return [...new Map(certificates.map((each) => [fingerprint(each), each])).values()];
}

/** The CA whose key is there; of several the one that lives longest. */
function signingCa(cas: readonly NebulaCertificate[], signing: readonly Uint8Array[]): NebulaCertificate {
  const own = cas
    .filter((ca) => signing.some((key) => Buffer.compare(key, ca.publicKey) === 0))
    .sort((a, b) => b.notAfter - a.notAfter);
  if (own[0] === undefined) {
    throw new AppError(
      "bad_configuration",
      "There is no CA that is valid now together with its private key",
      {
        hint: "Put ca.crt and ca.key into the directory.",
      },
    );
  }
  if (own[0].curve !== "25519") {
    throw new AppError(
      "bad_configuration",
      "The CA is of the curve P-256; nodes here have keys of Curve25519",
    );
  }
  return own[0];
}

function isLive(
  host: NebulaCertificate,
  cas: readonly NebulaCertificate[],
  nowS: number,
  notes: string[],
): boolean {
  try {
    verifyCertificate(host, cas, nowS);
    return true;
  } catch (error) {
    notes.push(error instanceof Error ? `${error.message}; it is left out.` : "");
    return false;
  }
}

/** The one network of that family that holds the others. */
function commonNetwork(hosts: readonly NebulaCertificate[], family: 4 | 6): string | undefined {
  const length = family === 4 ? 4 : 16;
  const networks = hosts
    .flatMap((host) =>
      host.networks.filter((each) => parseNetwork(each).address.length === length).slice(0, 1),
    )
    .map((each) => maskNetwork(each) ?? each);
  const [first, ...others] = [...new Set(networks)].sort(
    (a, b) => parseNetwork(a).prefix - parseNetwork(b).prefix,
  );
  if (first === undefined) return undefined;
  const outside = others.find((each) => !holdsNetwork(parseNetwork(first), parseNetwork(each)));
  if (outside === undefined) return first;
  throw new AppError("bad_configuration", `The hosts are in several networks: ${first} and ${outside}`, {
    hint: "An organization has one network of a family: give --network, or import them one by one.",
  });
}

function planHosts(
  live: readonly NebulaCertificate[],
  network: string,
  blocklist: ReadonlySet<string>,
  notes: string[],
): PlannedHost[] {
  const names = new Set<string>();
  const byAddress = Map.groupBy(live, (host) => addressIn(host, network, 4) ?? "");
  for (const lost of byAddress.get("") ?? [])
    notes.push(`"${lost.name}" has no address in ${network}; it is left out.`);
  byAddress.delete("");
  return [...byAddress].map(([ip, all]) => {
    const host = planHost(ip, all, blocklist);
    const name = uniqueName(host.name, names);
    if (name !== host.name) notes.push(`"${host.name}" is called ${name} here.`);
    return { ...host, name };
  });
}

/** One host of all the certificates that hold its address; it still has the name that stands in them. */
function planHost(
  ip: string,
  all: readonly NebulaCertificate[],
  blocklist: ReadonlySet<string>,
): PlannedHost {
  const newest = all.toSorted((a, b) => b.notBefore - a.notBefore);
  const [first] = newest;
  const rival = newest.find((each) => each.name !== first?.name);
  if (first === undefined || rival !== undefined) {
    const both = `"${first?.name ?? ""}" and "${rival?.name ?? ""}"`;
    throw new AppError("bad_configuration", `${ip} stands in the certificates of ${both}`, {
      hint: "Take the certificate that is not used any more out of the directory.",
    });
  }
  const current = ([1, 2] as const).flatMap((version) =>
    newest.filter((each) => each.version === version).slice(0, 1),
  );
  const last = current.at(-1) ?? first;
  return {
    name: first.name,
    ip,
    ip6: addressIn(last, undefined, 6) ?? null,
    current,
    former: newest.filter((each) => !current.includes(each)),
    groups: [...last.groups],
    subnets: [...last.unsafeNetworks],
    isBlocked: current.some((each) => blocklist.has(fingerprint(each))),
    isLighthouse: false,
    isRelay: false,
    publicIp: null,
    externalPort: null,
  };
}

/** The first address of that family, inside the network where one is given. */
function addressIn(host: NebulaCertificate, network: string | undefined, family: 4 | 6): string | undefined {
  const limit: Network | undefined = network === undefined ? undefined : parseNetwork(network);
  const found = host.networks.find((text) => {
    const each = parseNetwork(text);
    if (each.address.length !== (family === 4 ? 4 : 16)) return false;
    return limit === undefined || holdsNetwork(limit, { ...each, prefix: family === 4 ? 32 : 128 });
  });
  const address = parseAddress(found?.split("/")[0] ?? "");
  return address === undefined ? undefined : formatAddress(address);
}

/** One DNS label, lower case. */
function uniqueName(name: string, taken: Set<string>): string {
  const label = name
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-")
    .slice(0, 58)
    .replace(/^-+|-+$/g, "");
  const base = label === "" || label === "any" ? "node" : label;
  let free = base;
  for (let at = 2; taken.has(free); at++) free = `${base}-${at}`;
  taken.add(free);
  return free;
}

/** Lighthouses and relays are what the configurations of others point to; a static entry says where they are. */
function placeHubs(hosts: PlannedHost[], configs: readonly HandConfig[]): void {
  for (const host of hosts) {
    const says = (list: (config: HandConfig) => readonly string[]) =>
      configs.some((config) => list(config).includes(host.ip));
    host.isLighthouse = says((config) => config.lighthouses);
    host.isRelay = says((config) => config.relays);
    const place = configs.flatMap((config) => config.staticHosts[host.ip] ?? [])[0];
    const match = /^\[?([^\]]+?)\]?:(\d+)$/.exec(place ?? "");
    if (match === null) continue;
    host.publicIp = match[1] ?? null;
    host.externalPort = Number(match[2]);
  }
}

function versionOf(hosts: readonly PlannedHost[]): ImportPlan["certificateVersion"] {
  const versions = new Set(hosts.flatMap(({ current }) => current.map(({ version }) => version)));
  if (!versions.has(2)) return 1;
  return versions.has(1) ? "both" : 2;
}
