// An import never permits a packet that the original does not. An evaluator of its own reads the original: who a word means,
// and which packets pass, as Tailscale's packet filter does it. The nodes and the policies are made here; they hold the
// constructs of the policies that headscale keeps as test data.

import { expect, test } from "bun:test";
import { networkContains, parseAddress, parseNetwork } from "../../../src/base/ip.ts";
import { ownerGroup } from "../../../src/protocol/users-groups.ts";
import { atOnce } from "../../../src/server/http/heavy-work.ts";
import { importPolicy } from "../../../src/server/policy-files/import-policy.ts";
import { decide, testable, type Member } from "../../../src/server/policy/firewall.ts";
import { parsePolicy } from "../../../src/server/policy/read-policy.ts";
import { makeReach } from "../../../src/server/policy/reach.ts";
import { accessBetween, isNothing, subtract } from "../../../src/server/policy/packets.ts";
import { resolvePolicy } from "../../../src/server/policy/resolve.ts";

const overlay = ["10.77.0.0/16", "fd77::/64"];

/** `lan`: an address behind the node, in the approved route. */
type Node = { name: string; tags: string[]; user?: string; there: [string, string]; lan?: string };
const nodes: Node[] = [
  { name: "web", tags: ["tag:a"], there: ["100.64.0.1", "fd7a:115c:a1e0::1"] },
  { name: "db", tags: ["tag:b"], there: ["100.64.0.2", "fd7a:115c:a1e0::2"] },
  { name: "both", tags: ["tag:a", "tag:b"], there: ["100.64.0.3", "fd7a:115c:a1e0::3"] },
  { name: "gate", tags: ["tag:router"], there: ["100.64.0.4", "fd7a:115c:a1e0::4"], lan: "192.168.5.9" },
  { name: "ann", tags: [], user: "ann@example.org", there: ["100.64.0.5", "fd7a:115c:a1e0::5"] },
  { name: "ann-phone", tags: [], user: "ann@example.org", there: ["100.64.0.6", "fd7a:115c:a1e0::6"] },
  { name: "ben", tags: [], user: "ben@example.org", there: ["100.64.0.7", "fd7a:115c:a1e0::7"] },
];
const groups = { "group:dev": ["ann@example.org", "ben@example.org"], "group:ops": ["ann@example.org"] };
const hosts = { office: "192.168.5.0/24", ten: "10.0.0.0/8", node: "100.64.0.1", out: "203.0.113.0/24" };
const base = {
  groups,
  hosts,
  tagOwners: { "tag:a": [], "tag:b": [], "tag:router": [] },
  autoApprovers: { routes: { "192.168.5.0/24": ["tag:router"] } },
};

type Packet = { protocol: "tcp" | "udp" | "icmp"; port?: number };
const packets: Packet[] = [
  { protocol: "icmp" },
  ...(["tcp", "udp"] as const).flatMap((protocol) =>
    [1, 22, 53, 80, 443, 8000, 8005, 8011, 65_535].map((port) => ({ protocol, port })),
  ),
];

/** Who sends or receives: a node, or a machine in the network behind one. */
type End = { node: Node; isBehind: boolean };

/** Whether the word means the address of this end there. */
function means(word: string, { node, isBehind }: End): boolean {
  if (word === "*") return true;
  const text = Object.entries(hosts).find(([name]) => name === word)?.[1] ?? word;
  const network = parseNetwork(text.includes("/") ? text : `${text}/${text.includes(":") ? 128 : 32}`);
  if (network !== undefined) {
    const own = isBehind ? [node.lan ?? ""] : node.there;
    return own.some((each) => {
      const address = parseAddress(each);
      return address !== undefined && networkContains(network, address);
    });
  }
  if (isBehind) return false;
  const members = Object.entries(groups).find(([name]) => name === word)?.[1];
  if (members !== undefined) return node.user !== undefined && members.includes(node.user);
  if (word === "autogroup:member") return node.user !== undefined;
  if (word === "autogroup:tagged") return node.tags.length > 0;
  if (word.includes("@")) return node.user === word;
  return node.tags.includes(word);
}

type Rule = { src: string[]; dst: string; ports: string; protocol: string };

/** Rules of the original, one for each destination. */
function rulesOf(policy: Policy): Rule[] {
  const acls = (policy.acls ?? []).flatMap(({ src, dst, proto = "" }) =>
    dst.map((each): Rule => {
      const at = each.lastIndexOf(":");
      const word = each.slice(0, at).replace(/^\[(.*)\]$/, "$1");
      return { src, dst: word, ports: each.slice(at + 1), protocol: String(proto) };
    }),
  );
  const grants = (policy.grants ?? []).flatMap(({ src, dst, ip, via }) =>
    via === undefined
      ? dst.flatMap((word) =>
          ip.map((each): Rule => {
            const [ports = "", protocol = ""] = each.split(":").toReversed();
            return { src, dst: word, ports, protocol };
          }),
        )
      : [],
  );
  if (policy.acls === undefined && policy.grants === undefined)
    return [{ src: ["*"], dst: "*", ports: "*", protocol: "" }];
  return [...acls, ...grants];
}

