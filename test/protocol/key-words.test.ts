// The words of a key: the list, and what counts as typed right.

import { expect, test } from "bun:test";
import { areWordsOfKey, wordsOfKey } from "../../src/protocol/key-words.ts";

const bitsOf = (index: number) => index.toString(2).padStart(11, "0");
/** A fingerprint whose words are those with these numbers. */
const printOf = (indexes: readonly number[]) =>
  BigInt(`0b${indexes.map(bitsOf).join("")}`)
    .toString(16)
    .padStart(11, "0")
    .padEnd(64, "f");
const list = Array.from({ length: 512 }, (_, at) =>
  wordsOfKey(printOf([0, 1, 2, 3].map((each) => at * 4 + each))),
).flat();

/** Whether one letter more, less or different makes one word of the other. */
function areClose(a: string, b: string): boolean {
  if (a.length > b.length) return areClose(b, a);
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return a.slice(a.length === b.length ? at + 1 : at) === b.slice(at + 1);
}

test("2,048 different words of 4 to 8 letters stand for 44 bits of a key", () => {
  expect(new Set(list).size).toBe(2048);
  expect(list.filter((word) => !/^[a-z]{4,8}$/.test(word))).toEqual([]);
});

test("no word is one slip away from another, and none begins another", () => {
  const sorted = list.toSorted();
  const close = sorted.flatMap((word, at) =>
    sorted.slice(at + 1).filter((other) => areClose(word, other) || other.startsWith(word)),
  );
  expect(close).toEqual([]);
});

test("the words of a key never change: agents and control planes of all versions compare them", () => {
  const print = "0123456789abcdef".repeat(4);
  expect(wordsOfKey(print)).toEqual(wordsOfKey(print.slice(0, 11)));
  expect(wordsOfKey(print).join(" ")).toMatchInlineSnapshot(`"accuse blunt fifteen bashful"`);
  expect(new Bun.CryptoHasher("sha256").update(list.join(" ")).digest("hex")).toMatchInlineSnapshot(
    `"8de8156121c29d8c985e3351e89ff30d3eb038247cf2ce37b7ce7a4857405944"`,
  );
});

test("words count in any case, with any spaces and signs; not in another order, and not three of them", () => {
  const print = printOf([5, 700, 1400, 2047]);
  const [a = "", b = "", c = "", d = ""] = wordsOfKey(print);
  for (const typed of [`${a} ${b} ${c} ${d}`, ` ${a.toUpperCase()}-${b},${c}\t${d}\n`])
    expect([typed, areWordsOfKey(typed, print)]).toEqual([typed, true]);
  for (const typed of [
    "",
    `${a} ${b} ${c}`,
    `${b} ${a} ${c} ${d}`,
    `${a} ${b} ${c} ${d} ${d}`,
    `${a}${b} ${c} ${d}`,
  ])
    expect([typed, areWordsOfKey(typed, print)]).toEqual([typed, false]);
});
