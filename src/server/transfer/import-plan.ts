// Plans the import of a hand-made Nebula network: which CA signs, and a node with address and groups for each host. Pure.
// Throws bad_configuration if the import would break the network.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { Port, PublicAddress } from "../../protocol/values.ts";
import { fingerprint, verifyCertificate, type NebulaCertificate } from "../../pki/nebula.ts";
import {
  formatAddress,
  holdsNetwork,
  maskNetwork,
  networkContains,
  parseAddressInNetwork,
  type Network,
} from "../../ip.ts";
import type { HandConfig, HandMade } from "./import-files.ts";
import { overlayOf } from "../nodes/subnets.ts";

export type PlannedHost = {
  /** A valid, unique name for a node. */
  name: string;
  ip: string;
  ip6: string | null;
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

export type ImportPlan = {
  ca: NebulaCertificate;
  /** Other CAs that the network trusts. Their keys are not imported. */
  otherCas: NebulaCertificate[];
  certificateVersion: 1 | "both" | 2;
  network: string;
  network6: string | null;
  hosts: PlannedHost[];
  /** The blocked fingerprints of all configurations. */
  blocklist: ReadonlySet<string>;
  /** Blocked fingerprints without a certificate in the directory. */
  unknownBlocked: string[];
  /** One sentence for everything that was left out or changed. */
  notes: string[];
};

/** `signing`: the public keys of the CA keys in the directory. `networkGiven` overrides the network of the certificates. */
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
    throw new AppError("bad_configuration", "No host certificate contains the network", {
      hint: "Put the host certificates (*.crt) into the directory, or add `--network`.",
    });
  }
  const hosts = planHosts(live, network, blocklist, notes);
  const network6 = commonNetwork(live, 6) ?? null;
  markHubs(hosts, found.configs, { network, network6 }, notes);
  const known = new Set(live.map(fingerprint));
  return {
    ca,
    otherCas: cas.filter((each) => each !== ca && live.some((host) => host.issuer === fingerprint(each))),
    certificateVersion: versionOf(hosts),
    network,
    network6,
    hosts,
    blocklist,
    unknownBlocked: [...blocklist].filter((each) => !known.has(each)).sort(),
    notes,
  };
}

function unique(certificates: readonly NebulaCertificate[]): NebulaCertificate[] {
  return [...new Map(certificates.map((each) => [fingerprint(each), each])).values()];
}

/** The CA whose key is in the directory. Of several, the one that expires last. */
function signingCa(cas: readonly NebulaCertificate[], signing: readonly Uint8Array[]): NebulaCertificate {
  const own = cas
    .filter((ca) => signing.some((key) => Buffer.compare(key, ca.publicKey) === 0))
    .sort((a, b) => b.notAfter - a.notAfter);
  if (own[0] === undefined) {
    throw new AppError(
      "bad_configuration",
      "The directory has no valid CA certificate with its private key",
      {
        hint: "Put ca.crt and ca.key into the directory.",
      },
    );
  }
  if (own[0].curve !== "25519") {
    throw new AppError("bad_configuration", "The CA uses the curve P-256, but nodes have Curve25519 keys");
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
    notes.push(error instanceof Error ? `${error.message}; not imported.` : "");
    return false;
  }
}

/** The network of that family that contains all others. */
function commonNetwork(hosts: readonly NebulaCertificate[], family: 4 | 6): string | undefined {
  const networks = hosts.flatMap((host) => networksOf(host, family).slice(0, 1));
  const masked = new Set(networks.map(({ text }) => maskNetwork(text) ?? text));
  const [first, ...others] = [...masked]
    .flatMap((text) => parseAddressInNetwork(text) ?? [])
    .sort((a, b) => a.prefix - b.prefix);
  if (first === undefined) return undefined;
  const outside = others.find((each) => !holdsNetwork(first, each));
  if (outside === undefined) return first.text;
  throw new AppError(
    "bad_configuration",
    `The hosts are in several networks: ${first.text} and ${outside.text}`,
    {
      hint: "An organization has one network per address family. Add `--network`, or import the networks one by one.",
    },
  );
}

function planHosts(
  live: readonly NebulaCertificate[],
  network: string,
  blocklist: ReadonlySet<string>,
  notes: string[],
): PlannedHost[] {
  const byAddress = Map.groupBy(live, (host) => addressIn(host, network, 4) ?? "");
  for (const lost of byAddress.get("") ?? [])
    notes.push(`"${lost.name}" has no address in ${network}; not imported.`);
  byAddress.delete("");
  return withNodeNames(
    [...byAddress].map(([ip, all]) => planHost(ip, all, blocklist)),
    notes,
  );
}

/**
 * A host whose name is a valid node name keeps it, and no other host gets it: rules of the running network may grant
 * rights to the name. So `DB` becomes `db-2` beside a host `db`.
 */
function withNodeNames(hosts: readonly PlannedHost[], notes: string[]): PlannedHost[] {
  const keepers = new Map<string, PlannedHost>();
  for (const host of hosts)
    if (labelOf(host.name) === host.name && !keepers.has(host.name)) keepers.set(host.name, host);
  const taken = new Set(keepers.keys());
  return hosts.map((host) => {
    if (keepers.get(host.name) === host) return host;
    const name = uniqueName(labelOf(host.name), taken);
    notes.push(`The node of "${host.name}" is named ${name}.`);
    return { ...host, name };
  });
}

/** The host of all certificates with this address. It keeps the name of the certificates. */
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
    throw new AppError("bad_configuration", `${ip} is in the certificates of ${both}`, {
      hint: "Remove the certificate that is no longer used from the directory.",
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

function networksOf(host: NebulaCertificate, family: 4 | 6): Network[] {
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
    .slice(0, 58)
    .replace(/^-+|-+$/g, "");
  return label === "" || label === "any" ? "node" : label;
}

function uniqueName(base: string, taken: Set<string>): string {
  let free = base;
  for (let at = 2; taken.has(free); at++) free = `${base}-${at}`;
  taken.add(free);
  return free;
}

/** Lighthouses and relays are those that the configurations name. Static entries contain their underlay addresses. */
function markHubs(
  hosts: PlannedHost[],
  configs: readonly HandConfig[],
  networks: Pick<ImportPlan, "network" | "network6">,
  notes: string[],
): void {
  for (const host of hosts) {
    const isListed = (list: (config: HandConfig) => readonly string[]) =>
      configs.some((config) => list(config).includes(host.ip));
    host.isLighthouse = isListed((config) => config.lighthouses);
    host.isRelay = isListed((config) => config.relays);
    const places = new Set(configs.flatMap((config) => config.staticHosts[host.ip] ?? []));
    for (const place of places) {
      const [, address, port] = /^\[?([^\]]+?)\]?:(\d+)$/.exec(place) ?? [];
      const parsed = v.safeParse(Place, { address, port: Number(port) });
      if (parsed.success && overlayOf(networks, parsed.output.address) === undefined) {
        host.publicIp = parsed.output.address;
        host.externalPort = parsed.output.port;
        break;
      }
      notes.push(
        `${JSON.stringify(place.slice(0, 80))} is no address of ${host.name} with a port; not imported.`,
      );
    }
  }
}

/** The same that the API accepts: with an invalid address, engines refuse the configuration of every node. */
const Place = v.object({ address: PublicAddress, port: Port });

function versionOf(hosts: readonly PlannedHost[]): ImportPlan["certificateVersion"] {
  const versions = new Set(hosts.flatMap(({ current }) => current.map(({ version }) => version)));
  if (!versions.has(2)) return 1;
  return versions.has(1) ? "both" : 2;
}