function permits(policy: Policy, from: End, to: End, packet: Packet): boolean {
  return rulesOf(policy).some(({ src, dst, ports, protocol }) => {
    const isSelf = dst === "autogroup:self";
    const isOwn =
      from.node.user !== undefined && from.node.user === to.node.user && !from.isBehind && !to.isBehind;
    if (!src.some((word) => means(word, from))) return false;
    if (isSelf ? !isOwn : !means(dst, to)) return false;
    // The filter passes ICMP where anything is permitted between the two addresses.
    if (packet.protocol === "icmp") return true;
    const names = { tcp: ["", "tcp", "6"], udp: ["", "udp", "17"] };
    if (!names[packet.protocol].includes(protocol)) return false;
    return ports.split(",").some((each) => {
      const [first = 0, last = first] = each === "*" ? [0, 65_535] : each.split("-").map(Number);
      return (packet.port ?? 0) >= first && (packet.port ?? 0) <= last;
    });
  });
}

type Policy = {
  acls?: { action: "accept"; proto?: string | number; src: string[]; dst: string[] }[];
  grants?: { src: string[]; dst: string[]; ip: string[]; via?: string[] }[];
};

/** The nodes with the groups of their tags and users, as the administrator is told to give them. */
const members = nodes.map(({ name, tags, user }, at): Member => {
  const own = Object.entries(groups).flatMap(([group, users]) =>
    user !== undefined && users.includes(user) ? [group.slice("group:".length)] : [],
  );
  const owner = user === undefined ? [] : [ownerGroup(user.startsWith("ann") ? 1 : 2)];
  const tagged = tags.map((tag) => tag.slice("tag:".length));
  return {
    id: at + 1,
    name,
    ip: `10.77.0.${at + 1}`,
    ip6: `fd77::${at + 1}`,
    groups: [...tagged, ...own, ...owner],
  };
});

/** An end as the engine sees it: the certificate of the node, with the address of the packet. */
function memberOf({ node, isBehind }: End): Member {
  const member = members[nodes.indexOf(node)];
  if (member === undefined) throw new Error("no such node");
  return isBehind ? { ...member, ip: node.lan ?? "", ip6: null } : member;
}

const ends = nodes.flatMap((node): End[] => [
  { node, isBehind: false },
  ...(node.lan === undefined ? [] : [{ node, isBehind: true }]),
]);

function ruleSet(policy: Policy) {
  const { policy: text } = atOnce(importPolicy(JSON.stringify({ ...base, ...policy }), overlay));
  const known = { nodes: new Map(), groups: new Set<string>(), users: new Map(), providers: [] };
  const { rules = [] } = atOnce(resolvePolicy(atOnce(parsePolicy(text)), known));
  return rules.map((rule, at) => ({ ...rule, id: at + 1, description: "" }));
}

/** How many packets pass here. Throws for one that does not pass there. */
function compare(policy: Policy): number {
  const rules = ruleSet(policy);
  // `any` of the engine passes GRE, SCTP and others, which the original passes only where it names them.
  expect(rules.filter(({ direction, protocol }) => direction === "inbound" && protocol === "any")).toEqual(
    [],
  );
  const parsed = atOnce(testable(rules));
  const reach = atOnce(makeReach({ rules, members }));
  const classOf = (member: Member) => reach.classes.find((each) => each.members.includes(member));
  let passing = 0;
  for (const from of ends)
    for (const to of ends) {
      if (from.node === to.node) continue;
      const [a, b] = [memberOf(from), memberOf(to)];
      for (const packet of packets) {
        if (!decide(parsed, a, b, packet).allowed) continue;
        passing++;
        const label = (end: End) => `${end.isBehind ? "behind " : ""}${end.node.name}`;
        const what = `${label(from)} to ${label(to)}: ${packet.protocol}/${packet.port ?? ""}`;
        if (!permits(policy, from, to, packet)) throw new Error(`The import permits more: ${what}`);
      }
      const [sender, receiver] = [classOf(a), classOf(b)];
      if (sender === undefined || receiver === undefined) continue;
      const isSame = from.node.user !== undefined && from.node.user === to.node.user;
      const reached = reach.access(sender, receiver, isSame ? "same" : "different");
      expect(isNothing(subtract(reached, accessBetween(parsed, a, b)))).toBe(true);
    }
  return passing;
}

const accept = (src: string[], dst: string[], proto?: string | number) => ({
  action: "accept" as const,
  src,
  dst,
  ...(proto === undefined ? {} : { proto }),
});

