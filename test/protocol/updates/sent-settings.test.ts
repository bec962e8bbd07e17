import { expect, test } from "bun:test";
import fc from "fast-check";
import type { YamlMap } from "../../../src/base/yaml.ts";
import { changesTo, withChanges } from "../../../src/protocol/updates/sent-settings.ts";

const key = fc.constantFrom("a", "b", "c");
const leaf = fc.oneof(fc.integer({ min: 0, max: 2 }), fc.constantFrom(["x"], ["y"]));
const section = fc.dictionary(key, fc.oneof(leaf, fc.dictionary(key, leaf)));
const settings = fc.dictionary(key, fc.oneof(leaf, section)) as fc.Arbitrary<YamlMap>;

test("withChanges() makes the next settings of the former ones and changesTo()", () => {
  fc.assert(
    fc.property(settings, settings, (former, next) => {
      expect(withChanges(former, changesTo(former, next))).toEqual(next);
    }),
    { numRuns: 1000 },
  );
});

test("a timeout of the firewall does not send its rules again", () => {
  const inbound = [{ port: "any", proto: "any", host: "any" }];
  const former = {
    firewall: { inbound, conntrack: { tcp_timeout: "12m", udp_timeout: "3m" } },
    cipher: "aes",
  };
  const next = { firewall: { inbound, conntrack: { tcp_timeout: "1h", udp_timeout: "3m" } }, cipher: "aes" };
  expect(changesTo(former, next)).toEqual({ firewall: { conntrack: { tcp_timeout: "1h" } } });
});
