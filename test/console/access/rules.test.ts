// The rules of the page Access: words and back, edits on edits, and the matrix beside the control plane's own decision.

import type { Rule as StoredRule } from "../../../src/api/rules.ts";
import { reachOf, type RuledNode } from "../../../src/console/access/rules-of-node.ts";
import { expect, test } from "bun:test";
import * as v from "valibot";
import {
  cellOf,
  isChanged,
  linesOf,
  matrixOf,
  shortTraffic,
} from "../../../src/console/access/group-cells.ts";
import {
  changeWords,
  commandsOf,
  faultLines,
  faultsByRule,
  policyText,
  rowsOf,
  rulesLeft,
} from "../../../src/console/access/rule-edits.ts";
import { portsFault, sentenceOf, toRule, type Rule } from "../../../src/console/access/rules.ts";
import { sidesFor } from "../../../src/console/access/sides.ts";
import {
  areSameTests,
  isTestAboutGone,
  mergeTests,
  notIn,
  testsText,
  wordsOfTest,
  type PolicyTest,
} from "../../../src/console/access/test-text.ts";
import { commandText } from "../../../src/console/words/terminal.ts";
import { AppError } from "../../../src/base/errors.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { decide, testable, type Member } from "../../../src/server/policy/firewall.ts";
import { Ports } from "../../../src/api/rules.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";
import { makePolicies } from "../../support/policies.ts";

const rule = (id: number, more: Partial<Rule> = {}): Rule => ({
  id,
  direction: "inbound",
  protocol: "tcp",
  ports: "443",
  peer: "group:web",
  target: "group:db",
  description: "",
  ...more,
});

test("rules read as sentences from the sender to the receiver, in both directions", () => {
  expect(sentenceOf(rule(1))).toBe("nodes in web may reach nodes in db on tcp 443");
  const out = rule(2, {
    direction: "outbound",
    protocol: "any",
    ports: "any",
    peer: "any",
    target: "node:a",
  });
  expect(sentenceOf(out)).toBe("a may send to all nodes on anything");
});

test("a rule about the nodes of a user names the address, and a former member by number", () => {
  const stored = { ...rule(1), peer: { group: "user:id.7" }, target: { group: "user:id.8" } };
  const shown = toRule(stored, new Map(), new Map([[7, "ada@example.org"]]), new Map());
  expect(shown.peer).toBe("user:ada@example.org");
  expect(sentenceOf(shown)).toBe(
    "nodes of ada@example.org may reach nodes of a former member (8) on tcp 443",
  );
  expect(rulesLeft([], [shown])).toEqual([]);
  expect(policyText([{ ...shown, target: "any" }])).toContain('"peer":"user:ada@example.org"');
});

test("a rule about the users in a provider's group has its words, and no line when the provider is gone", () => {
  const [here, gone] = ["1", "2"].map((id) => `idp:${id}.${"ab".repeat(16)}`);
  const stored = { ...rule(1), peer: { group: here ?? "" }, target: { any: true as const } };
  const words = new Map([[here ?? "", "idp:On call / DE"]]);
  const shown = toRule(stored, new Map(), new Map(), words);
  expect(sentenceOf(shown)).toBe("nodes of users in On call / DE may reach all nodes on tcp 443");
  expect(policyText([shown])).toContain('"peer":"idp:On call / DE"');
  const ended = toRule({ ...stored, peer: { group: gone ?? "" } }, new Map(), new Map(), words);
  expect(sentenceOf(ended)).toContain("nodes of a deleted provider's group may reach");
  expect(rulesLeft([], [ended])).toEqual([]);
});

test("a rule between the nodes of one owner is a sentence, and a word in the text", () => {
  const shown = toRule(
    { ...rule(1), peer: { group: "user:self" }, target: { any: true } },
    new Map(),
    new Map(),
    new Map(),
  );
  expect(shown.peer).toBe("self");
  expect(sentenceOf(shown)).toBe("nodes with the same owner may reach all nodes on tcp 443");
  expect(policyText([shown])).toContain('"peer":"self"');
});

test("a rule about a node that is revoked says its name, and no file holds it", () => {
  const stored = { ...rule(1), peer: { node: 7 }, target: { node: 8 } };
  const shown = toRule(stored, new Map([[7, "#7 web-5"]]), new Map(), new Map());
  expect(sentenceOf(shown)).toBe("web-5 (revoked) may reach a revoked or deleted node (id 8) on tcp 443");
  expect(rulesLeft([], [shown])).toEqual([]);
});

