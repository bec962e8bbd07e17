// Makes X.509 for the services of nodes and for TLS servers: the CA of an organization, certificate requests (PKCS#10, RFC 2986), and
// leaves (RFC 5280); node.crt is a SPIFFE certificate for clients and servers. The only user of @peculiar/x509, which takes 14 ms to
// load. verify-x509.ts verifies node.crt.

import "reflect-metadata/lite";
import * as x509 from "@peculiar/x509";
import { createPublicKey, type X509Certificate } from "node:crypto";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { sha256Hex } from "../base/sha256.ts";
import { parseOnePem } from "./pem.ts";
import { readCertificates } from "./verify-x509.ts";

x509.cryptoProvider.set(crypto);

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const maxRequestBytes = 4096;
/** The labels of requests in PEM. Older tools write the second one (RFC 7468, section 7). */
const requestBanners = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];

export type X509Authority = { certificatePem: string; privateKeyPem: string };

/** A new P-256 CA that can sign leaves only (path length 0). Dates in ms; serial: 16 random bytes. */
export async function makeX509Ca(options: {
  organization: string;
  notBefore: number;
  notAfter: number;
  serial: Uint8Array;
}): Promise<X509Authority> {
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: serialHex(options.serial),
    name: [{ CN: [`${options.organization} CA`] }, { O: [brand.title] }],
    notBefore: new Date(options.notBefore),
    notAfter: new Date(options.notAfter),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return {
    certificatePem: `${certificate.toString("pem")}\n`,
    privateKeyPem: await privateKeyPem(keys.privateKey),
  };
}

/** A request for node.crt. Its signature proves that the node has the key. */
export async function makeCsr(options: { privateKeyPem: string; name: string }): Promise<string> {
  const keys = await importKeys(options.privateKeyPem);
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: [{ CN: [options.name] }],
    keys,
    signingAlgorithm: algorithm,
  });
  return `${request.toString("pem")}\n`;
}

/** `keySha256`: of the public key in DER (SubjectPublicKeyInfo), in hexadecimal. */
export type NodeRequest = { publicKey: CryptoKey; keySha256: string };

/** Verifies the signature of a request, and that its key is P-256. Ignores its names. Throws bad_request. */
export async function readCsr(pem: string): Promise<NodeRequest> {
  if (pem.length > maxRequestBytes) throw badRequest("it is larger than 4 KiB");
  try {
    // Exactly one block: the library would ignore a private key beside it.
    const { bytes } = parseOnePem(pem, requestBanners);
    const request = new x509.Pkcs10CertificateRequest(Uint8Array.from(bytes));
    const { algorithm: keyAlgorithm } = request.publicKey;
    const curve = "namedCurve" in keyAlgorithm ? keyAlgorithm.namedCurve : undefined;
    if (keyAlgorithm.name !== "ECDSA" || curve !== "P-256") throw badRequest("its key is not P-256");
    if (!(await request.verify())) throw badRequest("its signature does not match its key");
    return { publicKey: await request.publicKey.export(), keySha256: sha256Hex(request.publicKey.rawData) };
  } catch (error) {
    // Thrown above by badRequest, with the reason.
    if (error instanceof AppError && error.details.errors !== undefined) throw error;
    throw badRequest("it cannot be read", error);
  }
}

export type Issuer = { certificate: x509.X509Certificate; privateKey: CryptoKey };

/** Parses a CA once, to sign many certificates. */
export async function openIssuer(authority: X509Authority): Promise<Issuer> {
  const { privateKey } = await importKeys(authority.privateKeyPem);
  return { certificate: new x509.X509Certificate(authority.certificatePem), privateKey };
}

export type NodeTemplate = {
  publicKey: CryptoKey;
  name: string;
  organization: string;
  nodeId: number;
  /** Overlay addresses without prefix. */
  addresses: readonly string[];
  /** In ms, limited to the validity of the CA. */
  notBefore: number;
  notAfter: number;
  serial: Uint8Array;
};

/** node.crt for client and server authentication, followed by the certificate of its CA. */
export async function issueNodeX509(template: NodeTemplate, issuer: Issuer): Promise<string> {
  const domain = `${template.organization}.${brand.internalDomain}`;
  return issueLeaf(
    {
      ...template,
      alternativeNames: [
        { type: "dns", value: `${template.name}.${domain}` },
        ...template.addresses.map((value) => ({ type: "ip" as const, value })),
        { type: "url", value: `spiffe://${domain}/node/${template.nodeId}` },
      ],
      usages: [x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth],
    },
    issuer,
  );
}

export type ServerTemplate = Pick<NodeTemplate, "addresses" | "notBefore" | "notAfter" | "serial"> & {
  /** DNS names. */
  names: readonly string[];
};

/** A new key and a certificate for a TLS server, followed by the certificate of its CA. */
export async function issueServerX509(
  template: ServerTemplate,
  issuer: Issuer,
): Promise<{ cert: string; key: string }> {
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const cert = await issueLeaf(
    {
      ...template,
      name: "control plane",
      publicKey: keys.publicKey,
      alternativeNames: namesOf(template),
      usages: [x509.ExtendedKeyUsage.serverAuth],
    },
    issuer,
  );
  return { cert, key: await privateKeyPem(keys.privateKey) };
}