test.each<[string, Policy, boolean]>([
  ["no rules at all", {}, true],
  ["an empty list", { acls: [] }, false],
  ["tags, ports and ranges", { acls: [accept(["tag:a"], ["tag:b:22,8000-8010"])] }, true],
  [
    "one protocol",
    { acls: [accept(["tag:a"], ["tag:b:*"], "tcp"), accept(["tag:b"], ["tag:a:53"], 17)] },
    true,
  ],
  ["ports from zero", { acls: [accept(["tag:a"], ["tag:b:0-443"], "tcp")] }, true],
  ["ICMP of IPv6", { acls: [accept(["tag:a"], ["tag:b:*"], "ipv6-icmp")] }, true],
  ["other protocols", { acls: [accept(["*"], ["*:*"], "gre"), accept(["*"], ["*:*"], 132)] }, false],
  ["everything", { acls: [accept(["*"], ["*:*"])] }, true],
  ["groups of users", { acls: [accept(["group:ops"], ["group:dev:443", "tag:a:22"])] }, true],
  ["own nodes", { acls: [accept(["autogroup:member"], ["autogroup:self:*"])] }, true],
  ["own nodes of a group", { acls: [accept(["group:ops"], ["autogroup:self:22"])] }, true],
  ["a wide network over the overlay", { acls: [accept(["10.0.0.0/8"], ["tag:a:22"])] }, false],
  ["a host name over the overlay", { acls: [accept(["ten"], ["*:*"])] }, false],
  ["all of IPv4 and IPv6", { acls: [accept(["0.0.0.0/0", "::/0", "fd00::/8"], ["tag:a:*"])] }, false],
  [
    "addresses of Tailscale",
    { acls: [accept(["node", "100.64.0.0/10", "fd7a:115c:a1e0::/48"], ["tag:b:*"])] },
    false,
  ],
  ["a network behind a router as a source", { acls: [accept(["office"], ["tag:b:443"])] }, true],
  ["a network behind a router as a destination", { acls: [accept(["tag:a"], ["office:443"])] }, false],
  ["to a router", { acls: [accept(["tag:a"], ["tag:router:22"])] }, false],
  ["from a router", { acls: [accept(["tag:router"], ["tag:a:22"])] }, false],
  [
    "to a router and what is behind it",
    { acls: [accept(["tag:a"], ["tag:router:22", "192.168.5.0/24:22"])] },
    false,
  ],
  ["to the internet", { acls: [accept(["*"], ["autogroup:internet:*"])] }, false],
  [
    "roles",
    { acls: [accept(["autogroup:tagged"], ["tag:a:22"]), accept(["ann@example.org"], ["tag:a:22"])] },
    false,
  ],
  [
    "a grant",
    { grants: [{ src: ["tag:a"], dst: ["tag:b"], ip: ["tcp:443", "udp:53", "icmp:*", "80"] }] },
    true,
  ],
  ["a grant of everything", { grants: [{ src: ["*"], dst: ["*"], ip: ["*"] }] }, true],
  [
    "a grant by way of a router",
    { grants: [{ src: ["*"], dst: ["office"], ip: ["*"], via: ["tag:router"] }] },
    false,
  ],
  ["a grant of other protocols", { grants: [{ src: ["*"], dst: ["*"], ip: ["sctp:*", "47:*"] }] }, false],
])("%s", (_, policy, isImported) => {
  expect(compare(policy) > 0).toBe(isImported);
});

test("any mixture of sources, destinations, ports and protocols permits no more", () => {
  // A fixed sequence: a failure is the same the next time.
  let state = 7;
  const pick = <T>(list: readonly T[]): T => {
    state = (state * 48_271) % 2_147_483_647;
    const found = list[state % list.length];
    if (found === undefined) throw new Error("an empty list");
    return found;
  };
  const sides = [
    "*",
    "tag:a",
    "tag:b",
    "tag:router",
    "group:dev",
    "group:ops",
    "office",
    "ten",
    "out",
    "node",
  ];
  const sources = [...sides, "autogroup:member", "autogroup:tagged", "10.77.0.0/24", "fd77::/32", "::/0"];
  const targets = [...sides, "autogroup:self", "autogroup:internet", "192.168.5.9"];
  const ports = ["*", "22", "0-443", "8000-8010,53", "0-65535", "443-22", "0"];
  for (let round = 0; round < 60; round++) {
    const acls = Array.from({ length: 1 + (round % 3) }, () =>
      accept(
        [pick(sources), pick(sources)],
        [`${pick(targets)}:${pick(ports)}`, `${pick(targets)}:${pick(ports)}`],
        pick<string | number>(["", "tcp", "udp", "icmp", 58, "gre"]),
      ),
    );
    const grants = [
      { src: [pick(sources)], dst: [pick(targets)], ip: [pick(["*", "tcp:443", "22", "udp:*", "sctp:*"])] },
    ];
    compare(round % 2 === 0 ? { acls } : { acls, grants });
  }
});
