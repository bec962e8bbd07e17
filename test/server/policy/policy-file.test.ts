// Reading policy files: the example of the documentation, its JSON Schema, places of faults, and long files in parts.

import { describe, expect, test } from "bun:test";
import Ajv2020 from "ajv/dist/2020.js";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Lexer, stringify } from "yaml";
import { AppError } from "../../../src/base/errors.ts";
import { policySchema } from "../../../src/server/docs/policy-schema.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { readDocument } from "../../../src/server/policy/yaml-document.ts";
import { PolicyFile } from "../../../src/server/policy/policy-file.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";
import { root } from "../../support/agent.ts";
import { expectGolden } from "../../support/golden.ts";
import { withoutMaximum } from "../../support/maxima.ts";

const example = /```yaml\n([^]*?)```/.exec(readFileSync(join(root, "docs/policy.md"), "utf8"))?.[1] ?? "";
const parse = (text: string) => atOnce(parsePolicy(text)).file;
const faultsOf = (text: string): string[] => {
  try {
    parse(text);
  } catch (error) {
    if (error instanceof AppError) return error.details.errors?.["policy"] ?? [];
    throw error;
  }
  return [];
};

test("the example of the documentation is a policy, as YAML and as JSON", () => {
  const file = parse(example);
  expect(Object.keys(file)).toEqual(["groups", "rules", "routes", "relays", "aliases", "tests"]);
  expect(file.rules?.[2]).toMatchObject({ direction: "inbound", ports: 5432, peer: "group:web" });
  const json = JSON.stringify(atOnce(readDocument(example)).value, null, "\t");
  expect(parse(json)).toEqual(file);
});

describe("the JSON Schema", () => {
  const check = new Ajv2020({ strict: false }).compile(policySchema());

  test("is in docs/policy.schema.json", () => {
    expectGolden("../../docs/policy.schema.json", `${JSON.stringify(policySchema(), null, 2)}\n`);
  });

  test("accepts the example and refuses a wrong key", () => {
    expect([check(atOnce(readDocument(example)).value), check.errors]).toEqual([true, null]);
    expect(check({ rulez: [] })).toBe(false);
    expect(check({ rules: [{ peer: "group:web", target: "any", ports: 0 }] })).toBe(false);
  });
});

test("every text and list of a policy has a maximum", () => {
  expect(withoutMaximum(PolicyFile)).toEqual([]);
});

test("faults in long lists and maps have the lines of the whole file", () => {
  const rules = Array.from({ length: 90 }, (_, at) => `  - {peer: any, target: any, ports: ${at + 1}}`);
  rules[70] = "  - {peer: any, target: any, ports: 99999}";
  const groups = Array.from({ length: 90 }, (_, at) => `  g${at}:\n    description: text`);
  groups[80] = "  g3:\n    description: again";
  const [first = "", second = ""] = faultsOf(`rules:\n${rules.join("\n")}\ngroups:\n${groups.join("\n")}\n`);
  expect([first, second]).toEqual(["Line 253, column 3: The key g3 is here twice.", ""]);
  groups[80] = "  other: {}";
  const [port = ""] = faultsOf(`rules:\n${rules.join("\n")}\ngroups:\n${groups.join("\n")}\n`);
  expect(port).toBe("Line 72, column 30: rules.70.ports: Enter ports from 1 to 65535.");
});

test.each([
  ["a: 1\n---\nb: 2", "Expected one document"],
  ["groups: &x {}", "Anchors and tags are not supported."],
  ["groups: !!js {}", "tag"],
  ["rules:\n\t- a", "Tabs are not allowed"],
  ["{rules: [], rules: []}", "The key rules is here twice."],
  ["rules: {", "Flow map"],
  ["- a", "Expected keys such as groups and rules."],
  // Read as no groups at all, `apply --prune` would delete every unused group.
  ["groups:", "groups: Expected keys with values."],
  ["groups: []", "groups: Expected keys with values."],
  ["groups: [{}]", "groups: Expected keys with values."],
  ["groups: {web: []}", "groups.web: Expected keys with values."],
  ["groups: text", "groups: Expected keys with values."],
  ["groups:\n  any: {}", '"any" means every node'],
  ["__proto__: {a: 1}", "cannot be a key"],
  ["groups:\n  __proto__: {}", "A group name is"],
])("%j is a fault", (text, sentence) => {
  expect(faultsOf(text).join("\n")).toContain(sentence);
});

