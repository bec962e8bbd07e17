// Proposals narrow rules to what was observed: over random policies and traffics they permit all of the traffic, and nothing that
// the former rules did not.

import { expect, test } from "bun:test";
import type { Peer, Rule, Target } from "../../../src/api/rules.ts";
import { narrowRules, type Evidence } from "../../../src/server/flows/narrow-rules.ts";
import type { Observed } from "../../../src/server/flows/read-flows.ts";
import { usesOf } from "../../../src/server/flows/rule-uses.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { testable, type Member } from "../../../src/server/policy/firewall.ts";
import { accessBetween, isNothing, type Access } from "../../../src/server/policy/packets.ts";
import { makeReach } from "../../../src/server/policy/reach.ts";
import { selfGroup } from "../../../src/protocol/users-groups.ts";

type Random = (below: number) => number;
function seeded(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) | 0;
    const mixed = Math.imul(state ^ (state >>> 12), 0x297a2d39);
    return ((mixed ^ (mixed >>> 15)) >>> 0) % below;
  };
}

const groups = ["web", "db", "ops", "mail", "build", "lab"];
const membersOf = (random: Random, count: number): Evidence["members"] =>
  Array.from({ length: count }, (_, at) => ({
    id: at + 1,
    name: `n${at + 1}`,
    ip: `10.77.${at >> 8}.${at & 255}`,
    ip6: null,
    groups: [
      ...groups.filter(() => random(4) === 0),
      ...(random(3) === 0 ? [`user:id.${random(4) + 1}`] : []),
    ],
    isRouter: random(20) === 0,
  }));

function ruleOf(random: Random, id: number, count: number): Rule {
  const group = () => ({ group: groups[random(groups.length)] ?? "" });
  const node = () => ({ node: random(count) + 1 });
  const peers: (() => Peer)[] = [
    () => ({ any: true }),
    group,
    group,
    node,
    () => ({ group: selfGroup }),
    () => ({ cidr: "10.77.0.0/28" }),
  ];
  const targets: (() => Target)[] = [() => ({ any: true }), group, group, node];
  const protocol = (["tcp", "udp", "icmp", "any"] as const)[random(4)] ?? "any";
  const low = 1 + random(60_000);
  const range = ["any", String(low), `${low}-${low + random(5000)}`][random(3)] ?? "any";
  return {
    id,
    direction: "inbound",
    protocol,
    ports: protocol === "icmp" ? "any" : range,
    peer: peers[random(peers.length)]?.() ?? { any: true },
    target: targets[random(targets.length)]?.() ?? { any: true },
    description: random(12) === 0 ? "keep: once a year" : "",
  };
}

const out: Rule = {
  id: 1,
  direction: "outbound",
  protocol: "any",
  ports: "any",
  peer: { any: true },
  target: { any: true },
  description: "",
};

/** A packet that this access lets pass. */
function packetOf(
  random: Random,
  { tcp, udp, icmp }: Access,
): Pick<Observed, "protocol" | "port"> | undefined {
  const choices = [
    ...tcp.map((range) => ({ protocol: "tcp", range })),
    ...udp.map((range) => ({ protocol: "udp", range })),
    ...(icmp ? [{ protocol: "icmp", range: undefined }] : []),
  ];
  const chosen = choices[random(Math.max(1, choices.length))];
  if (chosen === undefined) return undefined;
  const { protocol, range } = chosen;
  if (range === undefined) return { protocol, port: 0 };
  return { protocol, port: range[0] + random(Math.min(3, range[1] - range[0] + 1)) };
}

const passes = (access: Access, { protocol, port }: Pick<Observed, "protocol" | "port">) => {
  if (protocol === "icmp") return access.icmp;
  return access[protocol === "tcp" ? "tcp" : "udp"].some(([first, last]) => port >= first && port <= last);
};

async function scene(seed: number, count: number, ruleCount: number, flowCount: number) {
  const random = seeded(seed);
  const members = membersOf(random, count);
  const rules = [out, ...Array.from({ length: ruleCount }, (_, at) => ruleOf(random, at + 2, count))];
  const parsed = atOnce(testable(rules));
  const observed: Observed[] = [];
  const pick = () => members[random(members.length)] as Member;
  for (let tries = 0; observed.length < flowCount && tries < flowCount * 30; tries++) {
    const [from, to] = [pick(), pick()];
    const packet = packetOf(random, accessBetween(parsed, from, to));
    if (packet === undefined || from.id === to.id) continue;
    // What is answered, goes on, or comes without an answer; as the sender or the receiver saw it.
    const counts = [
      { flows: 3, answered: 3 },
      { flows: 0, answered: 0 },
      { flows: 2, answered: 1 },
    ][random(3)];
    const side = random(3);
    observed.push({
      from: from.id,
      to: to.id,
      address: "10.77.0.1",
      ...packet,
      sent: side === 0 ? undefined : counts,
      received: side === 1 ? undefined : counts,
      firstAt: 1,
      lastAt: 1000 + tries,
    });
  }
  return { members, rules, observed, random };
}

const proposalOf = (
  { members, rules, observed }: Awaited<ReturnType<typeof scene>>,
  whyIncomplete: Evidence["whyIncomplete"] = () => undefined,
) => {
  const uses = atOnce(usesOf(rules, members, observed));
  return atOnce(narrowRules(rules, { members, uses, whyIncomplete, ...longAgo }));
};
const longAgo = { begin: 0, madeAt: () => 0, seenSince: () => 0 };

