// Unpacks .xz (https://tukaani.org/xz/xz-file-format.txt) with the LZMA2 filter, which Bun cannot. The check sums
// inside are not looked at: whoever calls has compared the SHA-256 of the whole file with a signed one.

import { AppError } from "../errors.ts";

/** The content of an .xz file; damaged, cut off, with another filter or over `maxBytes`: an error. */
export function unpackXz(file: Uint8Array, maxBytes: number): Uint8Array {
  const blocks = findBlocks(file);
  const size = blocks.reduce((sum, block) => sum + block.size, 0);
  if (size > maxBytes) refuse(`its content is larger than ${maxBytes} bytes`);
  const output = new Uint8Array(size);
  let at = 0;
  for (const { start } of blocks) at = decodeBlock(file, start, output, at);
  return output;
}

/** `start` is the first chunk, `size` what the block unpacks to. */
type Block = { start: number; size: number };

const checkSizes = new Map([
  [0, 0],
  [1, 4],
  [4, 8],
  [10, 32],
]);

/** The headers of the chunks say what they unpack to, so that the output is allocated once. */
function findBlocks(file: Uint8Array): Block[] {
  if (Buffer.from(file.subarray(0, 6)).toString("hex") !== "fd377a585a00") refuse("it is no .xz file");
  const checkSize = checkSizes.get((file[7] ?? 0) & 0xf) ?? refuse("it has an unknown kind of check sum");
  const blocks: Block[] = [];
  for (let at = 12; ;) {
    const sizeByte = file[at] ?? refuse("it is cut off");
    // A zero in place of a block's header begins the index, after which nothing is needed.
    if (sizeByte === 0) return blocks;
    checkFilter(file, at);
    const start = at + (sizeByte + 1) * 4;
    let size = 0;
    for (at = start; ;) {
      const chunk = readChunk(file, at);
      if (chunk === undefined) break;
      size += chunk.size;
      at = chunk.start + chunk.packed;
      if (at >= file.length) refuse("it is cut off");
    }
    blocks.push({ start, size });
    at = start + Math.ceil((at + 1 - start) / 4) * 4 + checkSize;
  }
}

/** One filter, and that LZMA2. */
function checkFilter(file: Uint8Array, header: number): void {
  const flags = file[header + 1] ?? 0;
  let at = header + 2;
  for (const bit of [0x40, 0x80]) {
    if ((flags & bit) === 0) continue;
    while (((file[at++] ?? 0) & 0x80) !== 0);
  }
  if ((flags & 3) !== 0 || file[at] !== 0x21) refuse("it is packed with another filter than LZMA2");
}

type Chunk = { control: number; start: number; packed: number; size: number; props: number };

/** undefined at the end of the block. */
function readChunk(file: Uint8Array, at: number): Chunk | undefined {
  const control = file[at] ?? refuse("it is cut off");
  if (control === 0) return undefined;
  const word = (offset: number) => ((file[at + offset] ?? 0) << 8) | (file[at + offset + 1] ?? 0);
  if (control < 0x80) {
    if (control > 2) refuse("it is damaged");
    const size = word(1) + 1;
    return { control, start: at + 3, packed: size, size, props: 0 };
  }
  const size = ((control & 0x1f) << 16) + word(1) + 1;
  const hasProps = control >= 0xc0;
  return {
    control,
    start: at + (hasProps ? 6 : 5),
    packed: word(3) + 1,
    size,
    props: hasProps ? (file[at + 5] ?? 0) : 0,
  };
}

function decodeBlock(file: Uint8Array, start: number, output: Uint8Array, from: number): number {
  const decode = makeLzmaDecoder(file, output, from);
  let at = from;
  for (let chunk = readChunk(file, start); chunk !== undefined;) {
    if (chunk.control < 0x80) {
      output.set(file.subarray(chunk.start, chunk.start + chunk.size), at);
    } else {
      decode(chunk, at);
    }
    at += chunk.size;
    chunk = readChunk(file, chunk.start + chunk.packed);
  }
  return at;
}

// Places of the probabilities in one array, as in the LZMA specification of the 7-Zip SDK.
const isMatch = 0;
const isRep = 192;
const isRep0 = 204;
const isRep1 = 216;
const isRep2 = 228;
const isRep0Long = 240;
const posSlot = 432;
const posSpecial = 688;
const posAlign = 803;
const matchLength = 819;
const repLength = 1333;
const literal = 1847;

