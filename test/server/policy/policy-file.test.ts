// Reading policy files: the example of the documentation, its JSON Schema, places of faults, and long files in parts.

import { describe, expect, test } from "bun:test";
import Ajv2020 from "ajv/dist/2020.js";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../../src/errors.ts";
import { policySchema } from "../../../src/server/docs/policy-schema.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { readDocument } from "../../../src/server/policy/document.ts";
import { parsePolicy, PolicyFile } from "../../../src/server/policy/policy-file.ts";
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
  expect(Object.keys(file)).toEqual(["groups", "rules", "routes", "relays", "tests"]);
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
  ["{rules: [], rules: []}", "unique"],
  ["rules: {", "Flow map"],
  ["- a", "Expected keys such as groups and rules."],
  ["groups:\n  any: {}", '"any" means every node'],
  ["__proto__: {a: 1}", "cannot be a key"],
  ["groups:\n  __proto__: {}", "cannot be a key"],
])("%j is a fault", (text, sentence) => {
  expect(faultsOf(text).join("\n")).toContain(sentence);
});

test("a policy has a maximum size", () => {
  expect(() => parse(`# ${"x".repeat(600_000)}`)).toThrow("exceeds the maximum");
});
