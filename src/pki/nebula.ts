// Overlay certificates of both versions: fingerprints, signing, verification (bundle.ts reads and writes them). There is
// one level: a CA signs hosts. A certificate names its CA by fingerprint, and the caller must trust that CA.

import { generateKeyPairSync, hash, type KeyObject } from "node:crypto";
import { AppError } from "../base/errors.ts";
import {
  badCertificate,
  checkFields,
  type CertificateFields,
  type NebulaCertificate,
  type ParsedNetworks,
  certifiedNetwork,
} from "./certificate.ts";
import { decodeBundle } from "./bundle.ts";
import { formatCaKey } from "./ca-key.ts";
import { rawPublicKey } from "./keys.ts";
import { encodeDetailsV1, encodeV1 } from "./nebula-v1.ts";
import { encodeDetailsV2, signedBytesV2 } from "./nebula-v2.ts";
import { holdsNetwork } from "../base/ip.ts";
import { signBytes, twinSignature, verifyBytes } from "./signature.ts";

export type { NebulaCertificate } from "./certificate.ts";

export type CertificateAuthority = { certificate: NebulaCertificate; privateKey: KeyObject };

/** The fields of a host's certificate. Curve and issuer come from its CA. */
export type HostTemplate = Omit<CertificateFields, "isCa" | "curve" | "issuer">;

export type CaTemplate = Pick<CertificateFields, "version" | "name" | "notBefore" | "notAfter"> &
  Partial<Pick<CertificateFields, "networks" | "unsafeNetworks" | "groups">>;

/** A bundle for `pki.ca`: only self-signed CAs. Throws `bad_request` or `validation_failed`. */
export function decodeCaBundle(pem: string): NebulaCertificate[] {
  const cas = decodeBundle(pem);
  for (const ca of cas) {
    if (!ca.isCa) throw badCertificate(`"${ca.name}" is not a CA`);
    if (!isSignedBy(ca, ca)) throw refusalOf("the CA's own signature does not match", ca);
  }
  return cas;
}

/** Lower-case hex SHA-256: of the whole encoding in version 1, of signed bytes and signature in version 2. */
export function fingerprint(certificate: NebulaCertificate): string {
  return fingerprintWith(certificate, certificate.signature);
}

/** The fingerprints for a blocklist. For P-256 also the one with the second valid form of the signature (signature.ts). */
export function fingerprints(certificate: NebulaCertificate): string[] {
  const own = fingerprint(certificate);
  if (certificate.curve === "25519") return [own];
  return [own, fingerprintWith(certificate, twinSignature(certificate.signature))];
}

/**
 * Signs a host certificate. Throws `validation_failed` beyond the limits of the CA (networks, groups, validity), and
 * `bad_request` for values that this version cannot contain.
 */
export function signCertificate(template: HostTemplate, ca: CertificateAuthority): NebulaCertificate {
  if (!ca.certificate.isCa) throw badCertificate(`"${ca.certificate.name}" is not a CA`);
  const fields = {
    ...template,
    isCa: false,
    curve: ca.certificate.curve,
    issuer: fingerprint(ca.certificate),
  };
  const parsed = checkFields(fields);
  checkLimits(fields, parsed, ca.certificate);
  return signFields(fields, parsed, ca.privateKey);
}

/** A new self-signed Ed25519 CA, with its key in the engine's form (64 bytes: seed and public half). */
export function makeCa(template: CaTemplate): CertificateAuthority & { privateKeyPem: string } {
  const { privateKey } = generateKeyPairSync("ed25519");
  const publicKey = rawPublicKey(privateKey);
  const limits = {
    networks: template.networks ?? [],
    unsafeNetworks: template.unsafeNetworks ?? [],
    groups: template.groups ?? [],
  };
  // A self-signed certificate names no issuer.
  const fields = { ...template, ...limits, isCa: true, publicKey, curve: "25519" as const, issuer: "" };
  const certificate = signFields(fields, checkFields(fields), privateKey);
  return { certificate, privateKey, privateKeyPem: formatCaKey({ curve: "25519", privateKey }) };
}

