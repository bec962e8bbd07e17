// Replaces the ad-hoc signature that macOS requires of every executable, as a linker does (without a certificate).
// Formats: loader.h and cs_blobs.h of xnu. Only the build uses it.

import { createHash } from "node:crypto";
import { AppError } from "../base/errors.ts";

const pageBits = 12;
const pageSize = 1 << pageBits;
const hashSize = 32;

/** The magic numbers of the file, of the signature, and of its code directory. */
const magic = { header: 0xfeedfacf, superBlob: 0xfade0cc0, codeDirectory: 0xfade0c02 };
/** `LC_SEGMENT_64` and `LC_CODE_SIGNATURE`. */
const commandKinds = { segment: 0x19, codeSignature: 0x1d };
/** Code directories of this version have the place of the code at their end. */
const directoryVersion = 0x2_0400;
/** Pages of ARM machines have 16 KB. */
const segmentPage = 0x4000n;

// The offsets of fields in their structures, from loader.h and cs_blobs.h. `end`: the size of the structure.

const header = { commandCount: 16, end: 32 };
/** How each load command begins. */
const command = { kind: 0, size: 4 };
const segment = { name: 8, nameEnd: 24, memorySize: 32, fileOffset: 40, fileSize: 48 };
const signatureCommand = { offset: 8, size: 12 };
const superBlob = { end: 20 };
const codeDirectory = { hashSize: 36, textStart: 64, textSize: 72, textFlags: 80, end: 88 };

/** `CS_ADHOC` and `CS_LINKER_SIGNED`. */
const adhocFromLinker = 0x2_0002;
/** `CS_HASHTYPE_SHA256`. */
const sha256 = 2;
/** `CS_EXECSEG_MAIN_BINARY`. */
const mainBinary = 1n;

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
  const end = view(executable).getUint32(signature + signatureCommand.offset, true);
  const signed = new Uint8Array(end + signatureSize(end, identifier));
  signed.set(executable.subarray(0, end));
  const data = view(signed);
  data.setUint32(signature + signatureCommand.size, signed.length - end, true);
  const linkEditSize = BigInt(signed.length) - data.getBigUint64(linkEdit + segment.fileOffset, true);
  const memorySize = ((linkEditSize + segmentPage - 1n) / segmentPage) * segmentPage;
  data.setBigUint64(linkEdit + segment.memorySize, memorySize, true);
  data.setBigUint64(linkEdit + segment.fileSize, linkEditSize, true);
  // Sign last: the sizes written above are part of the signed first page.
  signed.set(makeSignature(signed.subarray(0, end), identifier, textStart, textSize), end);
  return signed;
}

function readCommands(executable: Uint8Array): MachO {
  const data = view(executable);
  if (data.getUint32(0, true) !== magic.header) throw refuse("it is not a 64-bit Mach-O file");
  const found: Partial<MachO> = {};
  for (let at = header.end, left = data.getUint32(header.commandCount, true); left > 0; left--) {
    const kind = data.getUint32(at + command.kind, true);
    const name = kind === commandKinds.segment ? segmentName(executable, at) : "";
    if (kind === commandKinds.codeSignature) found.signature = at;
    if (name === "__LINKEDIT") found.linkEdit = at;
    if (name === "__TEXT") {
      found.textStart = data.getBigUint64(at + segment.fileOffset, true);
      found.textSize = data.getBigUint64(at + segment.fileSize, true);
    }
    at += data.getUint32(at + command.size, true);
  }
  const { signature, linkEdit, textStart, textSize } = found;
  if (signature === undefined || linkEdit === undefined || textStart === undefined || textSize === undefined)
    throw refuse("it has no signature to replace");
  return { signature, linkEdit, textStart, textSize };
}

function segmentName(executable: Uint8Array, at: number): string {
  return Buffer.from(executable.subarray(at + segment.name, at + segment.nameEnd))
    .toString("latin1")
    .replace(/\0.*$/, "");
}

function signatureSize(codeLimit: number, identifier: string): number {
  return (
    superBlob.end + codeDirectory.end + identifier.length + 1 + Math.ceil(codeLimit / pageSize) * hashSize
  );
}

/** The signature: a super blob with one code directory of version 0x20400, big-endian, and the hashes of all pages. */
function makeSignature(
  code: Uint8Array,
  identifier: string,
  textStart: bigint,
  textSize: bigint,
): Uint8Array {
  const bytes = new Uint8Array(signatureSize(code.length, identifier));
  const data = view(bytes);
  const pages = Math.ceil(code.length / pageSize);
  const hashOffset = codeDirectory.end + identifier.length + 1;
  // Words of 32 bits in the order of cs_blobs.h. The super blob: magic, length, one blob, its type, its offset.
  const head = [magic.superBlob, bytes.length, 1, 0, superBlob.end];
  // The code directory: magic, length, version, flags; then the offsets of hashes and identifier, no special hashes, the number
  // of pages, and where the code ends.
  const directory = [magic.codeDirectory, bytes.length - superBlob.end, directoryVersion, adhocFromLinker];
  const places = [hashOffset, codeDirectory.end, 0, pages, code.length];
  for (const [index, value] of [...head, ...directory, ...places].entries()) data.setUint32(index * 4, value);
  const at = superBlob.end;
  bytes.set([hashSize, sha256, 0, pageBits], at + codeDirectory.hashSize);
  data.setBigUint64(at + codeDirectory.textStart, textStart);
  data.setBigUint64(at + codeDirectory.textSize, textSize);
  data.setBigUint64(at + codeDirectory.textFlags, mainBinary);
  bytes.set(Buffer.from(identifier), at + codeDirectory.end);
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
