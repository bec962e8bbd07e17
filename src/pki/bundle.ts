// PEM bundles of overlay certificates of both versions. Without cryptography, which a short command need not load:
// nebula.ts signs and verifies.

import { AppError } from "../base/errors.ts";
import { badCertificate, type NebulaCertificate } from "./certificate.ts";
import { decodeV1, encodeV1 } from "./nebula-v1.ts";
import { decodeV2, encodeV2 } from "./nebula-v2.ts";
import { formatPem, parsePem } from "./pem.ts";

const banners = { 1: "NEBULA CERTIFICATE", 2: "NEBULA CERTIFICATE V2" } as const;
export const certificateBanners: readonly string[] = Object.values(banners);

/**
 * All certificates of a PEM text in order, at least one. Throws `bad_request` for another label (such as a private
 * key), a truncated block, text after the last block, and a certificate that violates the rules of its version.
 */
export function decodeBundle(pem: string): NebulaCertificate[] {
  const blocks = parsePem(pem);
  if (blocks.length === 0) throw badCertificate("the text contains no certificate");
  return blocks.map(({ banner, bytes }) => {
    if (banner === banners[1]) return decodeV1(bytes);
    if (banner === banners[2]) return decodeV2(bytes);
    throw new AppError("bad_request", `Expected overlay certificates, found a block "${banner}"`);
  });
}

export function encodePem(certificate: NebulaCertificate): string {
  return formatPem(banners[certificate.version], encodeBytes(certificate));
}

/** The payload of the PEM block. */
export function encodeBytes(certificate: NebulaCertificate): Uint8Array {
  return certificate.version === 1
    ? encodeV1(certificate.details, certificate.signature)
    : encodeV2(certificate);
}
