// Reads one regular file with an exact name from a .tar.gz, .tar.zst or .zip, up to a maximum size. Must not write to
// disk, and must not use any path from the archive.

import { AppError, messageOf } from "../base/errors.ts";

/** Maximum size of an archive and of its unpacked content. The engine's archives are under 40 MB. */
export const maxUnpackedBytes = 300 * 1024 * 1024;

export type ArchiveKind = "tar.gz" | "tar.zst" | "zip";

/** Loaded on demand: the daemon needs only the maximum, and these streams are 1.6 MB of its memory. */
const zlib = (): typeof import("node:zlib") => require("node:zlib");

/** Detects the kind by the first bytes. Undefined for anything else, such as a plain executable. */
export function archiveKind(bytes: Uint8Array): ArchiveKind | undefined {
  const magic = Buffer.from(bytes.subarray(0, 4)).toString("hex");
  if (magic.startsWith("1f8b")) return "tar.gz";
  if (magic === "28b52ffd") return "tar.zst";
  return magic === "504b0304" ? "zip" : undefined;
}

/** Returns the content of the member `name`. Fails if it is missing, duplicated, a link, truncated or too large. */
export function readMember(bytes: Uint8Array, name: string): Uint8Array {
  switch (archiveKind(bytes)) {
    case "tar.gz":
      return readTar(unpack(zlib().gunzipSync, bytes), name);
    case "tar.zst":
      return readTar(unpack(zlib().zstdDecompressSync, bytes), name);
    case "zip":
      return readZip(bytes, name);
    case undefined:
      return refuse("it is not a .tar.gz, .tar.zst or .zip file");
  }
}

/** The only member of this name. */
function theOnly<T>([member, second]: readonly T[], name: string): T {
  if (member === undefined) return refuse(`it contains no file "${name}"`);
  if (second !== undefined) return refuse(`it contains "${name}" more than once`);
  return member;
}

/** Decompresses. A truncated .zst gives no error here; readTar refuses it because its end is missing. */
function unpack(
  decompress: (bytes: Uint8Array, options: { maxOutputLength: number }) => Uint8Array,
  bytes: Uint8Array,
): Uint8Array {
  try {
    return decompress(bytes, { maxOutputLength: maxUnpackedBytes });
  } catch {
    return refuse("it is damaged or too large when unpacked");
  }
}

/** POSIX ustar: 512-byte headers, each followed by its content, padded to 512 bytes (POSIX.1-2017, pax). */
function readTar(tar: Uint8Array, wanted: string): Uint8Array {
  const found: Uint8Array[] = [];
  for (let at = 0; at + 512 <= tar.length;) {
    const header = tar.subarray(at, at + 512);
    if (header.every((byte) => byte === 0)) return theOnly(found, wanted);
    requireChecksum(header);
    const size = octal(header, 124, 12);
    const start = at + 512;
    if (start + size > tar.length) refuse("it is truncated");
    const name = memberName(header);
    const type = header[156] ?? 0;
    if (name === wanted) {
      if (type !== 0 && type !== 0x30) refuse(`"${name}" in it is not a regular file`);
      found.push(tar.subarray(start, start + size));
    }
    at = start + Math.ceil(size / 512) * 512;
  }
  return refuse("it is truncated");
}

/** Long names are in two fields. */
function memberName(header: Uint8Array): string {
  const prefix = text(header, 257, 5) === "ustar" ? text(header, 345, 155) : "";
  const name = text(header, 0, 100);
  return (prefix === "" ? name : `${prefix}/${name}`).replace(/^\.\//, "");
}

/** Refuses a header with a wrong checksum, which counts its own eight bytes as blanks. */
function requireChecksum(header: Uint8Array): void {
  let sum = 0;
  for (let at = 0; at < 512; at++) sum += at >= 148 && at < 156 ? 0x20 : (header[at] ?? 0);
  if (sum !== octal(header, 148, 8)) refuse("a header in it has a wrong checksum");
}

function octal(header: Uint8Array, at: number, length: number): number {
  const digits = text(header, at, length).trim();
  if (!/^[0-7]{1,11}$/.test(digits)) refuse("a header in it is damaged");
  return Number.parseInt(digits, 8);
}

function text(bytes: Uint8Array, at: number, length: number): string {
  return Buffer.from(bytes.subarray(at, at + length))
    .toString("latin1")
    .split("\0", 1)
    .join();
}

/**
 * PKWARE APPNOTE 6.3. Reads the central directory at the end; supports neither ZIP64 nor encryption. The offsets below are those of
 * its sections 4.3.16 (end of the directory), 4.3.12 (entry of the directory) and 4.3.7 (local header).
 */
function readZip(zip: Uint8Array, wanted: string): Uint8Array {
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const end = findZipEnd(view);
  const count = view.getUint16(end + 10, true);
  const found: number[] = [];
  try {
    for (let at = view.getUint32(end + 16, true), entry = 0; entry < count; entry++) {
      if (view.getUint32(at, true) !== 0x02014b50) refuse("its directory is damaged");
      const nameLength = view.getUint16(at + 28, true);
      const name = Buffer.from(zip.subarray(at + 46, at + 46 + nameLength)).toString("utf8");
      if (name === wanted) found.push(at);
      at += 46 + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    }
    // Counted before one is inflated: entries may share one stream, and inflating each could take all memory.
    return zipMember(zip, view, theOnly(found, wanted));
  } catch (error) {
    if (error instanceof AppError) throw error;
    return refuse(`it is damaged (${messageOf(error)})`);
  }
}

/** The end of the directory: 22 bytes, then a comment of up to 65,535. */
function findZipEnd(view: DataView): number {
  for (let at = view.byteLength - 22; at >= 0 && at >= view.byteLength - 65_557; at--) {
    if (view.getUint32(at, true) === 0x06054b50) return at;
  }
  return refuse("it is truncated");
}

function zipMember(zip: Uint8Array, view: DataView, entry: number): Uint8Array {
  const unixType = (view.getUint32(entry + 38, true) >>> 28) & 0xf;
  const madeOnUnix = view.getUint8(entry + 5) === 3;
  // Type bits of st_mode: 8 is a regular file, 0 is not stated.
  if (madeOnUnix && unixType !== 0 && unixType !== 8) refuse("the member in it is not a regular file");
  const method = view.getUint16(entry + 10, true);
  const packed = view.getUint32(entry + 20, true);
  const size = view.getUint32(entry + 24, true);
  const local = view.getUint32(entry + 42, true);
  const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  if (size > maxUnpackedBytes || start + packed > zip.length) refuse("it is truncated or too large");
  const content = zip.subarray(start, start + packed);
  // 0: stored, 8: deflated.
  if (method !== 0 && method !== 8) refuse("the member in it uses an unsupported compression method");
  const plain = method === 0 ? content : zlib().inflateRawSync(content, { maxOutputLength: size + 1 });
  if (plain.length !== size || Bun.hash.crc32(plain) !== view.getUint32(entry + 16, true)) {
    refuse("its checksum is wrong");
  }
  return plain;
}

function refuse(why: string): never {
  throw new AppError("failed", `Cannot unpack the archive: ${why}`);
}
