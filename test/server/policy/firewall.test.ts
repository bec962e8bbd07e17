import { GroupName } from "../../../src/protocol/values.ts";
import { describe, expect, test } from "bun:test";
import * as fc from "fast-check";
import * as v from "valibot";
import { oldestEngine } from "../../../src/engine/features.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import {
  compileRules,
  decide,
  testable,
  firstRules,
  type Member,
} from "../../../src/server/policy/firewall.ts";
import { CheckedRule, type Rule } from "../../../src/api/rules.ts";
import { certifiedGroups, networkGroup, networkOfGroup } from "../../../src/protocol/users-groups.ts";

const laptop: Member = { id: 1, name: "laptop", ip: "10.77.0.1", ip6: null, groups: ["staff"] };
const db: Member = { id: 2, name: "db", ip: "10.77.0.2", ip6: "fd00::2", groups: ["servers", "db"] };
const names = new Map([
  [1, "laptop"],
  [2, "db"],
]);

function rule(fields: Partial<Rule>): Rule {
  return {
    id: 1,
    direction: "inbound",
    protocol: "tcp",
    ports: "any",
    peer: { any: true },
    target: { any: true },
    description: "",
    ...fields,
  };
}

const decideBy = (rules: readonly Rule[], ...rest: DecideArguments) =>
  decide(atOnce(testable(rules)), ...rest);
type DecideArguments = Parameters<typeof decide> extends [unknown, ...infer Rest] ? Rest : never;

describe("rules compiled for the engine", () => {
  test("apply only to nodes that match their target", () => {
    const rules = [
      rule({ target: { group: "db" }, peer: { group: "staff" }, ports: "5432" }),
      rule({ target: { node: 1 }, peer: { node: 2 }, ports: "22" }),
    ];
    expect(compileRules(rules, db, names, oldestEngine).inbound).toEqual([
      { port: "5432", proto: "tcp", group: "staff" },
    ]);
    expect(compileRules(rules, laptop, names, oldestEngine).inbound).toEqual([
      { port: "22", proto: "tcp", host: "db" },
    ]);
  });

  test("name their peer by one field, since the engine treats several as alternatives", () => {
    const peer = fc.oneof(
      fc.constant({ any: true as const }),
      fc.constantFrom("staff", "db").map((group) => ({ group })),
      fc.constantFrom(1, 2).map((node) => ({ node })),
      fc.constantFrom("10.0.0.0/8", "0.0.0.0/0").map((cidr) => ({ cidr })),
    );
    fc.assert(
      fc.property(peer, (peer) => {
        const [compiled = {}] = compileRules([rule({ peer })], db, names, oldestEngine).inbound;
        const fields = Object.keys(compiled).filter((key) => !["port", "proto"].includes(key));
        expect(fields).toHaveLength(1);
      }),
    );
  });

  test("permit nothing if their node was deleted", () => {
    expect(compileRules([rule({ peer: { node: 99 } })], db, names, oldestEngine).inbound).toEqual([]);
  });

  test("give ICMP a port only for engines that need one", () => {
    const icmp = [rule({ protocol: "icmp" })];
    expect(compileRules(icmp, db, names, [1, 10, 3]).inbound).toEqual([
      { port: "any", proto: "icmp", host: "any" },
    ]);
    expect(compileRules(icmp, db, names, [1, 11, 0]).inbound).toEqual([{ proto: "icmp", host: "any" }]);
  });

  test("omit IPv6 networks for engines without IPv6", () => {
    const ipv6 = [rule({ peer: { cidr: "fd00::/64" } })];
    expect(compileRules(ipv6, db, names, oldestEngine).inbound).toEqual([]);
    expect(compileRules(ipv6, db, names, [1, 10, 0]).inbound).toHaveLength(1);
  });
});

