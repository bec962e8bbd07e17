// The little of DER (X.690) that overlay certificates need. A general ASN.1 library takes longer to read one
// certificate than the processor takes to verify it, and reads BER, where one value has many spellings.

import { badCertificate } from "./certificate.ts";

/** One element: tag, length, and the parts as its content. */
export function element(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  let length = 0;
  for (const part of parts) length += part.length;
  const header = length < 0x80 ? 2 : length < 0x100 ? 3 : length < 0x10000 ? 4 : 5;
  const bytes = Buffer.allocUnsafe(header + length);
  bytes[0] = tag;
  if (header === 2) bytes[1] = length;
  else {
    bytes[1] = 0x80 | (header - 2);
    bytes.writeUIntBE(length, 2, header - 2);
  }
  let at = header;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Content of an INTEGER that is not negative: the shortest two's complement. */
export function integerBytes(value: number): Uint8Array {
  const bytes = [value % 256];
  for (let rest = Math.floor(value / 256); rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  if ((bytes[0] ?? 0) >= 0x80) bytes.unshift(0);
  return Uint8Array.from(bytes);
}

/** The value of such an INTEGER. Throws for another spelling, a negative one, or one over 2^53. */
export function integerOf(bytes: Uint8Array): number {
  let value = 0;
  for (const byte of bytes) value = value * 256 + byte;
  const tooLong = bytes.length > 8 || !Number.isSafeInteger(value);
  if (tooLong || Buffer.compare(integerBytes(value), bytes) !== 0)
    throw badCertificate("a number out of range");
  return value;
}

export type DerReader = {
  readonly isEmpty: boolean;
  /** The content of the next element, which must have this tag. */
  read(tag: number): Uint8Array;
  /** The same, or undefined if the next element has another tag or there is none. */
  readOptional(tag: number): Uint8Array | undefined;
};

/** Reads elements one after another; everything unexpected throws `bad_request`. */
export function makeDerReader(bytes: Uint8Array): DerReader {
  let at = 0;
  const readOptional = (tag: number): Uint8Array | undefined => {
    if (bytes[at] !== tag) return undefined;
    const { start, end } = readLength(bytes, at + 1);
    at = end;
    return bytes.subarray(start, end);
  };
  return {
    get isEmpty() {
      return at >= bytes.length;
    },
    readOptional,
    read(tag) {
      const content = readOptional(tag);
      if (content === undefined) throw badCertificate(`no element 0x${tag.toString(16)} where one must be`);
      return content;
    },
  };
}

/** Only the shortest form of a length is DER. */
function readLength(bytes: Uint8Array, at: number): { start: number; end: number } {
  const first = bytes[at] ?? 0xff;
  const count = first < 0x80 ? 0 : first - 0x80;
  let length = count === 0 ? first : 0;
  if (count > 3 || first === 0x80) throw badCertificate("a length that is not DER");
  for (let each = 1; each <= count; each++) length = length * 256 + (bytes[at + each] ?? 0);
  const shortest = length < 0x80 ? 0 : length < 0x100 ? 1 : length < 0x10000 ? 2 : 3;
  const start = at + 1 + count;
  if (shortest !== count) throw badCertificate("a length that is not DER");
  if (start + length > bytes.length) throw badCertificate("it is cut short");
  return { start, end: start + length };
}
