// Version 2 of the overlay certificate: encodes to and decodes from ASN.1 DER with implicit context tags. Must not
// decide about trust.

import {
  badCertificate,
  checkFields,
  maxCertificateLength,
  type CertificateFields,
  type NebulaCertificate,
  compareNetworks,
  type ParsedNetworks,
} from "./certificate.ts";
import { DerWriter, integerOf, makeDerReader } from "./der.ts";
import { addressBytes, addressFromBytes, makeNetwork, type Network } from "../base/ip.ts";

const sequence = 0x30;
const octetString = 0x04;
const utf8String = 0x0c;
/** `curve`: only for P-256. */
const certificateTag = { details: 0xa0, curve: 0x81, publicKey: 0x82, signature: 0x83 } as const;
const detailsTag = {
  name: 0x80,
  networks: 0xa1,
  unsafeNetworks: 0xa2,
  groups: 0xa3,
  isCa: 0x84,
  notBefore: 0x85,
  notAfter: 0x86,
  issuer: 0x87,
} as const;
const isTrue = Uint8Array.of(0xff);
const p256 = Uint8Array.of(1);

/** The details with tag and length. The signature covers them, then curve and public key. */
export function encodeDetailsV2(fields: CertificateFields, parsed: ParsedNetworks): Uint8Array {
  const writer = new DerWriter();
  const details = writer.open(certificateTag.details);
  writer.text(detailsTag.name, fields.name);
  writeNetworks(writer, detailsTag.networks, parsed.networks);
  writeNetworks(writer, detailsTag.unsafeNetworks, parsed.unsafeNetworks);
  if (fields.groups.length > 0) {
    const groups = writer.open(detailsTag.groups);
    for (const group of fields.groups) writer.text(utf8String, group);
    writer.close(groups);
  }
  if (fields.isCa) writer.bytes(detailsTag.isCa, isTrue);
  writer.integer(detailsTag.notBefore, fields.notBefore);
  writer.integer(detailsTag.notAfter, fields.notAfter);
  if (fields.issuer !== "") writer.bytes(detailsTag.issuer, Uint8Array.fromHex(fields.issuer));
  writer.close(details);
  return writer.finish();
}

export function signedBytesV2(certificate: Omit<NebulaCertificate, "signature">): Uint8Array {
  const curve = Uint8Array.of(certificate.curve === "P256" ? 1 : 0);
  return Buffer.concat([certificate.details, curve, certificate.publicKey]);
}

export function encodeV2(certificate: NebulaCertificate): Uint8Array {
  const writer = new DerWriter();
  const whole = writer.open(sequence);
  writer.raw(certificate.details);
  if (certificate.curve === "P256") writer.bytes(certificateTag.curve, p256);
  writer.bytes(certificateTag.publicKey, certificate.publicKey);
  writer.bytes(certificateTag.signature, certificate.signature);
  writer.close(whole);
  return writer.finish();
}

/**
 * Throws `bad_request` for anything except one certificate in DER. Ignores unknown fields at the end of the details,
 * which later engines may add, as the engine does: the details keep their signed bytes.
 */
export function decodeV2(bytes: Uint8Array): NebulaCertificate {
  if (bytes.length > maxCertificateLength)
    throw badCertificate(`it has more than ${maxCertificateLength} bytes`);
  const outer = makeDerReader(bytes);
  const reader = makeDerReader(outer.read(sequence));
  const content = reader.read(certificateTag.details);
  const curve = reader.readOptional(certificateTag.curve);
  const publicKey = reader.read(certificateTag.publicKey).slice();
  const signature = reader.read(certificateTag.signature).slice();
  const isP256 = curve !== undefined;
  if (!reader.isEmpty || !outer.isEmpty) throw badCertificate("it has bytes after its end");
  if (signature.length === 0) throw badCertificate("it is not signed");
  if (isP256 && Buffer.compare(curve, p256) !== 0) throw badCertificate("its curve is unknown");
  const fields = {
    ...readDetails(content),
    publicKey,
    curve: isP256 ? ("P256" as const) : ("25519" as const),
  };
  checkFields(fields);
  return { ...fields, signature, details: withTag(content) };
}

function readDetails(content: Uint8Array): Omit<CertificateFields, "publicKey" | "curve"> {
  const reader = makeDerReader(content);
  const name = decodeUtf8(reader.read(detailsTag.name));
  const networks = readNetworks(reader.readOptional(detailsTag.networks));
  const unsafeNetworks = readNetworks(reader.readOptional(detailsTag.unsafeNetworks));
  const groups = readElements(reader.readOptional(detailsTag.groups), utf8String).map(decodeUtf8);
  const ca = reader.readOptional(detailsTag.isCa);
  if (ca !== undefined && Buffer.compare(ca, isTrue) !== 0)
    throw badCertificate("it has a boolean that is not DER");
  const notBefore = integerOf(reader.read(detailsTag.notBefore));
  const notAfter = integerOf(reader.read(detailsTag.notAfter));
  const issuer = Buffer.from(reader.readOptional(detailsTag.issuer) ?? []).toString("hex");
  return {
    version: 2,
    name,
    networks,
    unsafeNetworks,
    groups,
    isCa: ca !== undefined,
    notBefore,
    notAfter,
    issuer,
  };
}

/** The details with tag and length. */
function withTag(content: Uint8Array): Uint8Array {
  const writer = new DerWriter();
  writer.bytes(certificateTag.details, content);
  return writer.finish();
}

function writeNetworks(writer: DerWriter, tag: number, networks: readonly Network[]): void {
  if (networks.length === 0) return;
  const list = writer.open(tag);
  for (const network of networks)
    writer.bytes(octetString, Uint8Array.of(...addressBytes(network), network.prefix));
  writer.close(list);
}

function readNetworks(content: Uint8Array | undefined): string[] {
  const networks = readElements(content, octetString).map((bytes) => {
    const prefix = bytes.at(-1) ?? 255;
    const fits = (bytes.length === 5 && prefix <= 32) || (bytes.length === 17 && prefix <= 128);
    if (!fits) throw badCertificate("it has a network of wrong length");
    return makeNetwork(addressFromBytes(bytes.subarray(0, -1)), prefix);
  });
  return networks.sort(compareNetworks).map(({ text }) => text);
}

function readElements(content: Uint8Array | undefined, tag: number): Uint8Array[] {
  if (content === undefined) return [];
  const reader = makeDerReader(content);
  const elements: Uint8Array[] = [];
  while (!reader.isEmpty) elements.push(reader.read(tag));
  return elements;
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw badCertificate("it has a text that is not UTF-8", error);
  }
}
