// The wire format of D-Bus (specification 0.41): messages in little-endian, the byte order of all supported machines. Only
// the types that the callers need. Pure.

import { AppError } from "../../base/errors.ts";

export type Message = {
  type: number;
  serial: number;
  replySerial: number | undefined;
  member: string | undefined;
  errorName: string | undefined;
  body: unknown[];
};

export type Call = {
  destination: string;
  path: string;
  interface: string;
  member: string;
  signature?: string;
  body?: readonly unknown[];
};

export const messageType = { call: 1, reply: 2, error: 3, signal: 4 };
/** A message begins with byte order ("l": little-endian), type, flags and version, a byte each. */
const [littleEndian, version] = [0x6c, 1];
/** Then numbers of four bytes at these places: length of the body, serial, length of the fields. The fields follow at 16. */
const place = { bodyLength: 4, serial: 8, fieldsLength: 12 };
/** The codes of header fields. */
const code = {
  path: 1,
  interface: 2,
  member: 3,
  errorName: 4,
  replySerial: 5,
  destination: 6,
  signature: 8,
};
/** A call must not start the service: it answers if it runs. */
const noAutoStart = 2;
/** The specification allows 128 MiB; what we ask for takes some hundred bytes. */
const maxBytes = 1024 * 1024;

export function encodeCall({ signature, body, ...call }: Call, serial: number): Buffer {
  const fields: Field[] = [
    [code.path, "o", call.path],
    [code.interface, "s", call.interface],
    [code.member, "s", call.member],
    [code.destination, "s", call.destination],
  ];
  return encodeMessage({ type: messageType.call, serial, fields }, signature, body);
}

/** Code, type and value of a header field. */
type Field = [number, string, unknown];

export function encodeMessage(
  { type, serial, fields }: { type: number; serial: number; fields: readonly Field[] },
  signature?: string,
  body: readonly unknown[] = [],
): Buffer {
  const content = new Writer();
  if (signature !== undefined) content.values(signature, body);
  const bytes = content.bytes();
  const all = signature === undefined ? fields : [...fields, [code.signature, "g", signature] as const];
  const head = new Writer();
  for (const byte of [littleEndian, type, noAutoStart, version]) head.value("y", byte);
  head.value("u", bytes.length);
  head.value("u", serial);
  const variants = all.map(([fieldCode, fieldType, value]) => [fieldCode, { type: fieldType, value }]);
  head.value("a(yv)", variants);
  head.align(8);
  return Buffer.concat([head.bytes(), bytes]);
}

/** The first message and its length; undefined while it is not complete. Throws if it is none. */
export function decodeMessage(bytes: Buffer): { message: Message; length: number } | undefined {
  if (bytes.length < 16) return undefined;
  if (bytes[0] !== littleEndian || bytes[3] !== version) throw malformed("unknown byte order or version");
  const start = padded(16 + bytes.readUInt32LE(place.fieldsLength), 8);
  const length = start + bytes.readUInt32LE(place.bodyLength);
  if (length > maxBytes) throw malformed("too long");
  if (bytes.length < length) return undefined;
  // The fields are an array, which begins with its length.
  const head = new Reader(bytes.subarray(0, start), place.fieldsLength);
  const fields = new Map(head.value("a(yv)") as [number, unknown][]);
  const text = (fieldCode: number) => {
    const value = fields.get(fieldCode);
    return typeof value === "string" ? value : undefined;
  };
  const replySerial = fields.get(code.replySerial);
  const body = new Reader(bytes.subarray(start, length), 0);
  return {
    length,
    message: {
      type: bytes[1] ?? 0,
      serial: bytes.readUInt32LE(place.serial),
      replySerial: typeof replySerial === "number" ? replySerial : undefined,
      member: text(code.member),
      errorName: text(code.errorName),
      body: typesIn(text(code.signature) ?? "").map((type) => body.value(type)),
    },
  };
}

// Types have the letters of the specification: `y` a byte, `q` 16 bits, `b` a boolean, `i` and `u` 32 bits, `t` 64 bits, `s` a text,
// `o` a path, `g` a signature, `v` a value with its type, `(` a struct, `{` an entry of a map, `a` an array.

