// Reach by classes of nodes against the explainer for each pair of nodes, and the explainer against the rules that engines
// get. SOAK=1 runs all rounds.

import { describe, expect, test } from "bun:test";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import {
  compileRules,
  decide,
  firstRules,
  testable,
  type Member,
} from "../../../src/server/policy/firewall.ts";
import type { Peer, Rule } from "../../../src/api/rules.ts";
import { ownerGroup, ownerGroupIn, userOfGroup, selfGroup } from "../../../src/protocol/users-groups.ts";
import { changedNodes, changedRules, differences } from "../../../src/server/policy-files/differences.ts";
import { accessChanges } from "../../../src/server/policy-files/show-plan.ts";
import { providerGroup, type GroupSource } from "../../../src/server/policy/group-users.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";
import type { PolicyNode } from "../../../src/server/policy/policy-nodes.ts";
import { resolvePolicy } from "../../../src/server/policy/resolve.ts";
import { runTests, type PolicyTest } from "../../../src/server/policy/policy-tests.ts";
import { accessBetween, showAccess, type Access } from "../../../src/server/policy/packets.ts";
import { makeReach } from "../../../src/server/policy/reach.ts";
import { identityOf } from "../../../src/server/policy/node-classes.ts";
import { makeWork, type Work } from "../../../src/server/policy/comparison-limit.ts";
import { edgesOf, enginePasses, makePolicies, type RandomPolicy } from "../../support/policies.ts";
import { inFull } from "../../support/soak.ts";

/** All rounds take minutes of processor. */
const soakMs = inFull ? 3_600_000 : 600_000;

/** What the explainer permits from one node to another, asked for each port at which a rule begins or ends. */
function explained({ rules }: RandomPolicy, edges: readonly number[]) {
  const ready = atOnce(testable(rules));
  return (from: Member, to: Member): string[] => {
    const packets = [
      { protocol: "icmp" as const },
      ...edges.flatMap((port) => [
        { protocol: "tcp" as const, port },
        { protocol: "udp" as const, port },
      ]),
    ];
    return packets
      .filter((packet) => decide(ready, from, to, packet).allowed)
      .map((packet) => `${packet.protocol}${"port" in packet ? packet.port : ""}`);
  };
}

/** The same packets as an Access has them. */
function packetsIn(access: Access, edges: readonly number[]): string[] {
  const inRanges = (ranges: Access["tcp"], port: number) =>
    ranges.some(([first, last]) => port >= first && port <= last);
  return [
    ...(access.icmp ? ["icmp"] : []),
    ...edges.flatMap((port) => [
      ...(inRanges(access.tcp, port) ? [`tcp${port}`] : []),
      ...(inRanges(access.udp, port) ? [`udp${port}`] : []),
    ]),
  ];
}