/** Decodes LZMA chunks into `output`; state lasts from chunk to chunk. `base` is where the dictionary begins. */
function makeLzmaDecoder(input: Uint8Array, output: Uint8Array, base: number) {
  const probs = new Uint16Array(literal + 0x300 * 16);
  let range = 0;
  let code = 0;
  let next = 0;
  let state = 0;
  let [rep0, rep1, rep2, rep3] = [0, 0, 0, 0];
  let [lc, lpMask, pbMask] = [0, 0, 0];

  function bit(index: number): number {
    const prob = probs[index] ?? 0;
    const bound = Math.imul(range >>> 11, prob) >>> 0;
    let result: number;
    if (code < bound) {
      range = bound;
      probs[index] = prob + ((2048 - prob) >> 5);
      result = 0;
    } else {
      range = (range - bound) >>> 0;
      code = (code - bound) >>> 0;
      probs[index] = prob - (prob >> 5);
      result = 1;
    }
    if (range < 0x1000000) {
      range = (range << 8) >>> 0;
      code = ((code << 8) | (input[next++] ?? 0)) >>> 0;
    }
    return result;
  }

  function tree(index: number, bits: number): number {
    let symbol = 1;
    for (let count = 0; count < bits; count++) symbol = (symbol << 1) | bit(index + symbol);
    return symbol - (1 << bits);
  }

  function reverseTree(index: number, bits: number): number {
    let symbol = 1;
    let value = 0;
    for (let count = 0; count < bits; count++) {
      const one = bit(index + symbol);
      symbol = (symbol << 1) | one;
      value |= one << count;
    }
    return value;
  }

  function directBits(count: number): number {
    let value = 0;
    for (; count > 0; count--) {
      range >>>= 1;
      const one = code >= range ? 1 : 0;
      if (one === 1) code = (code - range) >>> 0;
      value = (value << 1) | one;
      if (range < 0x1000000) {
        range = (range << 8) >>> 0;
        code = ((code << 8) | (input[next++] ?? 0)) >>> 0;
      }
    }
    return value >>> 0;
  }

  function length(index: number, posState: number): number {
    if (bit(index) === 0) return 2 + tree(index + 2 + (posState << 3), 3);
    if (bit(index + 1) === 0) return 10 + tree(index + 130 + (posState << 3), 3);
    return 18 + tree(index + 258, 8);
  }

  function literalByte(at: number): void {
    const before = at > base ? (output[at - 1] ?? 0) : 0;
    const index = literal + 0x300 * ((((at - base) & lpMask) << lc) + (before >> (8 - lc)));
    let symbol = 1;
    if (state >= 7) {
      let matched = output[at - rep0 - 1] ?? 0;
      while (symbol < 0x100) {
        const matchBit = (matched >> 7) & 1;
        matched <<= 1;
        const one = bit(index + ((1 + matchBit) << 8) + symbol);
        symbol = (symbol << 1) | one;
        if (one !== matchBit) break;
      }
    }
    while (symbol < 0x100) symbol = (symbol << 1) | bit(index + symbol);
    output[at] = symbol;
    state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
  }

  function distance(matched: number): number {
    const slot = tree(posSlot + (Math.min(matched - 2, 3) << 6), 6);
    if (slot < 4) return slot;
    const bits = (slot >> 1) - 1;
    const high = ((2 | (slot & 1)) << bits) >>> 0;
    if (slot < 14) return high + reverseTree(posSpecial + high - slot - 1, bits);
    return high + directBits(bits - 4) * 16 + reverseTree(posAlign, 4);
  }

  /** The length of a repeated match; 1 for the short one. */
  function repeat(posState: number): number {
    if (bit(isRep0 + state) === 0) {
      if (bit(isRep0Long + (state << 4) + posState) === 0) {
        state = state < 7 ? 9 : 11;
        return 1;
      }
    } else {
      let found: number;
      if (bit(isRep1 + state) === 0) found = rep1;
      else {
        if (bit(isRep2 + state) === 0) found = rep2;
        else [found, rep3] = [rep3, rep2];
        rep2 = rep1;
      }
      rep1 = rep0;
      rep0 = found;
    }
    const matched = length(repLength, posState);
    state = state < 7 ? 8 : 11;
    return matched;
  }

  function match(posState: number): number {
    rep3 = rep2;
    rep2 = rep1;
    rep1 = rep0;
    const matched = length(matchLength, posState);
    rep0 = distance(matched);
    state = state < 7 ? 7 : 10;
    return matched;
  }

  function reset({ control, props }: Chunk): void {
    if (control >= 0xc0) {
      const pb = Math.floor(props / 45);
      const lp = Math.floor((props % 45) / 9);
      lc = props % 9;
      if (pb > 4 || lc + lp > 4) refuse("it is damaged");
      lpMask = (1 << lp) - 1;
      pbMask = (1 << pb) - 1;
    }
    if (control < 0xa0) return;
    probs.fill(1024);
    state = 0;
    [rep0, rep1, rep2, rep3] = [0, 0, 0, 0];
  }

  return (chunk: Chunk, from: number): void => {
    reset(chunk);
    next = chunk.start;
    range = 0xffffffff;
    code = 0;
    for (let count = 0; count < 5; count++) code = ((code << 8) | (input[next++] ?? 0)) >>> 0;
    const end = from + chunk.size;
    for (let at = from; at < end;) {
      const posState = (at - base) & pbMask;
      if (bit(isMatch + (state << 4) + posState) === 0) {
        literalByte(at++);
        continue;
      }
      const count = bit(isRep + state) === 0 ? match(posState) : repeat(posState);
      const source = at - rep0 - 1;
      if (source < base || at + count > end) refuse("it is damaged");
      for (let copied = 0; copied < count; copied++) output[at++] = output[source + copied] ?? 0;
    }
    if (next > chunk.start + chunk.packed) refuse("it is damaged");
  };
}

function refuse(why: string): never {
  throw new AppError("failed", `Cannot unpack the archive: ${why}`);
}
