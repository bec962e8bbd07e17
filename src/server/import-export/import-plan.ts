// Plans the import of a hand-made Nebula network: which CA signs, and a node with address and groups for each host. What the
// API would not accept is left out with a note, or refused. Pure. Throws bad_configuration if the import would break the
// network.

import { AppError, messageOf } from "../../base/errors.ts";
import {
  decodeCaBundle,
  fingerprint,
  fingerprints,
  verifyCertificate,
  type NebulaCertificate,
} from "../../pki/nebula.ts";
import { encodePem } from "../../pki/bundle.ts";
import { formatHostPublicKey, readHostPublicKey } from "../../pki/keys.ts";
import { holdsNetwork, maskNetwork, parseAddressInNetwork, parseNetwork } from "../../base/ip.ts";
import { yamlLimits } from "../../base/yaml.ts";
import { checkPublicAddress } from "../nodes/subnets.ts";
import { isNarrower } from "../organizations/networks.ts";
import { brand } from "../../brand.ts";
import { quoted, type KeyReport } from "./hand-config.ts";
import type { FromFile, HandMade } from "./import-files.ts";
import { networksOf, planHosts, requestOf, requireFreeAddresses, type PlannedHost } from "./import-hosts.ts";
import { assignRoles } from "./import-roles.ts";

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
  /** Every key of every configuration. */
  keys: readonly KeyReport[];
  /** One sentence for everything that was left out or changed. */
  notes: string[];
};

type Surroundings = {
  /** The public halves of the CA keys in the directory. */
  publicKeys: readonly Uint8Array[];
  /** Seconds since 1970. */
  nowS: number;
  /** Instead of the network of the certificates. */
  network: string | undefined;
  /** The host of the control plane's public URL. */
  controlPlane: string;
};

export function planImport(
  found: HandMade,
  { publicKeys, nowS, network: givenNetwork, controlPlane }: Surroundings,
): ImportPlan {
  const notes = [...found.notes, ...found.configs.notes];
  /** Why certificates are not used. Notes in the end; until then, part of the errors about what is missing. */
  const refused: string[] = [];
  const trusted = withoutCopies(found.cas)
    .filter((ca) => isUsableCa(ca, nowS, refused))
    .map(({ value }) => value);
  const ca = signingCa(trusted, publicKeys, refused);
  const liveFiles = withoutCopies(found.hosts).filter((host) => isLive(host, trusted, nowS, refused));
  const live = liveFiles.map(({ value }) => value);
  const network = givenNetwork ?? commonNetwork(live, 4);
  // With `--network`, a CA may come alone. Hosts of which none can be a node mean that something is wrong.
  if (network === undefined || (live.length === 0 && found.hosts.length > 0)) throw noNetwork(live, refused);
  notes.push(...refused);
  const network6 = commonNetwork(live, 6) ?? null;
  requireRoom(network, network6);
  const { blocklist } = found.configs;
  requireShort(blocklist);
  const hosts = planHosts(liveFiles, { network, network6 }, blocklist, notes);
  const certificateVersion = versionOf(hosts);
  requireFreeAddresses(hosts, { network, network6, certificateVersion });
  assignRoles(hosts, found, { network, network6, certificateVersion, controlPlane }, notes);
  for (const host of hosts) {
    // Both throw for what the API would not accept.
    requestOf(host);
    checkPublicAddress({ network, network6 }, host.publicIp);
  }
  noteLimits(ca, [network, network6 ?? []].flat(), notes);
  const printsOfHosts = new Set(live.flatMap(fingerprints));
  const printsOfCas = new Set(found.cas.map(({ value }) => fingerprint(value)));
  for (const each of blocklist)
    if (printsOfCas.has(each))
      notes.push(`${each} in the blocklist is a CA: engines block no CA by it, and neither do nodes here.`);
  return {
    ca,
    otherCas: trusted.filter((each) => each !== ca && live.some((host) => host.issuer === fingerprint(each))),
    certificateVersion,
    network,
    network6,
    hosts,
    blocklist,
    unknownBlocked: [...blocklist].filter((each) => !printsOfHosts.has(each)).sort(),
    keys: found.configs.keys,
    notes,
  };
}

/** The first reasons why certificates of the directory are not used. */
const firstReasons = (refused: readonly string[]): string =>
  refused
    .slice(0, 3)
    .map((each) => ` ${each}`)
    .join("");

function noNetwork(live: readonly NebulaCertificate[], refused: readonly string[]): AppError {
  const network6 = commonNetwork(live, 6);
  if (network6 === undefined) {
    return new AppError("bad_configuration", "The directory has no host certificate that is valid now", {
      hint: `Put the host certificates (*.crt) into the directory. To import a CA without hosts, add \`--network\`.${firstReasons(refused)}`,
    });
  }
  return new AppError(
    "bad_configuration",
    `The hosts have IPv6 addresses only (${network6}), but a node has an IPv4 address in any case`,
    {
      hint: "Sign certificates with an IPv4 and the IPv6 address for all hosts (`nebula-cert sign -version 2 -networks 10.77.0.1/16,…`), and import then.",
    },
  );
}

