// QR codes (ISO/IEC 18004) of bytes, with the lowest correction of errors (L): they are shown on screens, which no dirt covers.
// The library that tests compare it with is three times as large in a browser, because it has all modes and levels.

/** Bytes that check a block, and the number of blocks, at level L by version from 1, as the standard lists them. From version 27 on, 30. */
const checkBytes = [
  7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28, 28, 28, 30, 30, 26, 28,
];
const blockCounts = [
  1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8, 8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18,
  19, 19, 20, 21, 22, 24, 25,
];
const maxVersion = 40;

/** The squares of a code by row, without the quiet zone around it. True: dark. */
type Modules = boolean[][];
/** The code of a text. Throws RangeError for more than 2,953 bytes. */
export function qrOf(text: string): Modules {
  const data = new TextEncoder().encode(text);
  let version = 1;
  while (version <= maxVersion && roomOf(version) < data.length + headBytes(version)) version++;
  if (version > maxVersion) throw new RangeError("This text is too long for a QR code");
  return draw(version, withChecks(framed(data, version), version));
}

/** The mode (4 bits), the length (8 or 16 bits) and the end (4 bits), in bytes. */
const headBytes = (version: number) => (version < 10 ? 2 : 3);
/**
 * The rows and columns of the small alignment squares: 6, and then at equal even distances up to the last one. The formula gives the
 * table of the standard.
 */
const positionsOf = (version: number): number[] => {
  const count = version === 1 ? 0 : Math.floor(version / 7) + 2;
  const step = Math.floor((version * 8 + count * 3 + 5) / (count * 4 - 4)) * 2;
  return Array.from({ length: count }, (_, at) =>
    at === 0 ? 6 : version * 4 + 10 - (count - 1 - at) * step,
  );
};

/**
 * The bytes of a code with its checks: the squares that no pattern takes, by 8. Of all squares, (4 * version + 17) ** 2, these are
 * taken: 192 by the corners (64 each), 31 by the format and the dark square, 2 * (4 * version + 1) by the timing lines, 36 by the
 * version from 7 on. Of `count` ** 2 alignment squares (25 each) 3 are missing, and each of 2 * (count - 2) shares 5 with a timing line.
 */
function bytesOf(version: number): number {
  const count = positionsOf(version).length;
  const aligned = count === 0 ? 0 : (25 * count - 10) * count - 55;
  return Math.floor(((16 * version + 128) * version + 64 - aligned - (version < 7 ? 0 : 36)) / 8);
}
const checksOf = (version: number) => checkBytes[version - 1] ?? 30;
const blocksOf = (version: number) => blockCounts[version - 1] ?? 0;
const roomOf = (version: number) => bytesOf(version) - checksOf(version) * blocksOf(version);

/** The data as the standard frames it: mode, length, bytes, end, then two filling bytes in turns up to the room of the version. */
function framed(data: Uint8Array, version: number): number[] {
  const head = version < 10 ? [data.length] : [data.length >> 8, data.length & 255];
  // In halves of bytes: 4 is the mode for bytes, 0 the end.
  const halves = [4, ...[...head, ...data].flatMap((byte) => [byte >> 4, byte & 15]), 0];
  const bytes = Array.from(
    { length: halves.length / 2 },
    (_, at) => ((halves[2 * at] ?? 0) << 4) | (halves[2 * at + 1] ?? 0),
  );
  // 236 and 17 in turns: 236 ^ 253 is 17.
  for (let fill = 236; bytes.length < roomOf(version); fill ^= 253) bytes.push(fill);
  return bytes;
}

/**
 * The product of two elements of the field of 256 elements, whose polynomial is 285. By the bits of `b` from the highest one: the sum
 * is doubled, reduced by the polynomial, and gets `a` where the bit is set.
 */
function product(a: number, b: number): number {
  let sum = 0;
  for (let bit = 7; bit >= 0; bit--) sum = (sum << 1) ^ ((sum >> 7) * 285) ^ (((b >> bit) & 1) * a);
  return sum;
}

/**
 * The data with its checks (Reed and Solomon): in blocks, each with checks of its own. First come the first bytes of all
 * blocks, then the second ones and so on, then the checks in the same way.
 */