/** Users in groups and groups of providers, as a policy file names them: what a plan says against what a file means. */
function makeFiles(seed: number) {
  const { policy, below, pick } = makePolicies(seed);
  const names = ["web", "db", "staff", "edge", "ops", "lab"];
  const users = new Map([1, 2, 3, 4].map((id) => [`u${id}@example.org`, id]));
  const providers = [{ id: 9, name: "Okta" }];
  const ofProvider = ["eng", "On call / DE", "/a"].map((name) => providerGroup(9, name));
  const providerUsers = new Map(
    ofProvider.map(({ people }) => [people, new Set([...users.values()].filter(() => below(2) === 0))]),
  );
  const words = new Map(ofProvider.map(({ people, name }) => [people, `idp:${name}`]));
  const everybody = [...[...users.values()].map(ownerGroup), ...words.keys()];
  const person = () => ({ name: pick(names), people: pick(everybody) });
  const many = <T>(count: number, make: () => T): T[] => Array.from({ length: below(count) }, make);
  const wordOf = (side: Peer): string => {
    if ("any" in side) return "any";
    if ("node" in side) return `node:n${side.node}`;
    if ("cidr" in side) return side.cidr;
    if (side.group === selfGroup) return "self";
    const email = [...users].find(([, id]) => id === userOfGroup(side.group))?.[0];
    return words.get(side.group) ?? (email === undefined ? `group:${side.group}` : `user:${email}`);
  };
  const withPeople = (rules: readonly Rule[]): Rule[] =>
    rules.map((rule) =>
      below(4) === 0 ? { ...rule, [pick(["peer", "target"])]: { group: pick([...words.keys()]) } } : rule,
    );
  /** By definition, without the code of the server. */
  const groupsOf = (owner: number | null, people: readonly GroupSource[]): string[] => {
    if (owner === null) return [];
    const own = ofProvider.flatMap((each) =>
      providerUsers.get(each.people)?.has(owner) === true ? [each.people] : [],
    );
    const found = people.filter((each) => [ownerGroup(owner), ...own].includes(each.people));
    return [...new Set([...own, ...found.map(({ name }) => name)])].sort();
  };
  const nodeOf = (member: Member, given: readonly string[], people: readonly GroupSource[]): PolicyNode => {
    const ownerId = member.groups.map(userOfGroup).find((id) => id !== undefined) ?? null;
    const ownerGroups = groupsOf(ownerId, people);
    const owned = ownerId === null ? [] : [...ownerGroups, ownerGroup(ownerId)];
    const groups = [...new Set([...given, ...owned])];
    const more = { isActive: true, registeredWith: null, subnets: [], isRelay: false, phone: null };
    return { ...member, groups, given, ownerGroups, ownerId, ...more };
  };
  const some = () => names.filter(() => below(4) === 0);
  return () => {
    const { rules, members } = policy(50);
    const people = many(6, person);
    const unique = [...new Map(people.map((each) => [JSON.stringify(each), each])).values()];
    const nodes = members.map((member) => nodeOf(member, some(), unique));
    const current = {
      rules: withPeople(rules),
      nodes,
      tests: [],
      aliases: [],
      tokenGroups: new Set<string>(),
      people: unique,
      providerGroups: ofProvider,
      words,
      providerUsers,
      users,
      isGivenElsewhere: () => false,
      groups: names.map((name) => ({ name, description: "" })),
    };
    const wanted = many(6, person);
    const given = new Map(members.map(({ id }) => [id, below(10) === 0 ? some() : undefined]));
    const givenTo = ({ id, given: before }: PolicyNode) => given.get(id) ?? before;
    const kept = withPeople(current.rules.filter(() => below(5) > 0));
    const rulesAfter = [...new Map(kept.map((rule) => [identityOf(rule), rule])).values()];
    const groups = names.map((name) => {
      const own = nodes.filter((node) => givenTo(node).includes(name)).map((node) => `node:${node.name}`);
      const others = wanted
        .filter((each) => each.name === name)
        .map((each) => wordOf({ group: each.people }));
      return [name, { members: [...own, ...others] }] as const;
    });
    const file = JSON.stringify({
      groups: Object.fromEntries(groups),
      rules: rulesAfter.map(({ direction, protocol, ports, peer, target }) => ({
        direction,
        protocol,
        ports,
        peer: wordOf(peer),
        target: wordOf(target),
      })),
    });
    const known = {
      nodes: new Map(nodes.map(({ name, id }) => [name, id])),
      groups: new Set(names),
      users,
      providers,
    };
    const after = nodes.map((node) => nodeOf(node, givenTo(node), wanted));
    return { current, file, known, after: { rules: rulesAfter, members: after } };
  };
}

