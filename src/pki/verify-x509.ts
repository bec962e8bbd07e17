// Verifies X.509 certificates of nodes, and reads chains. Without the library of x509.ts, which takes 14 ms to load.

import { createPublicKey, X509Certificate } from "node:crypto";
import { brand } from "../brand.ts";
import { AppError, messageOf } from "../base/errors.ts";
import { parsePem } from "./pem.ts";

export type NodeX509Check = {
  /** node.crt: the leaf, then its CA, then other CAs of peers. */
  pem: string;
  privateKeyPem: string;
  name: string;
  organization: string;
  address: string;
  /** ms since 1970. */
  now: number;
};

/**
 * Verifies that node.crt has the key and the names of this node, is signed by the CA that follows it, and is valid now.
 * Throws untrusted_answer with the reason.
 */
export function verifyNodeX509(check: NodeX509Check): void {
  const refuse = (reason: string) =>
    new AppError("untrusted_answer", `The node.crt that the control plane sent is refused: ${reason}`);
  const [leaf, ca] = readChain(check.pem, refuse);
  if (!ca.ca || leaf.ca || !leaf.verify(ca.publicKey)) throw refuse("its CA has not signed it");
  if (!leaf.publicKey.equals(createPublicKey(check.privateKeyPem))) throw refuse("it is for another key");
  if (leaf.checkHost(`${check.name}.${check.organization}.${brand.internalDomain}`) === undefined)
    throw refuse("it is for another name");
  if (leaf.checkIP(check.address) === undefined) throw refuse("it is for another address");
  for (const { validFrom, validTo } of [leaf, ca]) {
    const isValid = Date.parse(validFrom) <= check.now && check.now <= Date.parse(validTo);
    if (!isValid) throw refuse("it is not valid at this time");
  }
}

/** The leaf and its CA. Other CAs may follow. */
function readChain(pem: string, refuse: (reason: string) => AppError): [X509Certificate, X509Certificate] {
  const [leaf, ca, ...more] = readCertificates(pem, refuse);
  if (ca !== undefined && more.every((other) => other.ca)) return [leaf, ca];
  throw refuse("it is not a certificate followed by CAs");
}

/** The certificates of a PEM text, at least one. `refuse` makes the error for a reason. */
export function readCertificates(
  pem: string,
  refuse: (reason: string) => AppError,
): [X509Certificate, ...X509Certificate[]] {
  try {
    const blocks = parsePem(pem);
    if (blocks.every(({ banner }) => banner === "CERTIFICATE")) {
      const [leaf, ...more] = blocks.map(({ bytes }) => new X509Certificate(bytes));
      if (leaf !== undefined) return [leaf, ...more];
    }
  } catch (error) {
    throw refuse(`it cannot be read (${messageOf(error)})`);
  }
  throw refuse("it is not a certificate followed by CAs");
}

/** Hex SHA-256 of a certificate's DER: `openssl x509 -fingerprint -sha256` without colons. */
export function x509Fingerprint(pem: string): string {
  return new X509Certificate(pem).fingerprint256.replaceAll(":", "").toLowerCase();
}
