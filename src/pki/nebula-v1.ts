// Version 1 of the overlay certificate: encodes to and decodes from protobuf. Must not decide about trust.
// Networks are packed pairs of address and mask.

import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import { AppError } from "../base/errors.ts";
import {
  badCertificate,
  checkFields,
  maxCertificateLength,
  type CertificateFields,
  type NebulaCertificate,
  type ParsedNetworks,
} from "./certificate.ts";
import type { Curve } from "./curve.ts";
import { makeNetwork, type Network } from "../base/ip.ts";

/** Field number and wire type, the prefix of each value. */
const bytesTag = (field: number) => (field << 3) | 2;
const varintTag = (field: number) => field << 3;

const certificateTag = { details: bytesTag(1), signature: bytesTag(2) } as const;
const detailsTag = {
  name: bytesTag(1),
  networks: bytesTag(2),
  unsafeNetworks: bytesTag(3),
  groups: bytesTag(4),
  notBefore: varintTag(5),
  notAfter: varintTag(6),
  publicKey: bytesTag(7),
  isCa: varintTag(8),
  issuer: bytesTag(9),
  curve: varintTag(100),
} as const;

/** The signed part: fields in ascending order, without empty ones. */
export function encodeDetailsV1(fields: CertificateFields, parsed: ParsedNetworks): Uint8Array {
  const writer = new BinaryWriter();
  writer.uint32(detailsTag.name).string(fields.name);
  writePairs(writer, detailsTag.networks, parsed.networks);
  writePairs(writer, detailsTag.unsafeNetworks, parsed.unsafeNetworks);
  for (const group of fields.groups) writer.uint32(detailsTag.groups).string(group);
  writeTime(writer, detailsTag.notBefore, fields.notBefore);
  writeTime(writer, detailsTag.notAfter, fields.notAfter);
  writer.uint32(detailsTag.publicKey).bytes(fields.publicKey);
  if (fields.isCa) writer.uint32(detailsTag.isCa).bool(true);
  if (fields.issuer !== "") writer.uint32(detailsTag.issuer).bytes(Uint8Array.fromHex(fields.issuer));
  if (fields.curve === "P256") writer.uint32(detailsTag.curve).uint32(1);
  return writer.finish();
}

export function encodeV1(details: Uint8Array, signature: Uint8Array): Uint8Array {
  return new BinaryWriter()
    .uint32(certificateTag.details)
    .bytes(details)
    .uint32(certificateTag.signature)
    .bytes(signature)
    .finish();
}

/**
 * Throws `bad_request` for anything except one certificate, and for what the engine would drop or misread (unknown
 * fields, a mask with holes). Accepts other encodings of the same values, as the engine does: fingerprint and signature
 * belong to the re-encoded bytes.
 */
export function decodeV1(bytes: Uint8Array): NebulaCertificate {
  if (bytes.length > maxCertificateLength)
    throw badCertificate(`it has more than ${maxCertificateLength} bytes`);
  try {
    const { details, signature } = readOuter(new BinaryReader(bytes));
    const fields = readDetails(new BinaryReader(details, decodeUtf8));
    return { ...fields, signature, details: encodeDetailsV1(fields, checkFields(fields)) };
  } catch (error) {
    if (error instanceof AppError) throw error;
    // Truncation throws RangeError or Error, bad UTF-8 throws TypeError: all of these are bad input.
    throw badCertificate("it cannot be read as version 1", error);
  }
}

function writePairs(writer: BinaryWriter, tag: number, networks: Network[]): void {
  if (networks.length === 0) return;
  writer.uint32(tag).fork();
  for (const { value, prefix } of networks) writer.uint32(Number(value)).uint32(maskOf(prefix));
  writer.join();
}

function writeTime(writer: BinaryWriter, tag: number, seconds: number): void {
  if (seconds === 0) return;
  writer.uint32(tag);
  // Both write the same bytes. `int64` is slower.
  if (seconds <= 0xffff_ffff) writer.uint32(seconds);
  else writer.int64(seconds);
}

function readOuter(reader: BinaryReader): { details: Uint8Array; signature: Uint8Array } {
  let details: Uint8Array | undefined;
  let signature: Uint8Array | undefined;
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag === certificateTag.details && details === undefined) details = reader.bytes();
    else if (tag === certificateTag.signature && signature === undefined) signature = reader.bytes().slice();
    else throw badCertificate("it has unknown fields beside details and signature");
  }
  if (details === undefined || signature === undefined || signature.length === 0) {
    throw badCertificate("it is not signed");
  }
  return { details, signature };
}

function readDetails(reader: BinaryReader): CertificateFields {
  const lists = {
    networks: new Array<string>(),
    unsafeNetworks: new Array<string>(),
    groups: new Array<string>(),
  };
  const fields = {
    name: "",
    notBefore: 0,
    notAfter: 0,
    publicKey: new Uint8Array(),
    isCa: false,
    issuer: "",
  };
  let curve = 0;
  while (reader.pos < reader.len) {
    switch (reader.uint32()) {
      case detailsTag.name:
        fields.name = reader.string(true);
        break;
      case detailsTag.networks:
        lists.networks.push(...readPairs(reader.bytes()));
        break;
      case detailsTag.unsafeNetworks:
        lists.unsafeNetworks.push(...readPairs(reader.bytes()));
        break;
      case detailsTag.groups:
        lists.groups.push(reader.string(true));
        break;
      case detailsTag.notBefore:
        fields.notBefore = Number(reader.int64());
        break;
      case detailsTag.notAfter:
        fields.notAfter = Number(reader.int64());
        break;
      case detailsTag.publicKey:
        fields.publicKey = reader.bytes().slice();
        break;
      case detailsTag.isCa:
        fields.isCa = reader.bool();
        break;
      case detailsTag.issuer:
        fields.issuer = reader.bytes().toHex();
        break;
      case detailsTag.curve:
        curve = reader.uint32();
        break;
      default:
        throw badCertificate("its details have an unknown field");
    }
  }
  return { version: 1, ...fields, ...lists, curve: curveOf(curve) };
}

function curveOf(number: number): Curve {
  if (number > 1) throw badCertificate(`the curve ${number} is unknown`);
  return number === 1 ? "P256" : "25519";
}

function readPairs(packed: Uint8Array): string[] {
  const reader = new BinaryReader(packed);
  const networks: string[] = [];
  while (reader.pos < reader.len) {
    const address = reader.uint32();
    // The reader throws here if the number of values is odd.
    const mask = reader.uint32();
    const prefix = Math.clz32(~mask);
    if (maskOf(prefix) !== mask) throw badCertificate(`the mask 0x${mask.toString(16)} has holes`);
    networks.push(makeNetwork({ family: 4, value: BigInt(address) }, prefix).text);
  }
  return networks;
}

function maskOf(prefix: number): number {
  return prefix === 0 ? 0 : (0xffff_ffff << (32 - prefix)) >>> 0;
}

function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}