describe("what changes between two policies", () => {
  test(
    "equals the explainer's answers for each pair of nodes",
    () => {
      const { policy, edited } = makePolicies(1);
      let changed = 0;
      for (let round = 0; round < (inFull ? 1000 : 8); round++) {
        const before = policy(50);
        const after = edited(before);
        const edges = edgesOf([...before.rules, ...after.rules]);
        const [was, is] = [explained(before, edges), explained(after, edges)];
        const tested = atOnce(testable(before.rules));
        const expected = new Map<string, string>();
        for (const [at, a] of before.members.entries()) {
          for (const [other, b] of before.members.entries()) {
            if (at === other) continue;
            const old = was(a, b);
            expect(packetsIn(accessBetween(tested, a, b), edges)).toEqual(old);
            const [from, to] = [after.members[at], after.members[other]];
            const now = from === undefined || to === undefined ? [] : is(from, to);
            const gains = now.filter((packet) => !old.includes(packet));
            const loses = old.filter((packet) => !now.includes(packet));
            if (gains.length + loses.length > 0)
              expected.set(`${a.id}>${b.id}`, JSON.stringify([gains, loses]));
          }
        }
        const found = new Map<string, string>();
        const reach = atOnce(makeReach(before, after));
        for (const { from, to, owners, pairs, gains, loses } of atOnce(reach.changes())) {
          let counted = 0;
          for (const a of from.members) {
            for (const b of reach.partners(a, to, owners)) {
              if (a.id === b.id) continue;
              counted++;
              found.set(
                `${a.id}>${b.id}`,
                JSON.stringify([packetsIn(gains, edges), packetsIn(loses, edges)]),
              );
            }
          }
          expect(counted).toBe(pairs);
        }
        changed += found.size;
        expect([round, Object.fromEntries(found)]).toEqual([round, Object.fromEntries(expected)]);
      }
      expect(changed).toBeGreaterThan(100);
    },
    soakMs,
  );

  test(
    "is what the plan of a file says that names users and groups of providers",
    () => {
      const make = makeFiles(4);
      let changed = 0;
      for (let round = 0; round < (inFull ? 1000 : 4); round++) {
        const { current, file, known, after } = make();
        const desired = atOnce(resolvePolicy(atOnce(parsePolicy(file)), known));
        const { changes } = atOnce(differences(current, desired, { prune: true }));
        const before = { rules: current.rules, members: current.nodes };
        const edges = edgesOf([...before.rules, ...after.rules]);
        const [was, is] = [explained(before, edges), explained(after, edges)];
        const expected = new Map<string, string>();
        for (const [at, a] of before.members.entries()) {
          for (const [other, b] of before.members.entries()) {
            const [from, to] = [after.members[at], after.members[other]];
            if (at === other || from === undefined || to === undefined) continue;
            const [old, now] = [was(a, b), is(from, to)];
            if (old.join() !== now.join())
              expected.set(`${a.id}>${b.id}`, `${old.length === 0 ? "" : old.join()} to ${now.join()}`);
          }
        }
        const planned = {
          rules: changedRules(current.rules, changes.rules),
          members: changedNodes(current.nodes, changes),
        };
        const [said, { pairs_changed: count, pairs }] = [
          explained(planned, edges),
          atOnce(accessChanges(current, changes)),
        ];
        for (const [at, a] of after.members.entries())
          for (const [other, b] of after.members.entries()) {
            const [from, to] = [planned.members[at], planned.members[other]];
            if (at === other || from === undefined || to === undefined) continue;
            expect([round, a.id, b.id, said(from, to)]).toEqual([round, a.id, b.id, is(a, b)]);
          }
        expect([round, count]).toEqual([round, expected.size]);
        for (const { from, to } of pairs) expect(expected.has(`${from.id}>${to.id}`)).toBe(true);
        changed += expected.size;
      }
      expect(changed).toBeGreaterThan(100);
    },
    soakMs,
  );

  test("is nothing between a policy and itself", () => {
    const { policy } = makePolicies(2);
    const same = policy(50);
    expect(atOnce(atOnce(makeReach(same)).changes())).toEqual([]);
  });
});

