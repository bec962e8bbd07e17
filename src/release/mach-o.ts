// Replaces the ad-hoc signature that macOS requires of every executable, as a linker does (without a certificate).
// Formats: loader.h and cs_blobs.h of xnu. Only the build uses it.

import { createHash } from "node:crypto";
import { AppError } from "../base/errors.ts";

const pageBits = 12;
const pageSize = 1 << pageBits;
const hashSize = 32;

type MachO = {
  /** Offsets of two load commands: the signature, and the segment that contains it at its end. */
  signature: number;
  linkEdit: number;
  /** The segment with the code. */
  textStart: bigint;
  textSize: bigint;
};

/** Returns the executable with a new signature in place of the present one. */
export function signMachO(executable: Uint8Array, identifier: string): Uint8Array {
  const { signature, linkEdit, textStart, textSize } = readCommands(executable);
  const end = view(executable).getUint32(signature + 8, true);
  const signed = new Uint8Array(end + signatureSize(end, identifier));
  signed.set(executable.subarray(0, end));
  const header = view(signed);
  header.setUint32(signature + 12, signed.length - end, true);
  const linkEditSize = BigInt(signed.length) - header.getBigUint64(linkEdit + 40, true);
  const wholePages = 0x4000n;
  header.setBigUint64(linkEdit + 32, ((linkEditSize + wholePages - 1n) / wholePages) * wholePages, true);
  header.setBigUint64(linkEdit + 48, linkEditSize, true);
  // Sign last: the sizes written above are part of the signed first page.
  signed.set(makeSignature(signed.subarray(0, end), identifier, textStart, textSize), end);
  return signed;
}

function readCommands(executable: Uint8Array): MachO {
  const data = view(executable);
  if (data.getUint32(0, true) !== 0xfeedfacf) throw refuse("it is not a 64-bit Mach-O file");
  const found: Partial<MachO> = {};
  for (let at = 32, left = data.getUint32(16, true); left > 0; left--) {
    const [kind, size] = [data.getUint32(at, true), data.getUint32(at + 4, true)];
    const name = kind === 0x19 ? segmentName(executable, at) : "";
    if (kind === 0x1d) found.signature = at;
    if (name === "__LINKEDIT") found.linkEdit = at;
    if (name === "__TEXT") {
      found.textStart = data.getBigUint64(at + 40, true);
      found.textSize = data.getBigUint64(at + 48, true);
    }
    at += size;
  }
  const { signature, linkEdit, textStart, textSize } = found;
  if (signature === undefined || linkEdit === undefined || textStart === undefined || textSize === undefined)
    throw refuse("it has no signature to replace");
  return { signature, linkEdit, textStart, textSize };
}

function segmentName(executable: Uint8Array, at: number): string {
  return Buffer.from(executable.subarray(at + 8, at + 24))
    .toString("latin1")
    .replace(/\0.*$/, "");
}

const [superBlobSize, directorySize] = [20, 88];

function signatureSize(codeLimit: number, identifier: string): number {
  return superBlobSize + directorySize + identifier.length + 1 + Math.ceil(codeLimit / pageSize) * hashSize;
}

/** A super blob with one code directory of version 0x20400, big-endian. */
function makeSignature(
  code: Uint8Array,
  identifier: string,
  textStart: bigint,
  textSize: bigint,
): Uint8Array {
  const bytes = new Uint8Array(signatureSize(code.length, identifier));
  const data = view(bytes);
  const pages = Math.ceil(code.length / pageSize);
  const hashOffset = directorySize + identifier.length + 1;
  const adhocFromLinker = 0x2_0002;
  const [sha256, mainBinary] = [2, 1n];
  const head = [0xfade0cc0, bytes.length, 1, 0, superBlobSize];
  const directory = [0xfade0c02, bytes.length - superBlobSize, 0x2_0400, adhocFromLinker];
  const places = [hashOffset, directorySize, 0, pages, code.length];
  for (const [index, value] of [...head, ...directory, ...places].entries()) data.setUint32(index * 4, value);
  const at = superBlobSize;
  bytes.set([hashSize, sha256, 0, pageBits], at + 36);
  data.setBigUint64(at + 64, textStart);
  data.setBigUint64(at + 72, textSize);
  data.setBigUint64(at + 80, mainBinary);
  bytes.set(Buffer.from(identifier), at + directorySize);
  for (let page = 0; page < pages; page++) {
    const hash = createHash("sha256")
      .update(code.subarray(page * pageSize, (page + 1) * pageSize))
      .digest();
    bytes.set(hash, at + hashOffset + page * hashSize);
  }
  return bytes;
}

function view(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function refuse(why: string): AppError {
  return new AppError("failed", `Cannot sign the executable: ${why}`);
}
