// Which seal follows which, signed by the real ssh-keygen.

import { afterAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { openNextSeal, openSeal as open, type OpenedSeal } from "../../src/pki/seal.ts";
import {
  canonicalJson,
  maxSealBytes,
  sealNamespace,
  type Seal,
  type SignedSeal,
} from "../../src/protocol/seals/seal.ts";
import { makeSshKey, sshSign } from "../support/ssh-keys.ts";
import { sealOf, signedBy } from "../support/seals.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
afterAll(() => directory[Symbol.dispose]());
const key = (name: string) => makeSshKey(join(directory.path, name));
const [ann, bob, eve] = [key("ann"), key("bob"), key("eve")];
type Key = typeof ann;
const signer = (name: string, { line }: Key) => ({ name, key: line });

const nowMs = 1_790_000_000_000;
const openSeal = (signed: SignedSeal, before: OpenedSeal | undefined) => open(signed, before, nowMs);

const first = sealOf({ signers: [signer("ann", ann)] });
const held = openSeal(signedBy(first, [ann]), undefined);
const after = (before: OpenedSeal, change: Partial<Seal> = {}): Seal => ({
  ...before.seal,
  number: before.seal.number + 1,
  first: before.seal.first ?? before.hash,
  previous: before.hash,
  ...change,
});

describe("a seal", () => {
  test("follows the one before if a signer of that one signed it", () => {
    const second = openSeal(signedBy(after(held), [ann]), held);
    expect(second.seal.number).toBe(2);
    expect(openSeal(signedBy(second.seal, [ann]), second)).toBe(second);
    const third = openSeal(signedBy(after(second), [ann]), second);
    // A node that was away needs none between that its signer signed.
    expect(openSeal(signedBy(third.seal, [ann]), held)).toEqual(third);
  });

  test("with new signers needs their signatures and one of before; the former ones then count no more", () => {
    const change = after(held, { signers: [signer("bob", bob)] });
    expect(() => openSeal(signedBy(change, [bob]), held)).toThrow("no signer of the seal before");
    expect(() => openSeal(signedBy(change, [ann]), held)).toThrow(
      /new signer "bob" \(SHA256:[\w+/]{16}\) has not signed/,
    );
    const exchanged = openSeal(signedBy(change, [bob, ann]), held);
    expect(() => openSeal(signedBy(after(exchanged), [ann]), exchanged)).toThrow(
      "no signer of the seal before",
    );
    expect(openSeal(signedBy(after(exchanged), [bob]), exchanged).seal.number).toBe(3);
    expect(() => openSeal(signedBy(after(exchanged), [bob]), held)).toThrow("no signer of the seal before");
  });

  test("can be verified alone: one of its own signers has signed it", () => {
    const signers = [signer("ann", ann), signer("bob", bob)];
    const two = openSeal(signedBy(after(held, { signers }), [ann, bob]), held);
    const left = after(two, { signers: [signer("bob", bob)] });
    expect(() => openSeal(signedBy(left, [ann]), two)).toThrow("none of its signers has signed it");
    expect(openSeal(signedBy(left, [bob]), undefined)).toEqual(openSeal(signedBy(left, [bob]), two));
  });

  test("leaves no number out where it is published", () => {
    const next = after(held, { number: Number.MAX_SAFE_INTEGER });
    expect(() => openNextSeal(signedBy(next, [ann]), held, nowMs)).toThrow("and the next one is 2");
    const begun = openNextSeal(signedBy(first, [ann]), undefined, nowMs);
    expect(openNextSeal(signedBy(first, [ann]), begun, nowMs)).toBe(begun);
    const second = signedBy(after(held), [ann]);
    expect(openNextSeal(second, held, nowMs).seal.number).toBe(2);
    expect(() => openNextSeal(second, undefined, nowMs)).toThrow("and the next one is 1");
  });

  test("is not made more than a day after the clock, unless one that is held already was", () => {
    const late = (seconds: number) => signedBy(after(held, { made_at: nowMs / 1000 + seconds }), [ann]);
    expect(openSeal(late(86_400), held).seal.number).toBe(2);
    expect(() => openSeal(late(86_401), held)).toThrow("compare the clocks");
    expect(() => openSeal(late(86_401), undefined)).toThrow("compare the clocks");
    const former = open(late(9e8), held, Infinity);
    expect(openSeal(signedBy(after(former), [ann]), former).seal.number).toBe(3);
  });

  const thieves: [string, () => unknown, string][] = [
    ["by a stranger", () => openSeal(signedBy(after(held), [eve]), held), "no signer of the seal before"],
    [
      "of a stranger who names himself a signer",
      () => openSeal(signedBy(after(held, { signers: [signer("ann", eve)] }), [eve]), held),
      "no signer of the seal before",
    ],
    [
      "for another purpose",
      () => openSeal(signedBy(after(held), [ann], "file"), held),
      "no signer of the seal",
    ],
    [
      "of another organization with the same signer",
      () => {
        const state = { ...first.state, organization: "other" };
        const other = openSeal(signedBy({ ...first, state }, [ann]), undefined);
        return openSeal(signedBy(after(other), [ann]), held);
      },
      "another organization",
    ],
    [
      "of an organization that was made anew with the same name",
      () => {
        const anew = openSeal(signedBy({ ...first, made_at: first.made_at + 1 }, [ann]), undefined);
        return openSeal(signedBy(after(anew), [ann]), held);
      },
      "begins anew",
    ],
    ["that begins anew", () => openSeal(signedBy({ ...first, made_at: 9e9 }, [ann]), held), "begins anew"],
    [
      "with an older number",
      () => {
        const second = openSeal(signedBy(after(held), [ann]), held);
        const third = openSeal(signedBy(after(second), [ann]), second);
        return openSeal(signedBy(second.seal, [ann]), third);
      },
      "its number is 2, and 3 is known",
    ],
    [
      "that has the number of another one",
      () => {
        const second = openSeal(signedBy(after(held), [ann]), held);
        return openSeal(signedBy(after(held, { made_at: first.made_at + 5 }), [ann]), second);
      },
      "another seal 2",
    ],
    [
      "that continues a fork",
      () => {
        const second = openSeal(signedBy(after(held), [ann]), held);
        const fork = openSeal(signedBy(after(held, { made_at: first.made_at + 5 }), [ann]), held);
        return openSeal(signedBy(after(fork), [ann]), second);
      },
      "another seal 2",
    ],
    [
      "made before the known one",
      () => openSeal(signedBy(after(held, { made_at: first.made_at - 1 }), [ann]), held),
      "older than the known one",
    ],
    [
      "with a field that is not known",
      () => openSeal(signedBy({ ...after(held), more: true } as Seal, [ann]), held),
      "cannot be read",
    ],
    ...[
      { peer: { group: "any" } },
      { peer: { cidr: "any" } },
      { target: { group: "any" } },
      { target: { node: "any" } },
    ].map((side): (typeof thieves)[number] => [
      `in which everything has a name: ${JSON.stringify(side)}`,
      () => {
        const rules = first.state.rules.map((rule) => ({ ...rule, ...side }));
        return openSeal(signedBy(after(held, { state: { ...first.state, rules } }), [ann]), held);
      },
      "cannot be read",
    ]),
    [
      "with the same content in another form",
      () => {
        const text = JSON.stringify(after(held), null, 1);
        return openSeal({ text, signatures: [sshSign(ann.file, Buffer.from(text), sealNamespace)] }, held);
      },
      "canonical",
    ],
    [
      "that is too large",
      () => {
        const text = " ".repeat(maxSealBytes + 1);
        return openSeal({ text, signatures: [sshSign(ann.file, Buffer.from(text), sealNamespace)] }, held);
      },
      "over",
    ],
    [
      "with one signer twice",
      () => {
        const signers = [signer("ann", ann), signer("again", ann)];
        return openSeal(signedBy(after(held, { signers }), [ann]), held);
      },
      "named twice",
    ],
    [
      "that is the first, unsigned by its signer",
      () => openSeal(signedBy(first, [eve]), undefined),
      "none of its signers",
    ],
    ["without content", () => openSeal({ text: "{}", signatures: ["x"] }, undefined), "cannot be read"],
  ];
  test.each(thieves)("%s is refused", (_, open, reason) => {
    expect(open).toThrow(reason);
  });

  test("of 10,000 nodes and 500 rules has under 256 KB", () => {
    const large = sealOf({ signers: [signer("ann", ann)], nodes: 40, rules: 500 });
    const one = signedBy(large, [ann]);
    expect(Buffer.byteLength(one.text)).toBeLessThan(maxSealBytes);
    expect(openSeal(one, undefined).seal.state.rules).toHaveLength(500);
  });
});

test("the canonical form is that of RFC 8785", () => {
  const value = { "\u20ac": "Euro", "\r": 1, "1": [true, null, 1e21, 0.5], "\u00f6": '\u0007"\\', a: {} };
  expect(canonicalJson(value)).toBe(
    '{"\\r":1,"1":[true,null,1e+21,0.5],"a":{},"\u00f6":"\\u0007\\"\\\\","\u20ac":"Euro"}',
  );
});