/**
 * Verifies that the engine accepts this host certificate at `now` (Unix seconds), in the engine's order of checks.
 * Throws `validation_failed` with the reason.
 */
export function verifyCertificate(
  certificate: NebulaCertificate,
  cas: readonly NebulaCertificate[],
  nowS: number,
  blocklist?: ReadonlySet<string>,
): void {
  if (blocklist !== undefined && fingerprints(certificate).some((print) => blocklist.has(print))) {
    throw refusalOf("it is on the blocklist", certificate);
  }
  if (certificate.isCa) throw refusalOf("it is a CA, not a host certificate", certificate);
  const ca = cas.find((known) => fingerprint(known) === certificate.issuer);
  if (ca === undefined || !ca.isCa) throw refusalOf("its CA is not trusted", certificate);
  if (certificate.curve !== ca.curve) throw refusalOf("it has another curve than its CA", certificate);
  checkTime(ca, nowS);
  checkTime(certificate, nowS);
  if (!isSignedBy(certificate, ca)) throw refusalOf("its signature does not match", certificate);
  checkLimits(certificate, checkFields(certificate), ca);
}

function signFields(
  fields: CertificateFields,
  parsed: ParsedNetworks,
  privateKey: KeyObject,
): NebulaCertificate {
  const details = fields.version === 1 ? encodeDetailsV1(fields, parsed) : encodeDetailsV2(fields, parsed);
  const unsigned = {
    ...fields,
    networks: parsed.networks.map(({ text }) => text),
    unsafeNetworks: parsed.unsafeNetworks.map(({ text }) => text),
    details,
    signature: new Uint8Array(),
  };
  return { ...unsigned, signature: signBytes(fields.curve, privateKey, signedBytes(unsigned)) };
}

function signedBytes(certificate: NebulaCertificate): Uint8Array {
  return certificate.version === 1 ? certificate.details : signedBytesV2(certificate);
}

function isSignedBy(certificate: NebulaCertificate, ca: NebulaCertificate): boolean {
  return verifyBytes(ca.curve, ca.publicKey, signedBytes(certificate), certificate.signature);
}

function fingerprintWith(certificate: NebulaCertificate, signature: Uint8Array): string {
  const bytes =
    certificate.version === 1
      ? encodeV1(certificate.details, signature)
      : Buffer.concat([signedBytesV2(certificate), signature]);
  return hash("sha256", bytes, "hex");
}

function checkTime(certificate: NebulaCertificate, nowS: number): void {
  if (nowS < certificate.notBefore) throw refusalOf("it is not valid yet", certificate);
  if (nowS > certificate.notAfter) throw refusalOf("it has expired", certificate);
}

/** The limits of a CA for its certificates. An empty list means no limit. */
function checkLimits(child: CertificateFields, parsed: ParsedNetworks, ca: NebulaCertificate): void {
  if (child.notAfter > ca.notAfter) throw refusalOf("it would be valid after its CA expires", child);
  if (child.notBefore < ca.notBefore) throw refusalOf("it would be valid before its CA", child);
  const refusedGroup =
    ca.groups.length === 0 ? undefined : child.groups.find((group) => !ca.groups.includes(group));
  if (refusedGroup !== undefined) throw refusalOf(`its CA does not allow the group "${refusedGroup}"`, child);
  for (const list of ["networks", "unsafeNetworks"] as const) {
    if (ca[list].length === 0) continue;
    const allowed = ca[list].map((text) => certifiedNetwork("network", text));
    const outside = parsed[list].find((network) => !allowed.some((limit) => holdsNetwork(limit, network)));
    if (outside !== undefined) {
      throw refusalOf(`its CA does not allow the network ${outside.text}`, child);
    }
  }
}

function refusalOf(reason: string, { name }: CertificateFields): AppError {
  return new AppError("validation_failed", `The certificate of "${name}" is refused: ${reason}`);
}