test("an edit of rules drops those about nodes that are gone, and faults find their rule", () => {
  const stored = { ...rule(1), peer: { node: 7 }, target: { any: true as const } };
  const gone = toRule(stored, new Map(), new Map(), new Map());
  const edited = [gone, rule(2), rule(3, { ports: "0" }), rule(4, { peer: "user:x" })];
  expect(rulesLeft(edited, [...edited])).toEqual(edited);
  const rules = rulesLeft([], edited);
  expect(rules).toEqual(edited.slice(1));
  let sentences: readonly string[] = [];
  try {
    atOnce(parsePolicy(policyText(rules)));
  } catch (error) {
    sentences = error instanceof AppError ? (error.details.errors?.["policy"] ?? []) : [];
  }
  const faults = faultsByRule(rules, [...sentences, "The rest."]);
  expect(new Set(faults.keys())).toEqual(new Set([rules[1], rules[2], undefined]));
  expect(faults.get(rules[2])?.[0]).toStartWith("Enter a member as user:EMAIL");
  const lines = faultLines(
    [rule(2), rule(8, { ports: "0" }), rule(-1, { peer: "user:x" })],
    [...sentences, "The rest."],
  );
  expect(lines.join("\n")).not.toContain("Line");
  expect(lines.some((line) => line.startsWith("No. 8, nodes in web may reach nodes in db on tcp 0: "))).toBe(
    true,
  );
  expect(lines.some((line) => line.startsWith("New rule, nodes of x may reach"))).toBe(true);
  expect(lines).toContain("The rest.");
});

test("the dialog refuses the ports that the control plane refuses, with its sentence", () => {
  const all = [
    "any",
    "1",
    "443",
    "65535",
    "8000-8010",
    "7-7",
    "0",
    "65536",
    "99999",
    "8010-8000",
    "0-5",
    "http",
    "",
    "1-",
    "80,443",
  ];
  for (const ports of all) {
    const { issues } = v.safeParse(Ports, ports, { abortPipeEarly: true });
    expect([ports, portsFault(ports)]).toEqual([ports, issues?.[0].message]);
  }
});

test("a sentence says that all ports are meant", () => {
  expect(sentenceOf(rule(1, { ports: "any" }))).toEndWith("on tcp, any port");
  expect(sentenceOf(rule(1, { ports: "any", protocol: "icmp" }))).toEndWith("on icmp");
});

test("commands quote what a shell would read otherwise", () => {
  const added = [rule(-1, { description: "it's $(reboot)" })];
  expect(commandText({ command: commandsOf("acme", { added, removed: [rule(3)] }) })).toBe(
    "agent admin rule create acme --protocol tcp --ports 443 --peer group:web --target group:db " +
      `--description 'it'\\''s $(reboot)' && agent admin rule delete acme 3`,
  );
});

test("the command of an edited rule keeps its number, and says only what differs", () => {
  const edits = {
    added: [rule(3, { ports: "8443", description: "" })],
    removed: [rule(3, { description: "shop" })],
  };
  expect(commandText({ command: commandsOf("acme", edits) })).toBe(
    "agent admin rule update acme 3 --ports 8443 --description ''",
  );
});

test("the matrix agrees with the control plane about nodes of one group each", () => {
  const policies = makePolicies(24);
  const names = new Map<number, string>();
  const groups = ["web", "db", "staff"];
  const member = (id: number, group: string): Member => ({
    id,
    name: `m${id}`,
    ip: "10.200.0.9",
    ip6: null,
    groups: [group],
  });
  let permitted = 0;
  for (let round = 0; round < 240; round++) {
    const stored = policies.policy(6).rules.filter(({ peer }) => !("cidr" in peer));
    const rules = stored.map((each) => toRule(each, names, new Map(), new Map()));
    const tested = atOnce(testable(stored));
    for (const from of groups)
      for (const to of groups) {
        const { traffic } = cellOf(rules, from, to);
        for (const [protocol, port] of [
          ["tcp", 22],
          ["tcp", 83],
          ["udp", 8005],
          ["icmp", undefined],
        ] as const) {
          const { allowed } = decide(tested, member(901, from), member(902, to), { protocol, port });
          if (allowed) permitted++;
          expect([stored, from, to, protocol, port, covers(traffic, protocol, port)]).toEqual([
            stored,
            from,
            to,
            protocol,
            port,
            allowed,
          ]);
        }
      }
  }
  expect(permitted).toBeGreaterThan(50);
});

