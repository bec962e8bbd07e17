// QR codes, compared with those of a library.

import { expect, test } from "bun:test";
import { encode } from "uqr";
import { qrOf } from "../../../src/console/ui/qr-code.ts";

/** The most bytes of each version. */
const most = [
  17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425, 458, 520, 586, 644, 718, 792, 858, 929, 1003,
  1091, 1171, 1273, 1367, 1465, 1528, 1628, 1732, 1840, 1952, 2068, 2188, 2303, 2431, 2563, 2699, 2809, 2953,
];

test("codes of all versions are those of the library, with the same mask", () => {
  for (const [at, length] of most.entries())
    for (const text of ["é:/{}-x".repeat(500), "key=Zm9v".repeat(400)]) {
      let own = text.slice(0, length);
      while (Buffer.byteLength(own) > length) own = own.slice(0, -1);
      const { version, data } = encode(own, { border: 0, ecc: "L", boostEcc: false, maskPattern: 2 });
      expect(version).toBe(at + 1);
      expect([length, qrOf(own)]).toEqual([length, data]);
    }
});

test("a text that is too long is refused", () => {
  expect(() => qrOf("x".repeat(2954))).toThrow("too long");
  expect(qrOf("")).toHaveLength(21);
});