/** A new P-256 key, PKCS#8 in PEM. */
export async function makeServerKey(): Promise<string> {
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  return privateKeyPem(keys.privateKey);
}

/** A request for a certificate of these DNS names and addresses, in DER. Without a subject (RFC 8555, section 7.4). */
export async function makeServerCsr(options: {
  privateKeyPem: string;
  names: readonly string[];
  addresses: readonly string[];
}): Promise<Uint8Array> {
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: [],
    keys: await importKeys(options.privateKeyPem),
    signingAlgorithm: algorithm,
    extensions: [new x509.SubjectAlternativeNameExtension(namesOf(options))],
  });
  return new Uint8Array(request.rawData);
}

/** DNS names and addresses as alternative names of a certificate. */
function namesOf({ names, addresses }: Pick<ServerTemplate, "names" | "addresses">) {
  return [
    ...names.map((value) => ({ type: "dns" as const, value })),
    ...addresses.map((value) => ({ type: "ip" as const, value })),
  ];
}

/** Times in ms since 1970. `renewalId`: the name of the certificate at the authority (RFC 9773, section 4.1); undefined: it has none. */
export type ServerCertificate = {
  notBefore: number;
  notAfter: number;
  serial: string;
  renewalId: string | undefined;
};

/** Reads a chain that a CA issued for our key and names, and checks that it is. Throws untrusted_answer with the reason. `now`: ms. */
export function readServerChain(
  pem: string,
  own: { privateKeyPem: string; names: readonly string[]; addresses: readonly string[]; now: number },
): ServerCertificate {
  const refuse = (reason: string) =>
    new AppError("untrusted_answer", `The certificate that the authority sent is refused: ${reason}`);
  const [leaf] = readCertificates(pem, refuse);
  if (!leaf.publicKey.equals(createPublicKey(own.privateKeyPem))) throw refuse("it is for another key");
  const missing =
    own.names.find((name) => leaf.checkHost(name) === undefined) ??
    own.addresses.find((address) => leaf.checkIP(address) === undefined);
  if (missing !== undefined) throw refuse(`it is not for ${missing}`);
  const notBefore = Date.parse(leaf.validFrom);
  const notAfter = Date.parse(leaf.validTo);
  if (own.now >= notAfter) throw refuse("it has expired; check this machine's clock");
  return { notBefore, notAfter, serial: leaf.serialNumber, renewalId: renewalIdOf(leaf) };
}

function renewalIdOf(leaf: X509Certificate): string | undefined {
  const certificate = new x509.X509Certificate(leaf.raw.toString("base64"));
  const keyId = certificate.getExtension(x509.AuthorityKeyIdentifierExtension)?.keyId;
  if (keyId === undefined) return undefined;
  // The serial number as in DER: a leading zero keeps it positive.
  const serial = /^[89a-f]/i.test(leaf.serialNumber) ? `00${leaf.serialNumber}` : leaf.serialNumber;
  return [keyId, serial].map((hex) => Buffer.from(hex, "hex").toString("base64url")).join(".");
}

/** What a leaf certificate says. Times in ms, limited to the validity of the CA. */
type Leaf = Pick<NodeTemplate, "publicKey" | "name" | "notBefore" | "notAfter" | "serial"> & {
  alternativeNames: x509.JsonGeneralNames;
  usages: x509.ExtendedKeyUsageType[];
};

async function issueLeaf(leaf: Leaf, { certificate: ca, privateKey }: Issuer): Promise<string> {
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serialHex(leaf.serial),
    // A common name has at most 64 characters, so it is the short name. The SAN contains the whole DNS name.
    subject: [{ CN: [leaf.name] }],
    issuer: ca.subjectName,
    notBefore: new Date(Math.max(leaf.notBefore, ca.notBefore.getTime())),
    notAfter: new Date(Math.min(leaf.notAfter, ca.notAfter.getTime())),
    publicKey: leaf.publicKey,
    signingKey: privateKey,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(leaf.usages),
      new x509.SubjectAlternativeNameExtension(leaf.alternativeNames),
      await x509.AuthorityKeyIdentifierExtension.create(await ca.publicKey.export()),
      await x509.SubjectKeyIdentifierExtension.create(leaf.publicKey),
    ],
  });
  return `${certificate.toString("pem")}\n${ca.toString("pem")}\n`;
}

async function privateKeyPem(key: CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`;
}

async function importKeys(privateKeyPem: string): Promise<CryptoKeyPair> {
  const pkcs8 = x509.PemConverter.decodeFirst(privateKeyPem);
  const spki = createPublicKey(privateKeyPem).export({ format: "der", type: "spki" });
  const [privateKey, publicKey] = await Promise.all([
    crypto.subtle.importKey("pkcs8", pkcs8, algorithm, true, ["sign"]),
    crypto.subtle.importKey("spki", Uint8Array.from(spki), algorithm, true, ["verify"]),
  ]);
  return { privateKey, publicKey };
}

/** RFC 5280 4.1.2.2: positive, at most 20 octets. A leading zero keeps the number positive. */
function serialHex(bytes: Uint8Array): string {
  return `00${Buffer.from(bytes).toString("hex")}`;
}

function badRequest(reason: string, cause?: unknown): AppError {
  return new AppError("bad_request", `The certificate request is refused: ${reason}`, {
    cause,
    errors: { node_csr: [`Expected a PKCS#10 request for a P-256 key: ${reason}.`] },
  });
}
