// The names of a machine in one block of bytes, sorted for lookups: a machine may know 50,000 names, which as objects take
// tens of megabytes. The block can be kept in a file, so that a start reads it instead of every name. Pure.

import { parseAddress } from "../../base/ip.ts";
import type { NameRecord } from "./name-records.ts";

/** How many names an address has at most: networks of organizations may overlap. */
const maxPointers = 8;
const kinds = ["lighthouse", "node", "alias"] as const;
/**
 * The block: a head, the records, the keys, and the places of the keys in sorted order. All numbers are little-endian.
 * - head: three numbers of four bytes: bytes of the records, bytes of the keys, number of keys;
 * - text: two bytes of length, and its bytes; list of texts: one byte with their number, and the texts;
 * - record: one byte for the kind; slug, node and class as texts; the lists of names and addresses;
 * - key: a text; one byte with the number of its records; the place of each, four bytes from the begin of the records.
 */
const headBytes = 12;

export type PackedNames = {
  /** The addresses of a full name in lower case; undefined if there is none. */
  addressesOf(name: string): readonly string[] | undefined;
  /** The preferred names of an address, by its `addressKey`. */
  namesAt(key: string): string[];
  /** The node or address with a full name in lower case. */
  named(name: string): NameRecord | undefined;
  /** The names with an address, by its `addressKey`. */
  at(key: string): NameRecord[];
  /** The names of the chosen organizations, in order, at most `maxOfKind` of each kind. */
  list(isChosen: (slug: string) => boolean, maxOfKind: number): NameRecord[];
};

/** The address in hexadecimal digits: the same for each way to write it. */
export function addressKey(text: string): string | undefined {
  const address = parseAddress(text);
  return address?.value.toString(16).padStart(address.family === 4 ? 8 : 32, "0");
}

/** Names and addresses are keys of one list, sorted by JavaScript's order of texts. */
const nameKey = (name: string) => `n${name}`;
const pointerKey = (hexAddress: string) => `p${hexAddress}`;

export function packNames(names: readonly NameRecord[]): Uint8Array {
  const records = new ByteWriter();
  /** The places of its records, by key. */
  const places = new Map<string, number[]>();
  for (const record of names) {
    const { kind, slug, node, addresses } = record;
    const place = records.length;
    records.byte(kinds.indexOf(kind));
    for (const text of [slug, node, record.class ?? ""]) records.text(text);
    for (const texts of [record.names, addresses]) {
      records.byte(texts.length);
      for (const text of texts) records.text(text);
    }
    for (const name of record.names) places.set(nameKey(name), [place]);
    for (const address of addresses) {
      const key = pointerKey(addressKey(address) ?? "");
      const recordsOfAddress = places.get(key);
      if (recordsOfAddress === undefined) places.set(key, [place]);
      // An alias becomes the name of an address only if the address has no other name.
      else if (kind !== "alias" && recordsOfAddress.length < maxPointers) recordsOfAddress.push(place);
    }
  }
  const keys = new ByteWriter();
  const sorted = new ByteWriter();
  for (const key of [...places.keys()].sort()) {
    sorted.number(keys.length);
    keys.text(key);
    const found = places.get(key) ?? [];
    keys.byte(found.length);
    for (const place of found) keys.number(place);
  }
  const head = Buffer.alloc(headBytes);
  for (const [at, size] of [records.length, keys.length, places.size].entries())
    head.writeUInt32LE(size, at * 4);
  return Buffer.concat([head, records.bytes(), keys.bytes(), sorted.bytes()]);
}

export function openNames(packed: Uint8Array): PackedNames {
  const bytes = Buffer.from(packed.buffer, packed.byteOffset, packed.byteLength);
  const keysAt = headBytes + bytes.readUInt32LE(0);
  const sortedAt = keysAt + bytes.readUInt32LE(4);
  const keyCount = bytes.readUInt32LE(8);
  const recordsOf = (key: string): NameRecord[] => {
    let low = 0;
    let high = keyCount - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const place = keysAt + bytes.readUInt32LE(sortedAt + middle * 4);
      const end = place + 2 + bytes.readUInt16LE(place);
      const candidate = bytes.toString("utf8", place + 2, end);
      if (candidate === key) {
        return Array.from({ length: bytes.readUInt8(end) }, (_, at) => {
          return recordAt(bytes, headBytes + bytes.readUInt32LE(end + 1 + at * 4)).record;
        });
      }
      if (candidate < key) low = middle + 1;
      else high = middle - 1;
    }
    return [];
  };
  return {
    addressesOf: (name) => recordsOf(nameKey(name))[0]?.addresses,
    namesAt: (key) => recordsOf(pointerKey(key)).flatMap(({ names }) => names[0] ?? []),
    named: (name) => recordsOf(nameKey(name))[0],
    at: (key) => recordsOf(pointerKey(key)),
    list(isChosen, maxOfKind) {
      /** How many were found, by kind. */
      const counts = new Map<string, number>();
      const found: NameRecord[] = [];
      for (let at = headBytes; at < keysAt;) {
        const { record, end } = recordAt(bytes, at);
        at = end;
        const count = counts.get(record.kind) ?? 0;
        if (count >= maxOfKind || !isChosen(record.slug)) continue;
        counts.set(record.kind, count + 1);
        found.push(record);
      }
      return found;
    },
  };
}

function recordAt(bytes: Buffer, place: number): { record: NameRecord; end: number } {
  let at = place;
  const byte = () => bytes.readUInt8(at++);
  const text = () => {
    const from = at + 2;
    at = from + bytes.readUInt16LE(at);
    return bytes.toString("utf8", from, at);
  };
  const texts = () => Array.from({ length: byte() }, text);
  const kind = kinds[byte()] ?? "node";
  const [slug, node, nodeClass, names, addresses] = [text(), text(), text(), texts(), texts()];
  return {
    record: { kind, slug, node, names, addresses, ...(nodeClass === "" ? {} : { class: nodeClass }) },
    end: at,
  };
}

class ByteWriter {
  #buffer = Buffer.allocUnsafe(4096);
  length = 0;

  #room(size: number): number {
    const at = this.length;
    this.length += size;
    if (this.length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.length, this.#buffer.length * 2));
      this.#buffer.copy(larger);
      this.#buffer = larger;
    }
    return at;
  }

  byte(value: number): void {
    // Two statements: the first one may replace the buffer.
    const at = this.#room(1);
    this.#buffer.writeUInt8(value, at);
  }

  number(value: number): void {
    const at = this.#room(4);
    this.#buffer.writeUInt32LE(value, at);
  }

  text(value: string): void {
    const size = Buffer.byteLength(value);
    const at = this.#room(2 + size);
    this.#buffer.writeUInt16LE(size, at);
    this.#buffer.write(value, at + 2, "utf8");
  }

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.length);
  }
}
