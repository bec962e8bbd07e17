// Version 2 of the overlay certificate: encodes to and decodes from ASN.1 DER with implicit context tags. Must not
// decide about trust. Certificate {a0 details, 81 curve (P-256 only), 82 public key, 83 signature}, details {80 name,
// a1 networks, a2 unsafe networks, a3 groups, 84 isCa, 85 notBefore, 86 notAfter, 87 issuer}.

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
const detailsTag = 0xa0;
const isTrue = Uint8Array.of(0xff);
const p256 = Uint8Array.of(1);

/** The details with tag and length. The signature covers them, then curve and public key. */
export function encodeDetailsV2(fields: CertificateFields, parsed: ParsedNetworks): Uint8Array {
  const writer = new DerWriter();
  const details = writer.open(detailsTag);
  writer.text(0x80, fields.name);
  writeNetworks(writer, 0xa1, parsed.networks);
  writeNetworks(writer, 0xa2, parsed.unsafeNetworks);
  if (fields.groups.length > 0) {
    const groups = writer.open(0xa3);
    for (const group of fields.groups) writer.text(utf8String, group);
    writer.close(groups);
  }
  if (fields.isCa) writer.bytes(0x84, isTrue);
  writer.integer(0x85, fields.notBefore);
  writer.integer(0x86, fields.notAfter);
  if (fields.issuer !== "") writer.bytes(0x87, Uint8Array.fromHex(fields.issuer));
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
  if (certificate.curve === "P256") writer.bytes(0x81, p256);
  writer.bytes(0x82, certificate.publicKey);
  writer.bytes(0x83, certificate.signature);
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
  const content = reader.read(detailsTag);
  const curve = reader.readOptional(0x81);
  const publicKey = reader.read(0x82).slice();
  const signature = reader.read(0x83).slice();
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
  const name = decodeUtf8(reader.read(0x80));
  const networks = readNetworks(reader.readOptional(0xa1));
  const unsafeNetworks = readNetworks(reader.readOptional(0xa2));
  const groups = readElements(reader.readOptional(0xa3), utf8String).map(decodeUtf8);
  const ca = reader.readOptional(0x84);
  if (ca !== undefined && Buffer.compare(ca, isTrue) !== 0)
    throw badCertificate("it has a boolean that is not DER");
  const notBefore = integerOf(reader.read(0x85));
  const notAfter = integerOf(reader.read(0x86));
  const issuer = Buffer.from(reader.readOptional(0x87) ?? []).toString("hex");
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

function withTag(content: Uint8Array): Uint8Array {
  const writer = new DerWriter();
  writer.bytes(detailsTag, content);
  return writer.finish();
}

function writeNetworks(writer: DerWriter, tag: number, networks: readonly Network[]): void {
  if (networks.length === 0) return;
  const list = writer.open(tag);
  for (const each of networks) writer.bytes(octetString, Uint8Array.of(...addressBytes(each), each.prefix));
  writer.close(list);
}

function readNetworks(content: Uint8Array | undefined): string[] {
  const networks = readElements(content, octetString).map((bytes) => {
    const prefix = bytes.at(-1) ?? 255;
    const fits = (bytes.length === 5 && prefix <= 32) || (bytes.length === 17 && prefix <= 128);
    if (!fits) throw badCertificate("it has a network of wrong length");
    return makeNetwork(addressFromBytes(bytes.subarray(0, -1)), prefix);
  });
  return networks.sort(compareNetworks).map((each) => each.text);
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
