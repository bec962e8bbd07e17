// What the page Access says about kinds of nodes, and about the network between two of them.

import { expect, test } from "bun:test";
import {
  accessWords,
  classWords,
  failText,
  firstOf,
  gainersFirst,
  moreKinds,
  noneText,
  pairsWords,
  shortPairs,
  spaced,
} from "../../../src/console/access/class-words.ts";
import {
  conclusionOf,
  ruledOn,
  nodeFacts,
  pathFact,
  trafficFrom,
  trafficIn,
  trafficText,
  type LinkedNode,
  type Path,
  type Traffic,
} from "../../../src/console/access/network-between.ts";
import { numberText } from "../../../src/console/words/numbers.ts";

const nodes = Array.from({ length: 20 }, (_, at) => ({
  groups: [at < 12 ? "web" : "db", ...(at % 2 === 0 ? ["eu"] : [])],
}));
const names = ["a", "b", "c"];

test("nodes are named by their group when they are exactly the group", () => {
  const words = (groups: readonly string[], count: number) =>
    classWords({ groups, nodes: names, count }, nodes);
  expect(words(["web"], 12)).toBe("12 nodes in web");
  expect(words(["web", "eu"], 6)).toBe("6 nodes in web and eu");
  // The others are a class of their own.
  expect(words(["web"], 6)).toBe("6 of 12 nodes in web (a, b, c, …)");
  expect(words([], 20)).toBe("all 20 nodes");
  expect(words(["user:ada@example.org"], 5)).toBe("a, b, c and 2 more");
  // The group has fewer nodes in the list, which is older than the plan.
  expect(words(["db"], 9)).toBe("a, b, c and 6 more");
  expect(classWords({ groups: ["web"], nodes: ["a", "b"], count: 2 }, nodes)).toBe("a, b");
  // By their owner, nodes are in groups, too.
  const owned = nodes.map(() => ({ groups: [], owner_groups: ["staff", "user:id.7"] }));
  expect(classWords({ groups: ["staff"], nodes: names, count: 20 }, [...owned, { groups: [] }])).toBe(
    "20 nodes in staff",
  );
});

test("networks behind nodes are no nodes", () => {
  const behind = ["10.1.0.0/24 behind gw", "10.2.0.0/24 behind gw", "10.3.0.0/24 behind gw2"];
  const words = (groups: readonly string[], count: number) =>
    classWords({ groups, nodes: behind, count, are: "networks" }, nodes);
  expect(words(["web"], 3)).toBe(behind.join(", "));
  // As many as there are nodes, in the group and in all.
  expect(words(["web"], 12)).toBe(`12 networks behind nodes in web (${behind.join(", ")}, …)`);
  expect(words([], 20)).toBe(`20 networks behind nodes (${behind.join(", ")}, …)`);
  const side = { groups: [], nodes: names, count: 1 };
  const networks = { ...side, are: "networks" } as const;
  const of = (pairs: number, to: typeof side | typeof networks) => ({
    pairs,
    gains: ["icmp"],
    loses: [],
    from: side,
    to,
  });
  expect(pairsWords({ classes: [of(2, side), of(1, networks)], classes_left_out: 0 })).toBe(
    "3 pairs of nodes, and of networks behind them, gain access, 0 lose it",
  );
});

test("one node gains, several gain, and traffic is written as in sentences", () => {
  expect([accessWords(1, "gain", ["icmp", "tcp/22"]), accessWords(2, "gain", ["icmp"])]).toEqual([
    "gains icmp, tcp 22",
    "gain icmp",
  ]);
  expect([accessWords(1, "lose", ["icmp"]), accessWords(70, "lose", ["icmp"])]).toEqual([
    "loses icmp",
    "lose icmp",
  ]);
  expect(spaced("a may reach b on tcp/22, but udp/any is refused, as is 192.168.0.0/24.")).toBe(
    "a may reach b on tcp 22, but udp any is refused, as is 192.168.0.0/24.",
  );
});

