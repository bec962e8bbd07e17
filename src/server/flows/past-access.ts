// Decides what a node could reach of another one at a moment, for report-past.ts: by the rules of that moment, and by the
// certificates by which peers knew the nodes. Pure.

import type { PastQuery, PastReport } from "../../api/history/past.ts";
import type { Rule } from "../../api/rules.ts";
import { between, decide, type Member, type Parsed, type TestableRules } from "../policy/firewall.ts";
import { accessBetween, accessOf, intersect, nothing, showAccess, subtract } from "../policy/packets.ts";

/** The packet that is asked about; ICMP has no ports. Undefined: everything is asked for, of one protocol or of all. */
export const packetOf = ({ protocol = "tcp", port }: PastQuery) =>
  port === undefined && protocol !== "icmp" ? undefined : { protocol, port };

/** `certificates`: those with which peers accepted a node. */
export type Certificates = PastReport["access"][number]["certificates"];

type Pair = {
  from: Member;
  to: Member;
  asked: PastQuery;
  senderCertificates: Certificates;
  receiverCertificates: Certificates;
};
type Access = PastReport["access"][number];
/** `ruleIds`: the rules by which it was permitted. */
type Decided = Omit<Access, "from" | "to" | "certificates"> & { ruleIds: readonly (number | null)[] };
export type Found = { access: Access; ruleIds: Decided["ruleIds"] };
/**
 * The sender as peers know it by one certificate. `former`: part of a sentence about a certificate with groups that the node had
 * left; undefined: the node as it was at that moment.
 */
type Sender = { member: Member; former: string | undefined };

/** Decides what a node could reach of another one, by the rules and certificates of that moment. */
export function decideAccess(rules: TestableRules, pair: Pair): Found {
  const { from, to, senderCertificates } = pair;
  const { ruleIds, ...verdict } = decidePair(rules, pair);
  const nodes = { from: { id: from.id, name: from.name }, to: { id: to.id, name: to.name } };
  return { access: { ...nodes, certificates: senderCertificates, ...verdict }, ruleIds };
}

function decidePair(
  rules: TestableRules,
  { from, to, asked, senderCertificates, receiverCertificates }: Pair,
): Decided {
  if (senderCertificates.length === 0) return nothingBy(`${from.name} had no valid certificate.`);
  if (receiverCertificates.length === 0) return nothingBy(`${to.name} had no valid certificate.`);
  const packet = packetOf(asked);
  const senders = sendersOf(from, senderCertificates);
  return packet === undefined
    ? everything(rules, senders, to, asked.protocol ?? "any")
    : onePacket(rules, senders, to, packet);
}

const nothingBy = (reason: string): Decided => {
  return { allowed: false, rule_id: null, outbound_rule_id: null, reason, ruleIds: [] };
};

/**
 * Peers know the groups of a node by its certificate: one that was made before the node left a group still has it, until it is
 * blocked.
 */
function sendersOf(from: Member, certificates: Certificates): [Sender, ...Sender[]] {
  const former = certificates.flatMap(({ fingerprint, groups }): Sender[] =>
    groups.every((group) => from.groups.includes(group))
      ? []
      : [
          {
            member: { ...from, groups },
            former: `but its certificate ${fingerprint.slice(0, 16)}… still had it`,
          },
        ],
  );
  return [{ member: from, former: undefined }, ...former];
}

function onePacket(
  rules: TestableRules,
  senders: [Sender, ...Sender[]],
  to: Member,
  packet: Parameters<typeof decide>[3],
): Decided {
  const verdicts = senders.map(({ member, former }) => {
    const verdict = decide(rules, member, to, packet);
    const left = former === undefined ? "" : ` The node had left the group, ${former}.`;
    return { ...verdict, reason: `${verdict.reason}${left}` };
  });
  // If none is allowed, the reason is that for the node as it was, without a former certificate.
  const verdict = verdicts.find(({ allowed }) => allowed) ?? decide(rules, senders[0].member, to, packet);
  return { ...verdict, ruleIds: [verdict.rule_id, verdict.outbound_rule_id] };
}

/** All that was permitted, and what only certificates from before the node left a group still permitted. */
function everything(
  rules: TestableRules,
  senders: [Sender, ...Sender[]],
  to: Member,
  protocol: Rule["protocol"],
): Decided {
  const wanted = accessOf(protocol, "any");
  const isAbout = (rule: Parsed) => protocol === "any" || ["any", protocol].includes(rule.protocol);
  const reasons: string[] = [];
  const permitted = new Set<string>();
  const ruleIds: number[] = [];
  /** What the node was permitted with its groups of that moment: the first sender. */
  let current = nothing;
  for (const { member, former } of senders) {
    const access = intersect(accessBetween(rules, member, to), wanted);
    const more = showAccess(subtract(access, current));
    if (former === undefined) current = access;
    if (more.length === 0) continue;
    const listed = more.join(", ");
    reasons.push(
      former === undefined
        ? `The rules permit ${listed}.`
        : `The node had left a group, ${former}, and with it ${listed}.`,
    );
    for (const each of more) permitted.add(each);
    const out = rules.outbound.filter(isAbout).filter(between(member, to));
    const into = rules.inbound.filter(isAbout).filter(between(to, member));
    ruleIds.push(...[...out, ...into].map(({ id }) => id));
  }
  const none = `The rules permit nothing from ${senders[0].member.name} to ${to.name}.`;
  return {
    ...nothingBy(reasons.join(" ") || none),
    allowed: permitted.size > 0,
    permitted: [...permitted],
    ruleIds,
  };
}