/** A new node gets the same host number in both networks, so the IPv6 network must not be the smaller one. */
function requireRoom(network: string, network6: string | null): void {
  if (network6 === null || !isNarrower(network6, network)) return;
  throw new AppError(
    "bad_configuration",
    `The IPv6 network ${network6} has room for fewer nodes than the IPv4 network ${network}`,
    { hint: "Add `--network` with a narrower IPv4 network that contains all hosts." },
  );
}

/** Nodes refuse a config.yml with more than `yamlLimits.nodes` values. Half of them are left for everything besides the blocklist. */
function requireShort(blocklist: ReadonlySet<string>): void {
  const most = yamlLimits.nodes / 2;
  if (blocklist.size <= most) return;
  throw new AppError(
    "bad_configuration",
    `The blocklists have ${blocklist.size} fingerprints, over ${most}`,
    {
      hint: "Remove those of certificates that have expired, or make a new CA and import then.",
    },
  );
}

function withoutCopies(certificates: readonly FromFile<NebulaCertificate>[]): FromFile<NebulaCertificate>[] {
  return [...new Map(certificates.map((each) => [fingerprint(each.value), each])).values()];
}

/** Whether the CA can be trusted now. If not, notes why. */
function isUsableCa(
  { file, value: ca }: FromFile<NebulaCertificate>,
  nowS: number,
  notes: string[],
): boolean {
  const why = whyUnusable(ca, nowS);
  if (why !== undefined) notes.push(`The CA ${quoted(ca.name)} in ${file} ${why}; not imported.`);
  return why === undefined;
}

function whyUnusable(ca: NebulaCertificate, nowS: number): string | undefined {
  if (nowS >= ca.notAfter) return "has expired";
  if (nowS < ca.notBefore) return "is not valid yet";
  try {
    decodeCaBundle(encodePem(ca));
    return undefined;
  } catch {
    return "is not signed by itself";
  }
}

/** The CA whose key is in the directory. Of several, the one that expires last. */
function signingCa(
  cas: readonly NebulaCertificate[],
  publicKeys: readonly Uint8Array[],
  refused: readonly string[],
): NebulaCertificate {
  const own = cas
    .filter((ca) => publicKeys.some((key) => Buffer.compare(key, ca.publicKey) === 0))
    .sort((a, b) => b.notAfter - a.notAfter);
  if (own[0] === undefined) {
    throw new AppError(
      "bad_configuration",
      "The directory has no valid CA certificate with its private key",
      { hint: `Put ca.crt and ca.key into the directory.${firstReasons(refused)}` },
    );
  }
  if (own[0].curve !== "25519") {
    throw new AppError("bad_configuration", "The CA uses the curve P-256, but nodes have Curve25519 keys");
  }
  return own[0];
}

/** Whether engines accept the certificate now. If not, notes why. Throws for one that they accept, but that no node can have. */
function isLive(
  { file, value: host }: FromFile<NebulaCertificate>,
  cas: readonly NebulaCertificate[],
  nowS: number,
  notes: string[],
): boolean {
  try {
    verifyCertificate(host, cas, nowS);
    // Throws bad_request for a key that no node may have (keys.ts).
    if (host.curve === "25519") readHostPublicKey(formatHostPublicKey(host.publicKey));
  } catch (error) {
    // Engines accept it, so its address stays in use.
    if (error instanceof AppError && error.code === "bad_request")
      throw new AppError("bad_configuration", `${file}: ${error.message}`, {
        cause: error,
        hint: `Sign the certificate of ${quoted(host.name)} again without that, or remove it if it is not used any more.`,
      });
    notes.push(`${file}: ${messageOf(error)}; not imported.`);
    return false;
  }
  if (host.curve === "25519") return true;
  throw new AppError(
    "bad_configuration",
    `${file}: the certificate of ${quoted(host.name)} uses the curve P-256, but nodes have Curve25519 keys`,
    {
      hint: "Sign this host with a CA and a key of Curve25519, or remove the certificate if it is not used any more.",
    },
  );
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

/** New nodes get no certificate outside the limits of the CA. */
function noteLimits(ca: NebulaCertificate, networks: readonly string[], notes: string[]): void {
  const remedy = `\`${brand.executable} admin ca rotate\` makes a CA without limits.`;
  if (ca.groups.length > 0)
    notes.push(
      `The CA permits only the groups ${ca.groups.slice(0, 20).map(quoted).join(", ")}: nodes with others, and nodes of users, get no certificate. ${remedy}`,
    );
  if (ca.unsafeNetworks.length > 0)
    notes.push(`The CA permits only the subnets ${ca.unsafeNetworks.slice(0, 20).join(", ")}. ${remedy}`);
  const limits = ca.networks.flatMap((text) => parseAddressInNetwork(text) ?? []);
  const outside = networks.find((text) => {
    const network = parseNetwork(text);
    return network !== undefined && !limits.some((limit) => holdsNetwork(limit, network));
  });
  if (limits.length > 0 && outside !== undefined)
    notes.push(
      `The CA permits only addresses in ${ca.networks.slice(0, 20).join(", ")}, but the network is ${outside}: nodes with others get no certificate. ${remedy}`,
    );
}

/** The organization's certificate version: the versions that the hosts have. */
function versionOf(hosts: readonly PlannedHost[]): ImportPlan["certificateVersion"] {
  const versions = new Set(hosts.flatMap(({ current }) => current.map(({ version }) => version)));
  if (!versions.has(2)) return 1;
  return versions.has(1) ? "both" : 2;
}
