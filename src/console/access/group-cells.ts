// Which group reaches which, and by which rules. Rules about single nodes and networks do not count: they apply to
// some nodes of a group only.

import { trafficOf, type Rule } from "./rules.ts";

export type Cell = {
  /** "tcp 5432", "anything"; an empty list: nothing may pass. */
  traffic: readonly string[];
  /** The rules that let this traffic in, and those that let it out. */
  rules: readonly Rule[];
};

/** Whether a side, as a word, has the nodes of a group. */
const hasGroup = (word: string, group: string) => word === "any" || word === `group:${group}`;

/** The traffic from a node in the group `from` to one in `to`, if each is in that group alone. */
export const cellOf = (rules: readonly Rule[], from: string, to: string): Cell =>
  cellBetween(outOf(rules, from), into(rules, to), from, to);

const outOf = (rules: readonly Rule[], from: string) =>
  rules.filter(({ direction, target }) => direction === "outbound" && hasGroup(target, from));
const into = (rules: readonly Rule[], to: string) =>
  rules.filter(({ direction, target }) => direction === "inbound" && hasGroup(target, to));

/** Traffic needs a rule of each side. `outOfFrom`: the rules that let `from` send; `intoTo`: those that let something reach `to`. */
function cellBetween(outOfFrom: readonly Rule[], intoTo: readonly Rule[], from: string, to: string): Cell {
  const outbound = outOfFrom.filter(({ peer }) => hasGroup(peer, to));
  const inbound = intoTo.filter(({ peer }) => hasGroup(peer, from));
  const pairs = inbound.flatMap((one) =>
    outbound.flatMap((other) => {
      const traffic = common(one, other);
      return traffic === undefined ? [] : [{ traffic, rules: [one, other] }];
    }),
  );
  const anything = pairs.find(({ traffic }) => traffic.protocol === "any" && traffic.ports === "any");
  const shown = anything === undefined ? pairs : [anything];
  const deciding = new Set(pairs.flatMap((pair) => pair.rules));
  return {
    traffic: [...new Set(shown.map(({ traffic }) => trafficOf(traffic)))],
    rules: [...deciding].sort((one, other) => one.id - other.id),
  };
}

/**
 * A row and a column of the matrix: a group, or all groups that no rule names, since they are alike. `all`: its groups; `name`: the
 * first of them; `title`: what the page shows.
 */
export type GroupLine = { name: string; title: string; all: readonly string[] };

/** The lines of the matrix: the groups that a rule names, then the others as one. */
export function linesOf(groups: readonly string[], rules: readonly Rule[]): readonly GroupLine[] {
  const named = new Set(
    rules
      .flatMap(({ peer, target }) => [peer, target])
      .filter((word) => word.startsWith("group:"))
      .map((word) => word.slice("group:".length)),
  );
  const line = (name: string): GroupLine => ({ name, title: name, all: [name] });
  const others = groups.filter((name) => !named.has(name)).toSorted();
  const [first = ""] = others;
  const rest = others.length > 1 ? [{ name: first, title: "rest", all: others }] : others.map(line);
  return [...[...named].sort().map(line), ...rest];
}

/** The changes of a draft: traffic that is new, and traffic that ends. */
export type ChangedCell = Cell & { added: readonly string[]; removed: readonly string[] };

/** The cells of all pairs of groups: the senders' rows first. `before`: the rules that they are compared with. */
export function matrixOf(
  groups: readonly string[],
  rules: readonly Rule[],
  before: readonly Rule[] = rules,
): readonly (readonly ChangedCell[])[] {
  // Each rule is looked at once a group, not once a pair of groups.
  const cellsOf = (all: readonly Rule[]) => {
    const intoGroups = groups.map((to) => into(all, to));
    return groups.map((from) => {
      const out = outOf(all, from);
      return groups.map((to, column) => cellBetween(out, intoGroups[column] ?? [], from, to));
    });
  };
  const cells = cellsOf(rules);
  const cellsBefore = before === rules ? cells : cellsOf(before);
  return cells.map((row, from) =>
    row.map((cell, to) => {
      const trafficBefore = cellsBefore[from]?.[to]?.traffic ?? [];
      return {
        ...cell,
        added: cell.traffic.filter((each) => !trafficBefore.includes(each)),
        removed: trafficBefore.filter((each) => !cell.traffic.includes(each)),
      };
    }),
  );
}

/** What a cell has room for: "5432" of tcp, "udp 53", "any 53" of both, "all", "·" for ping. Ping is left out beside others. */
export function shortTraffic(traffic: readonly string[]): readonly string[] {
  const others = traffic.filter((each) => each !== "icmp");
  if (others.length === 0) return traffic.map(() => "·");
  return others.map((each) =>
    each === "anything" ? "all" : each.replace(/^tcp /, "").replace(/^port /, "any "),
  );
}

export const isChanged = ({ added, removed }: ChangedCell): boolean => added.length + removed.length > 0;

type Traffic = Pick<Rule, "protocol" | "ports">;

/** The traffic that both permit. An ICMP packet has no port, so a rule with ports never covers it. */
export function common(one: Traffic, other: Traffic): Traffic | undefined {
  const protocol = one.protocol === "any" ? other.protocol : one.protocol;
  if (other.protocol !== "any" && other.protocol !== protocol) return undefined;
  const ports = commonPorts(one.ports, other.ports);
  if (ports === undefined || (protocol === "icmp" && ports !== "any")) return undefined;
  return { protocol, ports };
}

function commonPorts(one: string, other: string): string | undefined {
  if (one === "any") return other;
  if (other === "any") return one;
  const [a, b] = [rangeOf(one), rangeOf(other)];
  const first = Math.max(a.first, b.first);
  const last = Math.min(a.last, b.last);
  // Also if one is not a number, while the user types.
  if (!(first <= last)) return undefined;
  return first === last ? String(first) : `${first}-${last}`;
}

function rangeOf(ports: string): Record<"first" | "last", number> {
  const [first = Number.NaN, last = first] = ports.split("-").map(Number);
  return { first, last };
}