function covers(traffic: readonly string[], protocol: string, port: number | undefined): boolean {
  return traffic.some((each) => {
    if (each === "anything" || each === protocol) return true;
    const [kind, ports = ""] = each.split(" ");
    if (port === undefined || (kind !== "port" && kind !== protocol)) return false;
    const [first = 0, last = first] = ports.split("-").map(Number);
    return port >= first && port <= last;
  });
}

test("the matrix of a draft says which traffic of a cell comes and goes", () => {
  const out = rule(1, { direction: "outbound", protocol: "any", ports: "any", peer: "any", target: "any" });
  const saved = [out, rule(2), rule(3, { ports: "22" })];
  const draft = [out, rule(3, { ports: "22" }), rule(2, { peer: "group:db", target: "group:web" })];
  const changed = (rules: readonly Rule[]) =>
    matrixOf(["db", "web"], rules, saved)
      .flat()
      .map((cell) => (isChanged(cell) ? `+${cell.added.join()} -${cell.removed.join()}` : "same"));
  expect(changed(draft)).toEqual(["same", "+tcp 443 -", "+ -tcp 443", "same"]);
  // Another order of the same rules changes nothing.
  expect(changed(saved.toReversed())).toEqual(["same", "same", "same", "same"]);
});

test("a cell has the ports of tcp alone, and ping only where nothing else is", () => {
  expect(shortTraffic(["icmp", "tcp 5432", "udp 53"])).toEqual(["5432", "udp 53"]);
  expect(shortTraffic(["icmp"])).toEqual(["·"]);
  expect(shortTraffic(["anything"])).toEqual(["all"]);
  expect(shortTraffic(["tcp", "port 53"])).toEqual(["tcp", "any 53"]);
});

test("the bar of a draft counts rules and tests that are new, changed and deleted", () => {
  const saved = [rule(1), rule(2), rule(3)];
  const words = (draft: readonly Rule[], fresh = 0, gone = 0) =>
    changeWords(rowsOf(saved, draft), { fresh, gone });
  expect(words([rule(1), rule(2, { peer: "any" }), rule(3), rule(-1)])).toBe("1 new rule, 1 changed");
  expect(words([])).toBe("3 rules deleted");
  expect(words([rule(1), rule(2), rule(3, { description: "x" })], 2, 1)).toBe(
    "1 rule changed, 2 new tests, 1 deleted",
  );
  expect(words(saved, 0, 1)).toBe("1 test deleted");
  expect(rowsOf(saved, [rule(3), rule(-1)]).map(({ state }) => state)).toEqual([
    "deleted",
    "deleted",
    "same",
    "new",
  ]);
});

test("groups that no rule names are one line of the matrix", () => {
  const titles = (groups: readonly string[]) => linesOf(groups, [rule(1)]).map(({ title }) => title);
  expect(titles(["web", "eu", "db", "us"])).toEqual(["db", "web", "rest"]);
  expect(titles(["web", "db", "us"])).toEqual(["db", "web", "us"]);
  expect(titles([])).toEqual(["db", "web"]);
  const [, , others] = linesOf(["web", "eu", "us"], [rule(1)]);
  expect(others?.all).toEqual(["eu", "us"]);
});

test("groups of providers and users are offered beside groups and nodes", () => {
  const sides = { groups: ["ops"], words: ["idp:Operators"], emails: ["op@example.org"], nodes: ["op1"] };
  expect(sidesFor("op", sides, true)).toEqual(["group:ops", "user:op@example.org", "node:op1"]);
  expect(sidesFor("", sides, true)).toContain("self");
  expect(sidesFor("idp:", sides, false)).toEqual(["idp:Operators"]);
  expect(
    sidesFor("", { ...sides, nodes: Array.from({ length: 99 }, (_, at) => `n${at}`) }, false),
  ).toHaveLength(50);
});