test(
  "the explainer, reach and the rules of both engines agree",
  () => {
    const { policy, below, pick } = makePolicies(3);
    let permitted = 0;
    for (let round = 0; round < (inFull ? 10_000 : 1000); round++) {
      const each = policy(12);
      const { rules, members } = each;
      const ready = atOnce(testable(rules));
      const reach = atOnce(makeReach(each));
      const classOf = (member: Member) => reach.classes.find(({ members: of }) => of.includes(member));
      const names = new Map(members.map(({ id, name }) => [id, name]));
      const ports = edgesOf(rules);
      for (let asked = 0; asked < 30; asked++) {
        const [from, to] = [pick(members), pick(members)];
        if (from === to) continue;
        const protocol = pick(["tcp", "udp", "icmp"] as const);
        const packet = protocol === "icmp" ? { protocol } : { protocol, port: pick(ports) };
        const { allowed } = decide(ready, from, to, packet);
        // An engine of 1.11 or later reads ICMP without a port, an older one with any.
        const engine = [1, 10 + below(2), 0] as const;
        const out = compileRules(rules, from, names, engine).outbound;
        const into = compileRules(rules, to, names, engine).inbound;
        const passes = enginePasses(out, to, packet) && enginePasses(into, from, packet);
        const owner = ownerGroupIn(from.groups);
        const isOwn = owner !== undefined && to.groups.includes(owner);
        const [a, b] = [classOf(from), classOf(to)];
        const access =
          a === undefined || b === undefined
            ? []
            : packetsIn(reach.access(a, b, isOwn ? "same" : "different"), ports);
        const isInReach = access.includes(`${protocol}${"port" in packet ? packet.port : ""}`);
        const what = `round ${round}: ${from.name} to ${to.name} ${JSON.stringify(packet)}`;
        expect(`${what} ${passes} ${isInReach}`).toBe(`${what} ${allowed} ${allowed}`);
        if (allowed) permitted++;
      }
    }
    expect(permitted).toBeGreaterThan(1000);
  },
  soakMs,
);

describe("the work of comparing has a maximum", () => {
  /** Nodes each in a group of its own, and for each a rule between two of the groups. */
  const makeMany = (count: number) => {
    const members = Array.from({ length: count }, (_, at) => {
      return {
        id: at + 1,
        name: `n${at}`,
        ip: `10.0.${at >> 8}.${at & 255}`,
        ip6: null,
        groups: [`g${at}`],
      };
    });
    const rules = [...firstRules, ...members].map((each, at): Rule =>
      "peer" in each
        ? { ...each, id: at + 1 }
        : {
            id: at + 1,
            direction: "inbound",
            protocol: "tcp",
            ports: String(at),
            peer: { group: `g${each.id - 1}` },
            target: { group: `g${(each.id * 7) % count}` },
            description: "",
          },
    );
    return { members, rules };
  };
  const any = { any: true } as const;
  const tests = Array.from({ length: 500 }, (_, at): PolicyTest => {
    return { expect: "deny", from: any, to: any, protocol: "udp", ports: String(at + 1) };
  });
  const counted = () => {
    let spent = 0;
    const work: Work = { spend: (steps) => void (spent += steps) };
    return { work, spent: () => spent };
  };

  test("pairs of classes are compared once, however many tests there are", () => {
    const many = makeMany(inFull ? 400 : 100);
    const [one, all] = [counted(), counted()];
    expect(atOnce(runTests(tests.slice(0, 1), many, one.work))).toEqual([]);
    expect(atOnce(runTests(tests, many, all.work))).toEqual([]);
    expect(all.spent() / one.spent()).toBeLessThan(50);
  });

  test("what exceeds it is a failing test, and no plan", () => {
    const { members, rules } = makeMany(400);
    const failures = atOnce(runTests(tests, { rules, members }, makeWork(1_000_000)));
    expect(failures.map(({ sentence }) => sentence)).toEqual([
      "The tests take too long: 500 tests, 402 rules, 400 nodes. Have fewer tests, or rules that name fewer groups and nodes.",
    ]);
    const reach = atOnce(makeReach({ rules: [], members }, { rules, members }, makeWork(1_000_000)));
    expect(() => atOnce(reach.changes())).toThrow("Comparing which nodes reach each other takes too long.");
  });
});

test("access is shown shortly", () => {
  expect(showAccess({ tcp: [[1, 65_535]], udp: [[1, 65_535]], icmp: true })).toEqual(["any"]);
  expect(
    showAccess({
      tcp: [
        [22, 22],
        [80, 90],
      ],
      udp: [[1, 65_535]],
      icmp: true,
    }),
  ).toEqual(["icmp", "tcp/22", "tcp/80-90", "udp/any"]);
});