function withChecks(data: readonly number[], version: number): number[] {
  const count = blocksOf(version);
  const degree = checksOf(version);
  const all = bytesOf(version);
  // The coefficients of (x - 1)(x - 2)(x - 4)…, without that of the highest power, which is 1.
  const divisor = Array.from({ length: degree }, (_, at) => Number(at === degree - 1));
  for (let round = 0, root = 1; round < degree; round++, root = product(root, 2))
    for (let at = 0; at < degree; at++)
      divisor[at] = product(divisor[at] ?? 0, root) ^ (divisor[at + 1] ?? 0);
  // The last blocks have one byte more than the others.
  const short = Math.floor(all / count) - degree;
  const isLong = (block: number) => block >= count - (all % count);
  let from = 0;
  const blocks = Array.from({ length: count }, (_, block) =>
    data.slice(from, (from += short + Number(isLong(block)))),
  );
  const checks = blocks.map((block) => {
    const rest = divisor.map(() => 0);
    for (const byte of block) {
      const factor = byte ^ (rest.shift() ?? 0);
      rest.push(0);
      for (const [at, each] of divisor.entries()) rest[at] = (rest[at] ?? 0) ^ product(each, factor);
    }
    return rest;
  });
  const inTurns = (lists: readonly (readonly number[])[], length: number) =>
    Array.from({ length }, (_, at) => lists.flatMap((list) => list[at] ?? [])).flat();
  return [...inTurns(blocks, short + 1), ...inTurns(checks, degree)];
}

/** `value` followed by the `bits` of its rest after the division by the polynomial: the protected form of format and version. */
function guarded(value: number, bits: number, polynomial: number): number {
  let rest = value;
  for (let at = 0; at < bits; at++) rest = (rest << 1) ^ ((rest >> (bits - 1)) * polynomial);
  return (value << bits) | rest;
}

/** The mask that inverts each third column. It mixes bytes of text well: trying all eight would take longer, and readers take any. */
const mask = 2;

/** The patterns first, then the bytes on what they leave free (undefined). */
function draw(version: number, bytes: readonly number[]): Modules {
  const size = version * 4 + 17;
  const modules = Array.from({ length: size }, (): (boolean | undefined)[] => Array.from({ length: size }));
  const set = (x: number, y: number, isDark: boolean) => {
    const row = modules[y];
    if (row !== undefined && x >= 0 && x < size) row[x] = isDark;
  };
  /** Rings around a centre: `light` are the distances that are light. */
  const square = (centerX: number, centerY: number, radius: number, light: readonly number[]) => {
    for (let y = -radius; y <= radius; y++)
      for (let x = -radius; x <= radius; x++)
        set(centerX + x, centerY + y, !light.includes(Math.max(Math.abs(x), Math.abs(y))));
  };
  // Timing lines.
  for (let at = 0; at < size; at++) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
  // Alignment squares, but not where the large squares of three corners are.
  const positions = positionsOf(version);
  const last = size - 7;
  for (const x of positions)
    for (const y of positions)
      if (!(x === 6 && (y === 6 || y === last)) && !(x === last && y === 6)) square(x, y, 2, [1]);
  for (const [x, y] of [
    [3, 3],
    [size - 4, 3],
    [3, size - 4],
  ] as const)
    square(x, y, 4, [2, 4]);
  // The format, twice: level L (1, before the three bits of the mask) and the mask. The standard inverts it by 21,522, so that no
  // format is light everywhere.
  const format = guarded(8 | mask, 10, 1335) ^ 21_522;
  for (let at = 0; at < 15; at++) {
    const isDark = ((format >> at) & 1) === 1;
    set(8, at < 6 ? at : at < 8 ? at + 1 : size - 15 + at, isDark);
    set(at < 8 ? size - 1 - at : at === 8 ? 7 : 14 - at, 8, isDark);
  }
  // This one is always dark.
  set(8, size - 8, true);
  // The version, twice, from 7 on.
  const number = guarded(version, 12, 7973);
  for (let at = 0; at < (version < 7 ? 0 : 18); at++) {
    const [x, y] = [size - 11 + (at % 3), Math.floor(at / 3)];
    set(x, y, ((number >> at) & 1) === 1);
    set(y, x, ((number >> at) & 1) === 1);
  }
  // The bits of the bytes: up and down in columns of two, from the right, without column 6, which is the timing line. Left of it
  // `right` is odd: `right + 1` tells up from down as before.
  let bit = 0;
  for (let right = size - 1; right > 0; right -= right === 8 ? 3 : 2)
    for (let step = 0; step < size; step++)
      for (const x of [right, right - 1]) {
        const y = ((right < 6 ? right + 1 : right) + 1) & 2 ? step : size - 1 - step;
        if (modules[y]?.[x] !== undefined) continue;
        const isDark = (((bytes[bit >> 3] ?? 0) >> (7 - (bit & 7))) & 1) === 1;
        bit++;
        set(x, y, isDark !== (x % 3 === 0));
      }
  return modules.map((row) => row.map((isDark) => isDark === true));
}
