// Sets of packets: which ranges of ports of TCP and UDP pass, and whether ICMP does. Pure.

import { between, type Member, type Parsed, type TestableRules } from "./firewall.ts";
import { portRange, type Rule } from "../../api/rules.ts";

/** Ascending ranges of ports that do not touch. */
type Ranges = readonly (readonly [number, number])[];
export type Access = { tcp: Ranges; udp: Ranges; icmp: boolean };

const maxPort = 65_535;
const allPorts: Ranges = [[1, maxPort]];
export const nothing: Access = { tcp: [], udp: [], icmp: false };

/**
 * Joins ranges that overlap, or whose beginning is at most `step` above the end of another. With 1 the result covers the same ports;
 * with more it also covers the gaps that it closes.
 */
export function mergeRanges(ranges: readonly (readonly [number, number])[], step = 1): Ranges {
  const result: [number, number][] = [];
  for (const [first, last] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const end = result.at(-1);
    if (end !== undefined && first <= end[1] + step) end[1] = Math.max(end[1], last);
    else result.push([first, last]);
  }
  return result;
}

function intersectRanges(a: Ranges, b: Ranges): Ranges {
  const result: [number, number][] = [];
  let [i, j] = [0, 0];
  for (;;) {
    const [one, other] = [a[i], b[j]];
    if (one === undefined || other === undefined) return result;
    const [low, high] = [Math.max(one[0], other[0]), Math.min(one[1], other[1])];
    if (low <= high) result.push([low, high]);
    // The range that ends first cannot overlap any further one.
    if (one[1] < other[1]) i++;
    else j++;
  }
}

/** The ports that are in none of the ranges. */
function complement(ranges: Ranges): Ranges {
  const gaps: [number, number][] = [];
  let next = 1;
  for (const [first, last] of ranges) {
    if (next < first) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= maxPort) gaps.push([next, maxPort]);
  return gaps;
}

export function intersect(a: Access, b: Access): Access {
  return { tcp: intersectRanges(a.tcp, b.tcp), udp: intersectRanges(a.udp, b.udp), icmp: a.icmp && b.icmp };
}

export function subtract(a: Access, b: Access): Access {
  return intersect(a, { tcp: complement(b.tcp), udp: complement(b.udp), icmp: !b.icmp });
}

export function isNothing({ tcp, udp, icmp }: Access): boolean {
  return tcp.length === 0 && udp.length === 0 && !icmp;
}

/** Bounds the text: an answer has one for each pair of nodes, and rules may permit every second port. */
const shownRanges = 20;

/**
 * The text that users read: `any`, or `icmp`, `tcp/5432`, `udp/any`. The first ranges, and how many more there are.
 */
export function showAccess(access: Access): string[] {
  if (isAllPorts(access.tcp) && isAllPorts(access.udp) && access.icmp) return ["any"];
  return [
    ...(access.icmp ? ["icmp"] : []),
    ...showRanges("tcp", access.tcp),
    ...showRanges("udp", access.udp),
  ];
}

const isAllPorts = ([range]: Ranges) => range !== undefined && range[0] === 1 && range[1] === maxPort;

function showRanges(protocol: string, ranges: Ranges): string[] {
  if (isAllPorts(ranges)) return [`${protocol}/any`];
  const shown = ranges
    .slice(0, shownRanges)
    .map(([first, last]) => `${protocol}/${first === last ? first : `${first}-${last}`}`);
  const more = ranges.length - shownRanges;
  return more > 0 ? [...shown, `${more} more ranges of ${protocol} ports`] : shown;
}

/** The packets that a rule or test of this protocol and these ports covers. */
export function accessOf(protocol: Rule["protocol"], ports: string): Access {
  const range = portRange(ports) ?? "any";
  const ranges: Ranges = range === "any" ? allPorts : [range];
  return {
    tcp: protocol === "tcp" || protocol === "any" ? ranges : [],
    udp: protocol === "udp" || protocol === "any" ? ranges : [],
    icmp: (protocol === "icmp" || protocol === "any") && range === "any",
  };
}

/** All that may pass from one node to another: the sender lets it out, and the receiver lets it in. */
export function accessBetween(rules: TestableRules, from: Member, to: Member): Access {
  const sent = rules.outbound.filter(between(from, to)).map(accessOfParsed);
  const accepted = rules.inbound.filter(between(to, from)).map(accessOfParsed);
  return intersect(unionOf(sent), unionOf(accepted));
}

function accessOfParsed({ protocol, ports }: Parsed): Access {
  // Ports that cannot be read, stored by an earlier version.
  if (ports === undefined) return nothing;
  return accessOf(protocol, ports === "any" ? ports : ports.join("-"));
}

export function unionOf(sets: readonly Access[]): Access {
  return {
    tcp: mergeRanges(sets.flatMap(({ tcp }) => tcp)),
    udp: mergeRanges(sets.flatMap(({ udp }) => udp)),
    icmp: sets.some(({ icmp }) => icmp),
  };
}

/** The cost of comparing with this set, in steps of comparison-limit.ts. */
export function costOf({ tcp, udp }: Access): number {
  return stepsOfSet + stepsOfRange * (tcp.length + udp.length);
}

const stepsOfSet = 250;
const stepsOfRange = 20;