describe("the test whether A may reach B", () => {
  const first = firstRules.map((each, index) => ({ ...each, id: index + 1 }));

  test("permits only ping in a new organization", () => {
    expect(decideBy(first, laptop, db, { protocol: "icmp" })).toMatchObject({
      allowed: true,
      rule_id: 1,
      outbound_rule_id: 2,
    });
    const refused = decideBy(first, laptop, db, { protocol: "tcp", port: 22 });
    expect(refused).toMatchObject({ allowed: false, rule_id: null, outbound_rule_id: 2 });
    expect(refused.reason).toContain("No inbound rule of db");
  });

  test("refuses everything without rules", () => {
    const refused = decideBy([], laptop, db, { protocol: "icmp" });
    expect(refused).toMatchObject({ rule_id: null, outbound_rule_id: null });
    expect(refused.reason).toContain("No outbound rule of laptop");
  });

  test("names the inbound rule that permits", () => {
    const rules = [
      ...first,
      rule({ id: 7, ports: "5432", peer: { group: "staff" }, target: { group: "db" } }),
      rule({ id: 8, ports: "8000-8010", peer: { cidr: "10.77.0.0/30" }, target: { node: 2 } }),
    ];
    expect(decideBy(rules, laptop, db, { protocol: "tcp", port: 5432 }).rule_id).toBe(7);
    expect(decideBy(rules, laptop, db, { protocol: "tcp", port: 8010 }).rule_id).toBe(8);
    expect(decideBy(rules, laptop, db, { protocol: "tcp", port: 8011 }).allowed).toBe(false);
    expect(decideBy(rules, laptop, db, { protocol: "udp", port: 5432 }).allowed).toBe(false);
    expect(decideBy(rules, db, laptop, { protocol: "tcp", port: 5432 }).allowed).toBe(false);
  });

  test("ignores rules with ports for ICMP and for an unknown port", () => {
    const rules = [...first.slice(1), rule({ protocol: "any", ports: "443" })];
    expect(decideBy(rules, laptop, db, { protocol: "icmp" }).allowed).toBe(false);
    expect(decideBy(rules, laptop, db, { protocol: "tcp" }).allowed).toBe(false);
    expect(decideBy(rules, laptop, db, { protocol: "tcp", port: 443 }).allowed).toBe(true);
  });

  test("matches a network with the peer's IPv6 address too", () => {
    const rules = [...first.slice(1), rule({ peer: { cidr: "fd00::/64" } })];
    expect(decideBy(rules, db, laptop, { protocol: "tcp", port: 1 }).allowed).toBe(true);
    expect(decideBy(rules, laptop, db, { protocol: "tcp", port: 1 }).allowed).toBe(false);
  });
});

describe("the schema of rules", () => {
  const good = {
    direction: "inbound",
    protocol: "tcp",
    ports: "443",
    peer: { any: true },
    target: { any: true },
  };

  test.each([
    {},
    { ports: "8000-8010" },
    { ports: "any", protocol: "icmp" },
    { peer: { group: "web-1" } },
    { peer: { cidr: "10.0.0.0/8" } },
  ])("%p is accepted", (change) =>
    expect(v.safeParse(CheckedRule, { ...good, ...change }).success).toBe(true),
  );

  test.each([
    { ports: "0" },
    { ports: "65536" },
    { ports: "10-9" },
    { ports: "443,80" },
    { ports: "fragment" },
    { protocol: "icmp" },
    { protocol: "TCP" },
    { peer: { group: "any" } },
    { peer: { group: "ANY" } },
    { peer: { any: false } },
    { peer: { group: "a", cidr: "10.0.0.0/8" } },
    { peer: { cidr: "10.0.0.1/8" } },
    { peer: { cidr: "any" } },
    { target: { cidr: "10.0.0.0/8" } },
    { extra: 1 },
  ])("%p is refused", (change) =>
    expect(v.safeParse(CheckedRule, { ...good, ...change }).success).toBe(false),
  );

  test("a group cannot have the name that the engine reads as every peer", () => {
    expect(v.safeParse(GroupName, "any").success).toBe(false);
    expect(v.safeParse(GroupName, "123").success).toBe(true);
    expect(v.safeParse(GroupName, 'a"\nb').success).toBe(false);
  });
});

describe("a rule that names a network behind nodes", () => {
  const target = { group: networkGroup("192.168.7.0/24") };
  const network = rule({ target, peer: { group: "staff" }, protocol: "tcp", ports: "443" });
  const router = { ...db, subnets: ["192.168.7.0/24", "192.168.8.0/24"] };

  test("opens that network on its routers, and neither the routers nor other networks", () => {
    expect(compileRules([network], router, names, [1, 12, 0]).inbound).toEqual([
      { port: "443", proto: "tcp", group: "staff", local_cidr: "192.168.7.0/24" },
    ]);
    expect(
      compileRules([network], { ...db, subnets: ["192.168.8.0/24"] }, names, [1, 12, 0]).inbound,
    ).toEqual([]);
    expect(compileRules([network], db, names, [1, 12, 0]).inbound).toEqual([]);
    // It knows no local_cidr, so the rule would open the node.
    expect(compileRules([network], router, names, oldestEngine).inbound).toEqual([]);
    expect(networkOfGroup(target.group)).toBe("192.168.7.0/24");
    expect(networkOfGroup("network:here")).toBeUndefined();
    // A node that an earlier version let into such a group is not in it.
    expect(certifiedGroups({ groups: [target.group, "web"], ownerGroups: [], ownerId: null })).toEqual([
      "web",
    ]);
  });
});
