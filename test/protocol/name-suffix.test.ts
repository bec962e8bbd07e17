// Which domains names may end in, by the list of public suffixes and by what a machine needs.

import { describe, expect, test } from "bun:test";
import { is } from "valibot";
import { hostWithin, overlaps, whyNoSuffix } from "../../src/protocol/name-suffix.ts";
import { NameSuffix } from "../../src/protocol/names.ts";

describe("a domain of names", () => {
  test.each(["corp.example", "nodes.company.co.uk", "corp.lan", "google.com", "a.xn--p1ai", "x.y.z.example"])(
    "may be %s, if root allows it",
    (suffix) => {
      expect(is(NameSuffix, suffix)).toBe(true);
      expect(whyNoSuffix(suffix)).toBeUndefined();
    },
  );

  test.each([
    "co.uk",
    "github.io",
    "compute.amazonaws.com",
    "foo.ck",
    "kawasaki.jp",
    "b.kawasaki.jp",
    "ac.jp",
  ])("is not %s, whose names belong to many owners", (suffix) => {
    expect(is(NameSuffix, suffix)).toBe(true);
    expect(whyNoSuffix(suffix)).toContain("public suffix");
  });

  test.each(["acme.internal", "in-addr.arpa", "home.arpa", "printer.local", "x.localhost", "x.onion"])(
    "is not %s, which has a meaning of its own",
    (suffix) => expect(whyNoSuffix(suffix)).toContain("meaning of their own"),
  );

  test.each([
    "com",
    "corp",
    "",
    ".",
    "Corp.example",
    "corp.example.",
    "-a.example",
    "10.0.0.1",
    "a b.example",
  ])("is not %p: that is no domain of two labels", (suffix) => expect(is(NameSuffix, suffix)).toBe(false));

  test("hides hosts that are, or lie within it, and no others", () => {
    expect(hostWithin("corp.example", ["10.0.0.1", "control.CORP.example."])).toBe("control.corp.example");
    expect(hostWithin("corp.example", ["corp.example"])).toBe("corp.example");
    expect(hostWithin("corp.example", ["mycorp.example", "example", "corp.example.org"])).toBeUndefined();
  });

  test("overlaps with one that contains it or lies within it", () => {
    expect(overlaps("corp.example", "a.corp.example")).toBe(true);
    expect(overlaps("a.corp.example", "corp.example")).toBe(true);
    expect(overlaps("a.corp.example", "b.corp.example")).toBe(false);
  });
});
