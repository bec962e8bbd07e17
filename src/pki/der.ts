// The part of DER (X.690) that overlay certificates need. A general ASN.1 library needs more time to parse a
// certificate than the processor needs to verify it, and accepts BER, in which one value has many encodings.

import { badCertificate } from "./certificate.ts";

const encoder = new TextEncoder();

/**
 * Writes into one growing buffer. A class with `open` and `close`, because closures and an allocation per element made
 * encoding eight times slower, which is more than half the time of a signature.
 */
export class DerWriter {
  #bytes = new Uint8Array(512);
  /** Where the next byte goes. */
  #at = 0;

  /** Begins an element. Pass the result to `close`. */
  open(tag: number): number {
    this.#reserve(2);
    this.#bytes[this.#at] = tag;
    this.#at += 2;
    return this.#at;
  }

  /** Ends an element, and writes its length before its content. */
  close(start: number): void {
    const length = this.#at - start;
    if (length < 0x80) {
      this.#bytes[start - 1] = length;
      return;
    }
    // The long form needs more bytes for the length (X.690, 8.1.3.5), so move the content.
    const extra = bytesAfterFirst(length);
    this.#reserve(extra);
    this.#bytes.copyWithin(start + extra, start, this.#at);
    this.#bytes[start - 1] = 0x80 | extra;
    for (let index = 0; index < extra; index++)
      this.#bytes[start + index] = length >>> (8 * (extra - 1 - index));
    this.#at += extra;
  }

  /** Copies bytes: an encoded element, or a part of the open one. */
  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  bytes(tag: number, content: Uint8Array): void {
    const start = this.open(tag);
    this.raw(content);
    this.close(start);
  }

  text(tag: number, content: string): void {
    const start = this.open(tag);
    // A UTF-16 unit has at most three bytes in UTF-8.
    this.#reserve(3 * content.length);
    this.#at += encoder.encodeInto(content, this.#bytes.subarray(this.#at)).written;
    this.close(start);
  }

  /** An integer from 0 to 2^53 - 1, as the shortest two's complement. */
  integer(tag: number, value: number): void {
    const start = this.open(tag);
    let length = 1;
    for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 256)) length++;
    this.#reserve(length);
    let rest = value;
    for (let at = this.#at + length - 1; at >= this.#at; at--) {
      this.#bytes[at] = rest % 256;
      rest = Math.floor(rest / 256);
    }
    this.#at += length;
    this.close(start);
  }

  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#at);
  }

  #reserve(length: number): void {
    if (this.#at + length <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.#at + length));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}

/** The value of an INTEGER. Throws if it is not the shortest encoding, negative, or 2^53 or more. */
export function integerOf(bytes: Uint8Array): number {
  const [first = 0xff, second = 0xff] = bytes;
  let value = 0;
  for (const byte of bytes) value = value * 256 + byte;
  const isPadded = bytes.length > 1 && first === 0 && second < 0x80;
  if (first >= 0x80 || isPadded || bytes.length > 8 || !Number.isSafeInteger(value)) {
    throw badCertificate("it has a number out of range");
  }
  return value;
}

export type DerReader = {
  readonly isEmpty: boolean;
  /** The content of the next element, which must have this tag. */
  read(tag: number): Uint8Array;
  /** The same; undefined at the end, or if the next element has another tag. */
  readOptional(tag: number): Uint8Array | undefined;
};

/** Reads elements in order. Throws `bad_request` for anything unexpected. */
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
      if (content === undefined) throw badCertificate(`an element 0x${tag.toString(16)} is missing`);
      return content;
    },
  };
}

/** How many bytes the shortest form of a length has after its first one. At most 3. */
function bytesAfterFirst(length: number): number {
  if (length < 0x80) return 0;
  if (length < 0x100) return 1;
  return length < 0x10000 ? 2 : 3;
}

/** Where the content begins and ends. DER allows only the shortest form of a length. */
function readLength(bytes: Uint8Array, at: number): { start: number; end: number } {
  const first = bytes[at] ?? 0xff;
  const count = first < 0x80 ? 0 : first - 0x80;
  let length = count === 0 ? first : 0;
  if (count > 3 || first === 0x80) throw badCertificate("it has a length that is not DER");
  for (let index = 1; index <= count; index++) length = length * 256 + (bytes[at + index] ?? 0);
  const start = at + 1 + count;
  if (bytesAfterFirst(length) !== count) throw badCertificate("it has a length that is not DER");
  if (start + length > bytes.length) throw badCertificate("it is truncated");
  return { start, end: start + length };
}
