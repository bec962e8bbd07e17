import { expect, test } from "bun:test";
import * as v from "valibot";
import {
  label,
  comparedText,
  cutText,
  emailKey,
  foreignText,
  isStorable,
  toStorable,
} from "../../src/base/text.ts";

test("text from outside is well-formed, without null characters, and bounded", () => {
  const schema = foreignText(5);
  for (const good of ["", "abc", "é😀", "\ufffd"]) expect(v.parse(schema, good)).toBe(good);
  for (const bad of ["\ud83d", "a\udfff", "\ude00\ud83d", "a\0b", "abcdef", 7])
    expect(v.is(schema, bad)).toBe(false);
});

test("compared text has one spelling for what looks alike, whose length counts", () => {
  expect(v.parse(comparedText(4), "cafe\u0301".slice(1))).toBe("afé");
  expect(v.is(comparedText(1), "e\u0301")).toBe(true);
  // This one has no composed form: the normalization makes two of it.
  expect(v.is(comparedText(1), "\u0958")).toBe(false);
  expect(v.is(comparedText(9), "a\0b")).toBe(false);
  expect(emailKey(" Rene\u0301@Example.org ")).toBe("ren\u00e9@example.org");
});

test("a cut never halves a character", () => {
  expect(cutText("ab😀", 9)).toBe("ab😀");
  expect(cutText("ab😀", 4)).toBe("ab😀");
  expect(cutText("ab😀", 3)).toBe("ab");
  expect(cutText("ab😀c", 4)).toBe("ab😀");
  expect(cutText("😀", 1)).toBe("");
  expect(cutText("abc", 2)).toBe("ab");
});

test("what is made storable is storable, and what was so stays", () => {
  for (const text of ["\ud83d", "a\0b\udfff", "a😀"]) expect(isStorable(toStorable(text))).toBe(true);
  expect(toStorable("a😀é")).toBe("a😀é");
  expect(toStorable("a\0\ud83d")).toBe("a\ufffd\ufffd");
});

test("a name stands on one line, in one direction", () => {
  for (const bad of ["a\r\nX: y", "a\u202eb", "a\u2066b", "\u0007", "  ", "a\u2028b", "a\0b"])
    expect(v.is(label(100), bad), JSON.stringify(bad)).toBe(false);
  for (const good of [" Münchner Büro ", "عربي", "日本", "a-b (c)"])
    expect(v.parse(label(100), good)).toBe(good.trim());
});