describe("long files", () => {
  const many = <T>(count: number, item: (at: number) => T) =>
    Array.from({ length: count }, (_, at) => item(at));
  const members = many(1000, (at) => `node:n${at}`);
  const long = {
    groups: Object.fromEntries(
      many(400, (at) => [`g${at}`, at === 300 ? { members } : { description: "x" }]),
    ),
    rules: many(500, (at) => ({ peer: `group:g${at % 400}`, target: "any", ports: at + 1 })),
  };
  const texts: [string, string][] = [
    ["JSON in one line", JSON.stringify(long)],
    ["JSON in lines", JSON.stringify(long, null, 2)],
    ["YAML in lines", stringify(long)],
    ["YAML with lists in lines", stringify(long, { collectionStyle: "flow", lineWidth: 0 })],
  ];

  test.each(texts)("%s: all of it is read, in short steps", (_, text) => {
    const work = readDocument(text);
    let steps = 0;
    let step = work.next();
    for (; step.done !== true; step = work.next()) steps++;
    expect(step.value.faults).toEqual([]);
    expect(step.value.value).toEqual(long);
    // Besides those of the lexer: one for about 300 tokens.
    const tokens = [...new Lexer().lex(text)].length;
    expect(steps - Math.ceil(tokens / 50)).toBeGreaterThan(15);
    const at = step.value.placeOf("groups.g300.members.999");
    const line = text.split("\n")[at.line - 1] ?? "";
    expect(line.slice(at.column - 1).replace('"', "")).toStartWith("node:n999");
  });

  test("a key that is there twice is a fault at every depth", () => {
    const keys = many(1000, (at) => `k${at}`);
    for (const [before, after] of [
      ["{", "}"],
      ["groups: {", "}"],
      ["rules: [{", "}]"],
    ] as const) {
      const text = `${before}${[...keys, "k7"].map((key) => `${key}: 1`).join(", ")}${after}`;
      expect(faultsOf(text).join("\n")).toContain("The key k7 is here twice.");
    }
  });

  test.each([
    ["rules: [a", " a", "]", "Missing ,"],
    ["rules: [a", ", , a", "]", "Unexpected"],
    ["", "- ", "a", "nested too deep"],
    ["", "[", "", "nested too deep"],
    ["a: ", "&a ", "b", "Too many marks"],
    ["", "---\n", "", "Expected one document"],
  ])("%j with many of %j is a fault", (before, repeated, after, sentence) => {
    const quoted = before.replace(/a$/, '"a"') + repeated.replace("a", '"a"').repeat(2000) + after;
    const text = repeated === "&a " ? before + repeated.repeat(2000) + after : quoted;
    expect(faultsOf(text).join("\n")).toContain(sentence);
  });

  test("too many entries are one fault", () => {
    expect(faultsOf(`rules: [${"{}, ".repeat(20_000)}]`)).toEqual([
      "Line 1, column 8: Expected at most 10000 entries here.",
    ]);
    expect(faultsOf(`groups: {g: {members: [${"1, ".repeat(20_000)}]}}`)).toHaveLength(1);
    expect(faultsOf(`relays: [${"node:a, ".repeat(1001)}]`)).toEqual([
      "Line 1, column 1: relays: Expected at most 1000 entries, and there are 1001.",
    ]);
  });

  test.each([
    ["items of a list", `relays: [${"1,".repeat(250_000)}]`],
    ["items in lines", `relays:\n${"- a\n".repeat(130_000)}`],
    ["keys", many(6, (at) => `k${at}: {${many(9000, (key) => `a${key}:`).join(",")}}`).join("\n")],
    ["lists in lists", `rules: [${"[],".repeat(170_000)}]`],
    ["blank lines", `rules: []${"\n".repeat(500_000)}`],
    ["comments", `rules: []\n${"#\n".repeat(250_000)}`],
  ])("half a million bytes of %s are refused before they are composed", (_, text) => {
    const work = readDocument(text);
    let steps = 0;
    let step = work.next();
    for (; step.done !== true; step = work.next()) steps++;
    expect(step.value.faults[0]?.message).toMatch(
      /^A policy has at most 50000 entries|^Too many blank lines/,
    );
    expect(step.value.value).toBeNull();
    // 50 tokens of the text each.
    expect(steps).toBeLessThan(8000);
  });
});

test("a policy has a maximum size", () => {
  expect(() => parse(`# ${"x".repeat(600_000)}`)).toThrow("KiB; the maximum is 512 KiB.");
});