test("the bar counts the pairs that gain and those that lose; a pair may do both", () => {
  const [from, to] = [
    { groups: [], nodes: [], count: 1 },
    { groups: [], nodes: [], count: 1 },
  ];
  const of = (pairs: number, gains: readonly string[], loses: readonly string[]) => ({
    pairs,
    gains,
    loses,
    from,
    to,
  });
  const classes = [of(767, ["tcp/22"], []), of(1, ["tcp/22"], ["icmp"])];
  expect(pairsWords({ classes, classes_left_out: 0 })).toBe("768 pairs of nodes gain access, 1 loses it");
  expect(pairsWords({ classes: classes.slice(1), classes_left_out: 3 })).toBe(
    "at least 1 pair of nodes gains access, 1 loses it",
  );
  expect(pairsWords({ classes: [], classes_left_out: 0 })).toBe("0 pairs of nodes gain access, 0 lose it");
  const short = (left: number) => (kind: "gain" | "lose") =>
    shortPairs({ classes, classes_left_out: left }, kind);
  expect([short(0)("gain"), short(3)("lose")]).toEqual(["768 pairs gain", "At least 1 pair loses"]);
  expect(shortPairs({ classes: [], classes_left_out: 0 }, "gain")).toBeUndefined();
  expect(noneText({ classes_left_out: 0 }, "lose")).toBe("No node loses access");
  expect(noneText({ classes_left_out: 1 }, "lose")).toBe("No listed node loses access");
  expect([failText(1, 1), failText(1, 5), failText(2, 5)]).toEqual([
    "The test fails",
    "1 of 5 tests fails",
    "2 of 5 tests fail",
  ]);
});

test("who only gains stands first, who only loses last; large numbers have separators", () => {
  const effect = (name: string, gains: readonly string[], loses: readonly string[]) => ({
    name,
    gains,
    loses,
  });
  const mixed = [
    effect("ci", [], ["tcp/22"]),
    effect("web", ["tcp/22"], []),
    effect("db", ["udp/53"], ["icmp"]),
    effect("mail", [], ["icmp"]),
    effect("relay", ["icmp"], []),
  ];
  expect(gainersFirst(mixed).map(({ name }) => name)).toEqual(["web", "relay", "db", "ci", "mail"]);
  expect(numberText(39_932)).toBe("39,932");
  expect(classWords({ groups: [], nodes: names, count: 2500 }, nodes)).toBe("a, b, c and 2,497 more");
});

const node = (name: string, more: Partial<LinkedNode> = {}): LinkedNode => ({
  id: 1,
  name,
  state: "active",
  online: true,
  phone: null,
  applied_config_version: 9,
  config_version: 9,
  last_checkin_at: "2026-11-23T10:00:00Z",
  revoked_at: null,
  ...more,
});
const direct: Path = {
  peer: 2,
  path: "direct",
  relays: [],
  probe: "answers",
  rtt_ms: 4,
  reported_at: "2026-11-23T09:00:00Z",
  relays_away: false,
};

test("the answer joins what the rules say with what the network does", () => {
  const [a, b] = [node("a"), node("b")];
  const say = (from: LinkedNode, to: LinkedNode, isAllowed = true, paths: readonly Path[] = [direct]) =>
    conclusionOf({ isAllowed, what: "it", from, to, paths })[1];
  expect(say(a, b)).toBe("Yes: the rules allow it, and nothing is known to stand in the way.");
  expect(say(a, b, false)).toBe("No: the rules do not allow it.");
  expect(say(a, node("b", { state: "revoked", online: false }), false)).toBe("No: b is revoked.");
  expect(say(node("a", { state: "pending" }), b)).toBe("No: a is not registered.");
  expect(say(node("a", { online: false }), b)).toBe("Not now: the rules allow it, but a is away.");
  expect(say(node("a", { online: false }), node("b", { online: false }))).toBe(
    "Not now: the rules allow it, but a and b are away.",
  );
  expect(say(a, b, true, [direct, { ...direct, probe: "broken" }])).toBe(
    "Not now: the rules allow it, but the path between them is broken.",
  );
  expect(say(a, b, true, [{ ...direct, path: "relayed", relays: ["r1"], relays_away: true }])).toBe(
    "Perhaps: the rules allow it, but the relay of the path between them is away.",
  );
  expect(say(a, node("b", { applied_config_version: 3 }))).toBe(
    "Perhaps: the rules allow it, but b has not applied the newest ones.",
  );
  // A phone never checks in.
  const phone = node("b", {
    online: false,
    phone: { system: "ios", imported_at: "2026-11-01T00:00:00Z", import_by: "2099-01-01T00:00:00Z" },
  });
  expect(say(a, phone)).toStartWith("Yes");
});

