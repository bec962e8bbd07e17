import { createHash } from "node:crypto";
import { expect, test } from "bun:test";
import fc from "fast-check";
import { AppError } from "../../src/base/errors.ts";
import { formatJoinKey, parseJoinKey, type JoinKey } from "../../src/protocol/join-key.ts";
import { clean } from "../../src/base/log.ts";
import { redact } from "../../src/base/redact.ts";

const key: JoinKey = {
  apiBase: "https://control.example.org:8420",
  slug: "acme",
  caFingerprint: `sha256:${"0a".repeat(32)}`,
  registrationToken: `${"Ab1".repeat(14)}_`,
  role: "lighthouse",
  isShortLived: true,
};
const text = formatJoinKey(key);

/** A key with any content and a right checksum, as an attacker or a later version can make it. */
function keyOf(content: unknown): string {
  const bytes = Buffer.from(JSON.stringify(content));
  const sum = createHash("sha256").update(bytes).digest().subarray(0, 4);
  return `oaj1${Buffer.concat([bytes, sum]).toString("base64url")}`;
}

function refusalOf(given: string): AppError {
  try {
    parseJoinKey(given);
  } catch (error) {
    if (error instanceof AppError) return error;
  }
  throw new Error("The key was accepted");
}

test("a join key holds address, organization, CA, token and role, and is one word", () => {
  expect(text).toMatch(/^oaj1[\w-]+$/);
  expect(parseJoinKey(text)).toEqual(key);
  const sealed = { ...key, seal: "5f".repeat(32) };
  expect(parseJoinKey(formatJoinKey(sealed))).toEqual(sealed);
  // Agents of 0.1.0 refuse a key with anything more: without an enforced seal it has nothing more.
  expect(Buffer.from(text.slice(4), "base64url").toString("latin1")).not.toContain('"s":');
  const { caFingerprint: _, ...withoutCa } = { ...key, role: "node" as const, isShortLived: false };
  expect(parseJoinKey(formatJoinKey(withoutCa))).toEqual(withoutCa);
});

test("spaces and line breaks that copying adds do not matter", () => {
  expect(parseJoinKey(` ${text.slice(0, 70)}\r\n  ${text.slice(70)}\n`)).toEqual(key);
});

test("a changed, cut or extended key is refused, and the refusal does not repeat it", () => {
  fc.assert(
    fc.property(fc.nat(text.length - 5), fc.constantFrom("change", "cut", "add"), (at, how) => {
      const place = at + 4;
      const other = text.charAt(place) === "A" ? "B" : "A";
      const given =
        how === "cut"
          ? text.slice(0, place)
          : how === "add"
            ? `${text.slice(0, place)}A${text.slice(place)}`
            : text.slice(0, place) + other + text.slice(place + 1);
      const { code, message, details } = refusalOf(given);
      expect(code).toBe("usage");
      expect(`${message} ${details.hint}`).not.toContain(text.slice(4, 12));
    }),
  );
});

test("each wrong text gets its own sentence", () => {
  expect(refusalOf("").message).toBe("The join key is empty");
  expect(refusalOf(key.registrationToken).message).toBe("This is not a join key");
  expect(refusalOf(key.registrationToken).details.hint).toContain("has it as join_key with --json");
  expect(refusalOf("x".repeat(10_000_000)).message).toBe("This is not a join key");
  expect(refusalOf(text.slice(0, -1)).message).toBe("This join key is incomplete or mistyped");
  expect(refusalOf(`oaj2${text.slice(4)}`).message).toContain("a form that this version does not know");
});

test("content beyond the maxima, of another kind or of a later version is refused", () => {
  const good = { a: key.apiBase, o: "acme", t: "token", r: "node", w: true };
  expect(parseJoinKey(keyOf(good)).slug).toBe("acme");
  for (const wrong of [
    { ...good, o: "../etc" },
    { ...good, o: "a".repeat(41) },
    { ...good, a: "file:///etc/passwd" },
    { ...good, a: `https://${"a".repeat(600)}` },
    { ...good, t: "a".repeat(129) },
    { ...good, t: "with space" },
    { ...good, c: "sha256:short" },
    { ...good, r: "king" },
    { ...good, later: true },
    { ...good, w: "yes" },
    [],
    null,
    "text",
  ])
    expect(refusalOf(keyOf(wrong)).message).toContain("holds something that this version does not know");
});

test("logs and errors never show a join key, nor a part from its beginning", () => {
  for (const around of [text, `key=${text}`, `'${text}',`, `https://x/${text}?y`, `x${text}`])
    expect(redact(around)).not.toContain(text.slice(4, 12));
  expect(redact(`the key ${text} end`)).toBe("the key [join key] end");
  expect(redact(text.slice(0, 20))).toBe("[join key]");
  for (let max = 0; max <= text.length + 8; max++)
    expect(clean(`the key ${text} end`, max)).not.toContain(text.slice(4, 12));
});
