// The fields of an overlay certificate of any version, and their limits. nebula-v1.ts and nebula-v2.ts encode them,
// nebula.ts decides about trust.

import { AppError } from "../base/errors.ts";
import { parseAddressInNetwork, type Network } from "../base/ip.ts";
import { publicKeyLength, type Curve } from "./curve.ts";
import { isStorable } from "../base/text.ts";

/** The engine refuses larger certificates. */
export const maxCertificateLength = 65_536;
const maxNameLength = 253;

export type CertificateFields = {
  version: 1 | 2;
  name: string;
  /** Address and prefix length, "10.77.0.5/16"; sorted in version 2. On a CA these are limits; empty means no limit. */
  networks: readonly string[];
  unsafeNetworks: readonly string[];
  groups: readonly string[];
  isCa: boolean;
  /** Unix seconds, inclusive. */
  notBefore: number;
  notAfter: number;
  /** A host's X25519 or P-256 key; a CA's Ed25519 or P-256 key. */
  publicKey: Uint8Array;
  curve: Curve;
  /** Fingerprint of the CA in hex, "" on a CA. */
  issuer: string;
};

export type NebulaCertificate = CertificateFields & {
  signature: Uint8Array;
  /** The encoded part that the signature covers (version 2: together with curve and public key). */
  details: Uint8Array;
};

export type ParsedNetworks = { networks: Network[]; unsafeNetworks: Network[] };

export function badCertificate(reason: string, cause?: unknown): AppError {
  return new AppError("bad_request", `The certificate is not valid: ${reason}`, { cause });
}

/**
 * Checks the fields against the limits of their version, and returns the networks in the order of encoding.
 * Throws `bad_request`. Refuses what the engine would misread: duplicates, IPv6 in version 1, empty names and groups.
 */
export function checkFields(fields: CertificateFields): ParsedNetworks {
  checkText("name", fields.name, maxNameLength);
  for (const group of fields.groups) checkText("group", group, maxCertificateLength);
  checkTime(fields.notBefore);
  checkTime(fields.notAfter);
  if (fields.notAfter < fields.notBefore) throw badCertificate("it ends before it begins");
  if (fields.publicKey.length !== publicKeyLength[fields.curve]) {
    throw badCertificate(
      `a public key of ${fields.curve} has ${publicKeyLength[fields.curve]} bytes, not ${fields.publicKey.length}`,
    );
  }
  if (fields.curve === "P256" && fields.publicKey[0] !== 4)
    throw badCertificate("its P-256 key must be an uncompressed point");
  const issuer = fields.isCa ? /^$/ : /^[0-9a-f]{64}$/;
  if (!issuer.test(fields.issuer)) throw badCertificate(`"${fields.issuer.slice(0, 80)}" is not an issuer`);
  const networks = checkNetworks(fields.version, "network", fields.networks);
  const unsafeNetworks = checkNetworks(fields.version, "unsafe network", fields.unsafeNetworks);
  if (!fields.isCa) checkHostNetworks(fields.version, networks, unsafeNetworks);
  return { networks, unsafeNetworks };
}

function checkText(what: string, text: string, maxLength: number): void {
  if (text === "") throw badCertificate(`it has an empty ${what}`);
  if (!isStorable(text)) throw badCertificate(`a ${what} is not Unicode, or has a null character`);
  if (Buffer.byteLength(text) > maxLength) throw badCertificate(`a ${what} has more than ${maxLength} bytes`);
}

function checkTime(seconds: number): void {
  if (!Number.isSafeInteger(seconds) || seconds < 0) throw badCertificate(`${seconds} is not a time`);
}

function checkNetworks(version: 1 | 2, what: string, texts: readonly string[]): Network[] {
  const networks = texts.map((text) => certifiedNetwork(what, text));
  for (const { family, value, text } of networks) {
    if (version === 1 && family !== 4) {
      throw badCertificate(`version 1 cannot contain the IPv6 ${what} ${text}`);
    }
    if (what === "network" && value === 0n) {
      throw badCertificate("the unspecified address is not a network");
    }
  }
  const sorted = networks.length > 1 ? networks.toSorted(compareNetworks) : networks;
  const twice = sorted.find(({ text }, index) => text === sorted[index - 1]?.text);
  if (twice !== undefined) throw badCertificate(`it contains the ${what} ${twice.text} twice`);
  return version === 1 ? networks : sorted;
}

/** Throws `bad_request` for text that the engine does not read as a network, such as an IPv4-mapped address. */
export function certifiedNetwork(what: string, text: string): Network {
  const network = parseAddressInNetwork(text);
  if (network === undefined)
    throw badCertificate(`the ${what} "${text.slice(0, 60)}" is not one, such as 10.77.0.5/16`);
  return network;
}

/** The order of version 2 certificates: IPv4 before IPv6, then by address, then by prefix length. */
export function compareNetworks(a: Network, b: Network): number {
  return a.family - b.family || Number(a.value > b.value) - Number(a.value < b.value) || a.prefix - b.prefix;
}

function checkHostNetworks(version: 1 | 2, networks: Network[], unsafeNetworks: Network[]): void {
  if (networks.length === 0) throw badCertificate("a host needs a network");
  if (version === 1) return;
  const stray = unsafeNetworks.find(({ family }) => !networks.some((network) => network.family === family));
  if (stray !== undefined) {
    throw badCertificate(`the unsafe network ${stray.text} needs a network of its own family`);
  }
}
