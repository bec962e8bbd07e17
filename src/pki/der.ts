// The little of DER (X.690) that overlay certificates need. A general ASN.1 library takes longer to read one
// certificate than the processor takes to verify it, and reads BER, where one value has many spellings.

import { badCertificate } from "./certificate.ts";

const encoder = new TextEncoder();

/**
 * Writes into one growing buffer. A class, and `open` and `close` instead of functions handed in: closures and an
 * allocation for each element made the encoding eight times slower, more than half of a signature.
 */
export class DerWriter {
  #bytes = new Uint8Array(512);
  #at = 0;

  /** Begins an element; the answer is for `close`. */
  open(tag: number): number {
    this.#reserve(2);
    this.#bytes[this.#at] = tag;
    this.#at += 2;
    return this.#at;
  }

  close(start: number): void {
    const length = this.#at - start;
    if (length < 0x80) {
      this.#bytes[start - 1] = length;
      return;
    }
    // The long form needs room for the length itself (X.690, 8.1.3.5): the content moves up.
    const extra = length < 0x100 ? 1 : length < 0x10000 ? 2 : 3;
    this.#reserve(extra);
    this.#bytes.copyWithin(start + extra, start, this.#at);
    this.#bytes[start - 1] = 0x80 | extra;
    for (let each = 0; each < extra; each++) this.#bytes[start + each] = length >>> (8 * (extra - 1 - each));
    this.#at += extra;
  }

  /** Bytes as they are: an element that is already encoded, or a part of an open one. */
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
    this.#reserve(3 * content.length);
    this.#at += encoder.encodeInto(content, this.#bytes.subarray(this.#at)).written;
    this.close(start);
  }

  /** A whole number that is not negative, below 2^53, as the shortest two's complement. */
  integer(tag: number, value: number): void {
    const start = this.open(tag);
    let length = 1;
    for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 256)) length++;
    this.#reserve(length);
    for (let at = this.#at + length - 1, rest = value; at >= this.#at; at--, rest = Math.floor(rest / 256)) {
      this.#bytes[at] = rest % 256;
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

/** The value of an INTEGER's content. Throws for a longer spelling, a negative one, or one from 2^53 on. */
export function integerOf(bytes: Uint8Array): number {
  const [first = 0xff, second = 0xff] = bytes;
  let value = 0;
  for (const byte of bytes) value = value * 256 + byte;
  const isPadded = bytes.length > 1 && first === 0 && second < 0x80;
  if (first >= 0x80 || isPadded || bytes.length > 8 || !Number.isSafeInteger(value)) {
    throw badCertificate("a number out of range");
  }
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
