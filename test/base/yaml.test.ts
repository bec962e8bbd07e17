import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { stringifyYaml, type YamlValue } from "../../src/base/yaml.ts";

const leaf = fc.oneof(fc.string({ unit: "binary" }), fc.integer(), fc.boolean(), fc.constant(null));
/** Bun merges the value of "<<" into the map, even if the key is quoted. No setting of an engine has this name. */
const key = fc.string({ minLength: 1 }).filter((each) => each !== "<<");
const { value } = fc.letrec<{ value: YamlValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    leaf,
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(key, tie("value"), { maxKeys: 4, noNullPrototype: true }),
  ) as fc.Arbitrary<YamlValue>,
}));

describe("stringifyYaml()", () => {
  test("writes block YAML with every string quoted", () => {
    const text = stringifyYaml({
      pki: { blocklist: [], disconnect_invalid: true },
      lighthouse: { hosts: ["10.77.0.1"] },
      firewall: { inbound: [{ port: "any", groups: ["123", "yes"] }] },
      "10.77.0.1": 5,
      on: "off",
    });
    expect(text).toBe(
      [
        "pki:",
        "  blocklist: []",
        "  disconnect_invalid: true",
        "lighthouse:",
        "  hosts:",
        '    - "10.77.0.1"',
        "firewall:",
        "  inbound:",
        '    - port: "any"',
        "      groups:",
        '        - "123"',
        '        - "yes"',
        '"10.77.0.1": 5',
        '"on": "off"',
        "",
      ].join("\n"),
    );
  });

  test("reads back every string unchanged", () => {
    fc.assert(
      fc.property(fc.dictionary(key, value, { noNullPrototype: true }), (object) => {
        const yaml = stringifyYaml(object);
        const read: unknown = Object.keys(object).length === 0 ? {} : Bun.YAML.parse(yaml);
        expect(JSON.stringify(read)).toBe(JSON.stringify(object));
      }),
      { numRuns: 500 },
    );
  });

  test("no field can begin a line of its own", () => {
    const text = stringifyYaml({ name: "x\npki:\n  ca: /tmp/evil", other: "a\u2028b\u0085c" });
    expect(text.split("\n").length).toBe(3);
    expect(text).not.toContain("\u2028");
    expect(text).not.toContain("\u0085");
  });
});