test("the traffic of a question is typed as sentences write it; a port alone is one of tcp", () => {
  const read = (text: string) => trafficText(trafficIn(text));
  expect(["tcp 443", "443", "UDP/53", "udp", "icmp", "anything", "any", ""].map(read)).toEqual([
    "tcp 443",
    "tcp 443",
    "udp 53",
    "udp",
    "icmp",
    "",
    "",
    "",
  ]);
  // What has no meaning is shown as a port with a fault, not dropped.
  expect(trafficIn("http")).toEqual({ protocol: "tcp", port: "http" });
  expect(trafficIn("tcp 80 81")).toEqual({ protocol: "tcp", port: "80 81" });
  // An address may hold anything.
  expect(trafficFrom("$(reboot)", "22")).toEqual({ protocol: "tcp", port: "22" });
  expect(trafficFrom("icmp", "22")).toEqual({ protocol: "icmp", port: "" });
});

test("without a port, the question is about all of its protocol", () => {
  const answer = { allowed: false, permitted: ["icmp", "tcp/5432"] };
  const ruled = (protocol: Traffic["protocol"], port = "") => ruledOn({ protocol, port }, answer);
  expect(ruled("any")).toEqual({ isAllowed: true, what: "icmp, tcp 5432" });
  expect(ruled("tcp")).toEqual({ isAllowed: true, what: "tcp 5432" });
  expect(ruled("udp")).toEqual({ isAllowed: false, what: "udp" });
  expect(ruled("tcp", "22")).toEqual({ isAllowed: false, what: "it" });
  expect(ruledOn({ protocol: "any", port: "" }, { allowed: false, permitted: [] })).toEqual({
    isAllowed: false,
    what: "anything",
  });
  expect(ruledOn({ protocol: "udp", port: "" }, { allowed: true, permitted: ["any"] })).toEqual({
    isAllowed: true,
    what: "everything",
  });
});

test("each node has its state with its age, and whether it has the newest rules", () => {
  const texts = (one: LinkedNode) => nodeFacts(one).map(({ state, words, at }) => [state, words, at]);
  expect(texts(node("a"))).toEqual([
    ["online", "online, last check-in", "2026-11-23T10:00:00Z"],
    ["online", "has applied the newest rules", null],
  ]);
  expect(texts(node("a", { online: false, applied_config_version: 1 }))).toEqual([
    ["away", "away, last check-in", "2026-11-23T10:00:00Z"],
    [
      "limited",
      "has applied configuration 1; the newest is 9: rules that were saved since are not in force on it",
      null,
    ],
  ]);
  const revoked = node("a", { state: "revoked", online: false, revoked_at: "2026-11-20T00:00:00Z" });
  expect(texts(revoked)).toEqual([["revoked", "revoked", "2026-11-20T00:00:00Z"]]);
});

test("the last known path has its age, and of a node that is away it is old news", () => {
  const [a, b] = [node("a"), node("b")];
  expect(pathFact(a, b, undefined)).toBeUndefined();
  expect(pathFact(a, b, direct)).toEqual({
    state: "online",
    about: "a to b",
    words: "path direct (4 ms); last change",
    at: "2026-11-23T09:00:00Z",
  });
  expect(pathFact(node("a", { online: false }), b, { ...direct, probe: "broken" })).toMatchObject({
    state: "away",
    words: "path broken: b does not answer, when it was last here; last change",
  });
  expect(pathFact(a, b, { ...direct, path: "relayed", relays: ["r1"], rtt_ms: null })).toMatchObject({
    state: "relayed",
    words: "path relayed by r1; last change",
  });
  expect(pathFact(a, b, { ...direct, path: "relayed", relays: ["r1"], relays_away: true })).toMatchObject({
    state: "limited",
    words: "path relayed by r1: away now; last change",
  });
});

test("a column has the first rows of its kind, and counts only other rows of its kind", () => {
  const gain = { gains: ["icmp"], loses: [] };
  const both = { gains: ["icmp"], loses: ["tcp/22"] };
  const of = (kind: "gain" | "lose") => firstOf([gain, both, gain, gain], kind, 2);
  expect([of("gain"), of("lose")]).toEqual([
    { rows: [gain, both], more: 2 },
    { rows: [both], more: 0 },
  ]);
  expect([moreKinds(1), moreKinds(2)]).toEqual(["1 more kind of nodes", "2 more kinds of nodes"]);
});
