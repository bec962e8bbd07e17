// The vectors of RFC 6238, appendix B, in six digits.

import { describe, expect, test } from "bun:test";
import { base32, matchingStep, totpCode, totpStep, totpUri } from "../../src/pki/totp.ts";

const secret = new TextEncoder().encode("12345678901234567890");

test.each([
  [59, "287082"],
  [1_111_111_109, "081804"],
  [1_111_111_111, "050471"],
  [1_234_567_890, "005924"],
  [2_000_000_000, "279037"],
  [20_000_000_000, "353130"],
])("the code at %d s is %s", (seconds, code) => {
  expect(totpCode(secret, totpStep(seconds * 1000))).toBe(code);
});

test.each([
  ["", ""],
  ["f", "MY"],
  ["fo", "MZXQ"],
  ["foobar", "MZXW6YTBOI"],
])("base32 of %p is that of RFC 4648 without padding", (text, encoded) => {
  expect(base32(new TextEncoder().encode(text))).toBe(encoded);
});

test("apps read issuer, user and secret from the address", () => {
  const url = new URL(totpUri(secret, { issuer: "Overlay Agent", user: "a+b@example.org" }));
  expect([url.protocol, decodeURIComponent(url.pathname)]).toEqual([
    "otpauth:",
    expect.stringContaining("Overlay Agent:a+b@example.org"),
  ]);
  expect(url.searchParams.get("secret")).toBe("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
});

describe("a code counts", () => {
  const nowMs = 1_000_000 * 30_000;
  const at = (step: number) => totpCode(secret, 1_000_000 + step);
  test("in its step and the two beside it", () => {
    const steps = [-2, -1, 0, 1, 2].map((step) => matchingStep(secret, at(step), { nowMs, last: 0 }));
    expect(steps).toEqual([undefined, 999_999, 1_000_000, 1_000_001, undefined]);
  });
  test("never at or before the last step that counted", () => {
    const steps = [-1, 0, 1].map((step) => matchingStep(secret, at(step), { nowMs, last: 1_000_000 }));
    expect(steps).toEqual([undefined, undefined, 1_000_001]);
  });
  test.each(["", "12345", "1234567", "abcdef", "-12345", "１２３４５６"])("not as %p", (code) => {
    expect(matchingStep(secret, code, { nowMs, last: 0 })).toBeUndefined();
  });
});