test("over 50 random policies and traffics, the proposal permits all of the traffic and nothing new", async () => {
  let [narrowed, removed] = [0, 0];
  for (let seed = 1; seed <= 50; seed++) {
    const made = await scene(seed, 25, 2 + (seed % 12), 40);
    const { members, rules, observed } = made;
    const changes = proposalOf(made);
    const after = changes.flatMap(({ into }) => into);
    narrowed += changes.filter(({ what }) => what === "narrowed").length;
    removed += changes.filter(({ what }) => what === "removed").length;
    const reach = atOnce(makeReach({ rules, members }, { rules: after, members }));
    expect({ seed, gains: atOnce(reach.changes()).filter(({ gains }) => !isNothing(gains)) }).toEqual({
      seed,
      gains: [],
    });
    const parsed = atOnce(testable(after));
    for (const flow of observed) {
      const [from, to] = [flow.from, flow.to].map((id) => members[id - 1]);
      if (from === undefined || to === undefined) throw new Error("No node");
      expect({ seed, flow, passes: passes(accessBetween(parsed, from, to), flow) }).toEqual({
        seed,
        flow,
        passes: true,
      });
    }
    for (const { rule, what } of changes)
      if (rule.description.startsWith("keep:")) expect([what, rule.id]).toEqual(["kept", rule.id]);
    // Where a node of the target side reports nothing, the rule stays.
    const silent = proposalOf(made, () => "reported no flows");
    const isEmpty = ({ rule, what, reason }: (typeof silent)[number]) =>
      what === "kept" || reason === "" || /is rule \d+ again/.test(reason) || rule.id < 0;
    expect(silent.filter((each) => !isEmpty(each))).toEqual([]);
  }
  process.stderr.write(`50 policies: ${narrowed} rules narrowed, ${removed} removed\n`);
  expect(narrowed).toBeGreaterThan(50);
  expect(removed).toBeGreaterThan(20);
});

test("rules that say the same are both used", async () => {
  const { members, rules, observed } = await scene(1, 25, 4, 40);
  const twins = rules.map((rule) => ({ ...rule, id: rule.id + 1000 }));
  const uses = atOnce(usesOf([...rules, ...twins], members, observed));
  expect(uses.size).toBeGreaterThan(1);
  for (const { id } of rules) expect(uses.get(id)).toEqual(uses.get(id + 1000));
});

test("a rule for all becomes rules for the groups and ports that used it, with few ranges", async () => {
  const member = (id: number, ...of: string[]) => ({
    id,
    name: `n${id}`,
    ip: `10.77.0.${id}`,
    ip6: null,
    groups: of,
    isRouter: false,
  });
  const members = [member(1, "web"), member(2, "web"), member(3, "db"), member(4, "lab"), member(5)];
  const all: Rule = { ...out, id: 7, direction: "inbound" };
  const flow = (
    from: number,
    to: number,
    protocol: string,
    port: number,
    more: Partial<Observed> = {},
  ): Observed => {
    const counts = { flows: 1, answered: 1 };
    return {
      from,
      to,
      address: "",
      protocol,
      port,
      sent: counts,
      received: counts,
      firstAt: 1,
      lastAt: 9,
      ...more,
    };
  };
  const propose = (observed: Observed[], rules = [all]) => {
    const uses = atOnce(usesOf(rules, members, observed));
    return atOnce(narrowRules(rules, { members, uses, whyIncomplete: () => undefined, ...longAgo }));
  };
  const shown = (observed: Observed[], rules?: Rule[]) =>
    propose(observed, rules).flatMap(({ into }) =>
      into.map(({ protocol, ports, peer, target }) =>
        [protocol, ports, Object.values(peer), Object.values(target)].join(" "),
      ),
    );
  expect(shown([flow(1, 3, "tcp", 5432), flow(2, 3, "tcp", 5433), flow(1, 3, "icmp", 0)])).toEqual([
    "tcp 5432-5433 web db",
    "icmp any web db",
  ]);
  // A node without a group: no rule for a single node.
  expect(shown([flow(5, 3, "tcp", 22)])).toEqual(["tcp 22 true db"]);
  // An address without a node.
  expect(shown([flow(0, 3, "tcp", 22)])).toEqual(["tcp 22 true db"]);
  // Attempts that nothing answered are no use.
  const attempt = { flows: 4, answered: 0 };
  expect(propose([flow(1, 3, "tcp", 23, { sent: attempt, received: attempt })])).toMatchObject([
    { what: "removed" },
  ]);
  expect(shown([flow(1, 3, "udp", 514, { sent: attempt, received: attempt })])).toEqual(["udp 514 web db"]);
  const many = Array.from({ length: 40 }, (_, at) => flow(1, 3, "tcp", 1000 + at * at));
  expect(shown(many)).toHaveLength(5);
  expect(propose([flow(1, 3, "other", 0)])).toMatchObject([{ what: "kept" }]);
  // Of equal rules, a marked one stays.
  const marked = { ...all, id: 8, description: "keep: yearly audit" };
  expect(propose([], [all, marked, { ...marked, id: 9 }])).toMatchObject([
    { what: "removed", reason: "it is rule 8 again" },
    { what: "kept", into: [marked] },
    { what: "removed", reason: "it is rule 8 again" },
  ]);
  // What is left of a rule may be a rule already.
  const part: Rule = {
    ...all,
    id: 8,
    protocol: "tcp",
    ports: "22",
    peer: { group: "web" },
    target: { group: "db" },
  };
  expect(propose([flow(1, 3, "tcp", 22)], [all, part])).toMatchObject([
    { what: "removed", reason: "other rules permit all that used it", into: [] },
    { what: "kept", into: [part] },
  ]);
});