class Writer {
  #parts: Buffer[] = [];
  #length = 0;

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }

  align(to: number): void {
    this.#add(Buffer.alloc(padded(this.#length, to) - this.#length));
  }

  values(signature: string, values: readonly unknown[]): void {
    for (const [at, type] of typesIn(signature).entries()) this.value(type, values[at]);
  }

  value(type: string, value: unknown): void {
    this.align(alignmentOf(type));
    switch (type[0]) {
      case "y":
        return this.#add(Buffer.from([Number(value)]));
      case "q":
        return this.#number(2, Number(value));
      case "b":
      case "i":
      case "u":
        return this.#number(4, Number(value) >>> 0);
      case "s":
      case "o": {
        const text = Buffer.from(`${String(value)}\0`);
        this.#number(4, text.length - 1);
        return this.#add(text);
      }
      case "g": {
        const text = String(value);
        return this.#add(Buffer.from(`${String.fromCodePoint(text.length)}${text}\0`, "latin1"));
      }
      case "v": {
        const variant = value as { type: string; value: unknown };
        this.value("g", variant.type);
        return this.value(variant.type, variant.value);
      }
      case "(":
        return this.values(type.slice(1, -1), value as unknown[]);
      case "a":
        return this.#array(type.slice(1), value as unknown[]);
      default:
        throw unsupported(type);
    }
  }

  #array(type: string, values: readonly unknown[]): void {
    const size = Buffer.alloc(4);
    this.#add(size);
    // The length counts neither itself nor the padding before the first element.
    this.align(alignmentOf(type));
    const begin = this.#length;
    for (const each of values) this.value(type, each);
    size.writeUInt32LE(this.#length - begin);
  }

  #number(size: 2 | 4, value: number): void {
    const bytes = Buffer.alloc(size);
    bytes.writeUIntLE(value, 0, size);
    this.#add(bytes);
  }

  #add(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }
}

class Reader {
  readonly #bytes: Buffer;
  #at: number;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.#at = at;
  }

  value(type: string): unknown {
    this.#at = padded(this.#at, alignmentOf(type));
    switch (type[0]) {
      case "y":
        return this.#number(1);
      case "q":
        return this.#number(2);
      case "b":
        return this.#number(4) !== 0;
      case "i":
        return this.#number(4) | 0;
      case "u":
        return this.#number(4);
      case "t":
        return this.#take(8).readBigUInt64LE();
      case "s":
      case "o":
        return this.#text(this.#number(4));
      case "g":
        return this.#text(this.#number(1));
      case "v":
        return this.value(this.#variantType());
      case "(":
      case "{":
        return typesIn(type.slice(1, -1)).map((each) => this.value(each));
      case "a":
        return this.#array(type.slice(1));
      default:
        throw unsupported(type);
    }
  }

  #variantType(): string {
    const [type, ...more] = typesIn(this.#text(this.#number(1)));
    if (type === undefined || more.length > 0) throw malformed("a variant without exactly one type");
    return type;
  }

  #array(type: string): unknown[] {
    const size = this.#number(4);
    this.#at = padded(this.#at, alignmentOf(type));
    const end = this.#at + size;
    if (end > this.#bytes.length) throw malformed("an array beyond the end");
    const found: unknown[] = [];
    while (this.#at < end) {
      const before = this.#at;
      found.push(this.value(type));
      if (this.#at === before) throw malformed("an array of nothing");
    }
    return found;
  }

  #text(length: number): string {
    return this.#take(length + 1).toString("utf8", 0, length);
  }

  #number(size: 1 | 2 | 4): number {
    return this.#take(size).readUIntLE(0, size);
  }

  #take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw malformed("a value beyond the end");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }
}

/** The complete types of a signature: `ia(iay)s` has `i`, `a(iay)` and `s`. */
function typesIn(signature: string): string[] {
  const types: string[] = [];
  let begin = 0;
  let depth = 0;
  for (let at = 0; at < signature.length; at++) {
    const char = signature[at] ?? "";
    if ("({".includes(char)) depth++;
    if (")}".includes(char)) depth--;
    if (depth < 0 || depth > 8) throw malformed(`the signature ${signature.slice(0, 64)}`);
    if (depth === 0 && char !== "a") {
      types.push(signature.slice(begin, at + 1));
      begin = at + 1;
    }
  }
  if (begin < signature.length) throw malformed(`the signature ${signature.slice(0, 64)}`);
  return types;
}

/** The place of a value is a multiple of this, in bytes. */
function alignmentOf(type: string): number {
  if ("ygv".includes(type[0] ?? "")) return 1;
  if (type[0] === "q") return 2;
  return "({t".includes(type[0] ?? "") ? 8 : 4;
}

const padded = (length: number, to: number) => Math.ceil(length / to) * to;

const malformed = (what: string) => new AppError("failed", `The system bus sent a damaged message: ${what}`);
const unsupported = (type: string) =>
  new AppError("internal", `D-Bus type ${type.slice(0, 8)} is not supported`);