test("a test of a node, user or group of a provider that is gone is in no file", () => {
  const about = (from: string, to: string): PolicyTest => ({
    expect: "accept",
    from,
    to,
    protocol: "tcp",
    ports: "443",
    passes: true,
  });
  const kept = [about("group:web", "node:db-1"), about("idp:Engineering", "user:ada@example.org")];
  const gone = [
    about("node:#7", "any"),
    about("any", "user:#7"),
    about("idp:#3.0123", "any"),
    about("any", "idp:#3.0123"),
  ];
  expect([...kept, ...gone].map(isTestAboutGone)).toEqual([false, false, true, true, true, true]);
  expect(JSON.parse(testsText([...kept, ...gone]))).toHaveLength(2);
});

const must = (ports: string, more: Partial<PolicyTest> = {}): PolicyTest => ({
  expect: "accept",
  from: "group:web",
  to: "group:db",
  protocol: "tcp",
  ports,
  passes: null,
  ...more,
});

test("rules and tests are one file: what is not edited is not in it, and faults still find what they are about", () => {
  expect(policyText(undefined, testsText([must("443")]))).toBe(
    '{"tests": [{"accept":{"from":"group:web","to":"group:db","protocol":"tcp","port":443}}]}',
  );
  const rules = [rule(2), rule(3, { ports: "0" })];
  let sentences: readonly string[] = [];
  try {
    atOnce(parsePolicy(policyText(rules, testsText([must("443"), must("443", { to: "node:x y" })]))));
  } catch (error) {
    sentences = error instanceof AppError ? (error.details.errors?.["policy"] ?? []) : [];
  }
  const lines = faultLines(rules, sentences);
  expect(lines).toHaveLength(2);
  expect(lines[0]).toStartWith("Test 2: ");
  expect(lines[1]).toStartWith("No. 3, nodes in web may reach nodes in db on tcp 0: ");
});

test("edits of tests are put on the tests that others saved meanwhile", () => {
  const words = (tests: readonly PolicyTest[]) => tests.map(wordsOfTest);
  const base = [must("1"), must("2"), must("3", { expect: "deny", to: "any", protocol: "any" })];
  // The outcome of a test is no edit.
  expect(areSameTests(base, [must("2", { passes: false }), ...base.slice(2), must("1")])).toBe(true);
  const mine = [must("1"), must("4"), ...base.slice(2), must("6")];
  expect(words(notIn(base, mine))).toEqual([
    "nodes in web must reach nodes in db on tcp 4",
    "nodes in web must reach nodes in db on tcp 6",
  ]);
  expect(mergeTests(base, mine, base)).toBe(mine);
  const theirs = [must("2"), ...base.slice(2), must("5"), must("6")];
  expect(words(mergeTests(base, mine, theirs))).toEqual([
    "nodes in web must not reach all nodes on port 3",
    "nodes in web must reach nodes in db on tcp 5",
    "nodes in web must reach nodes in db on tcp 6",
    "nodes in web must reach nodes in db on tcp 4",
  ]);
});

test("a node reaches those whose firewalls and its own agree, of one owner where a rule says self", () => {
  const rule = (id: number, direction: "inbound" | "outbound", target: object, peer: object, ports = "any") =>
    ({ id, direction, protocol: "tcp", ports, target, peer, description: "" }) as StoredRule;
  const node = (id: number, groups: string[], owner_id: number | null = null): RuledNode => ({
    id,
    groups,
    owner_groups: [],
    subnets: [],
    owner_id,
  });
  const rules = [
    rule(1, "outbound", { group: "web" }, { any: true }, "5432"),
    rule(2, "inbound", { group: "db" }, { group: "web" }, "5000-6000"),
    rule(3, "inbound", { group: "app" }, { group: "web" }, "80"),
    rule(4, "inbound", { group: "web" }, { group: "user:self" }),
    rule(5, "outbound", { group: "phone" }, { any: true }),
  ];
  const others = [
    node(1, ["db"]),
    node(2, ["db"]),
    node(3, ["app"]),
    node(4, ["phone"], 7),
    node(5, ["phone"], 8),
  ];
  expect(reachOf(rules, node(0, ["web"], 7), others)).toEqual({ reaches: 2, reachedBy: 1 });
  expect(reachOf(rules, node(0, ["web"]), others)).toEqual({ reaches: 2, reachedBy: 0 });
  expect(reachOf(rules, node(0, ["ci"]), others)).toEqual({ reaches: 0, reachedBy: 0 });
});
