// The schema of policy files. resolve.ts turns names into ids.

import { maxEmailLength } from "../../api/values.ts";
import { maxAliases } from "../../api/names.ts";
import * as v from "valibot";
import { maxFileRules } from "../../api/policy.ts";
import { strictRecord, withoutList } from "../../base/strict-record.ts";
import { groupName, GroupName, lowerCaseLabel, NodeName, listOf } from "../../protocol/values.ts";
import { parseNetwork } from "../../base/ip.ts";
import { Ports, Protocol, selfSentence } from "../../api/rules.ts";
import { comparedText, foreignText } from "../../base/text.ts";

// Patterns of the words that stand for nodes, and the expressions for whole words.
const oneNode = `node:${lowerCaseLabel}`;
const someMembers = `${oneNode}|user:[^\\s@]+@[^\\s@]+|idp:\\S(.{0,248}\\S)?`;
const someNodes = `any|group:${groupName}|${someMembers}`;
const nodePattern = new RegExp(`^${oneNode}$`);
const memberPattern = new RegExp(`^(${someMembers})$`);
const sidePattern = new RegExp(`^(${someNodes})$`);
const peerPattern = new RegExp(`^(self|${someNodes}|[0-9A-Fa-f.:]+/\\d{1,3})$`);
const targetPattern = new RegExp(`^(${someNodes}|network:[0-9a-f.:]+/\\d{1,3})$`);

/** For words that begin like a known one but are wrong: the sentence of the first pattern that fits is the error. */
const hints: readonly [beginning: RegExp, sentence: string][] = [
  [/^user:/, "Enter a member as user:EMAIL: the nodes that the member owns."],
  [/^self$/, selfSentence],
  [/^provider:/, "Enter a group of an identity provider as idp:GROUP."],
  [/^idp:/, "Enter idp:GROUP, with at most 250 letters and no space around it."],
];

const refusal = (expected: string) => (issue: v.BaseIssue<unknown>) => {
  const given = String(issue.input);
  return hints.find(([pattern]) => pattern.test(given))?.[1] ?? `Expected ${expected}.`;
};

const isCanonicalNetwork = (text: string) => parseNetwork(text)?.text === text;

/** Characters of the longest word, a user with an e-mail address. */
const maxWordLength = "user:".length + maxEmailLength;

const NodeWord = v.pipe(foreignText(100), v.regex(nodePattern, refusal("node:NAME")));
const MemberWord = v.pipe(
  comparedText(maxWordLength),
  v.regex(memberPattern, refusal("node:NAME, user:EMAIL or idp:GROUP")),
);
// In canonical form, because resolve.ts takes the network of a target as it is written. It rewrites that of a peer.
const TargetSide = v.pipe(
  comparedText(maxWordLength),
  v.regex(targetPattern, refusal("any, group:NAME, node:NAME, user:EMAIL, idp:GROUP or network:CIDR")),
  v.check(
    (text) => !text.startsWith("network:") || isCanonicalNetwork(text.slice("network:".length)),
    "Enter a network such as network:192.168.5.0/24, host bits zero.",
  ),
);
const Side = v.pipe(
  comparedText(maxWordLength),
  v.regex(sidePattern, refusal("any, group:NAME, node:NAME, user:EMAIL or idp:GROUP")),
);
const PeerSide = v.pipe(
  comparedText(maxWordLength),
  v.regex(
    peerPattern,
    refusal("any, self, group:NAME, node:NAME, user:EMAIL, idp:GROUP or a network such as 192.168.5.0/24"),
  ),
  v.check(
    (text) => !isNetworkWord(text) || parseNetwork(text) !== undefined,
    "Enter a network such as 192.168.5.0/24, host bits zero.",
  ),
);
const PortText = v.union(
  [
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1, "Enter ports from 1 to 65535."),
      v.maxValue(65_535, "Enter ports from 1 to 65535."),
    ),
    Ports,
  ],
  "Enter any, a port or a range such as 8000-8010.",
);
const Description = foreignText(255);

const RuleEntry = v.pipe(
  v.strictObject({
    direction: v.optional(v.picklist(["inbound", "outbound"]), "inbound"),
    protocol: v.optional(Protocol, "any"),
    ports: v.optional(PortText, "any"),
    peer: PeerSide,
    target: TargetSide,
    description: v.optional(Description),
  }),
  v.check((rule) => rule.protocol !== "icmp" || rule.ports === "any", "ICMP has no ports: remove `ports`."),
);

const Flow = v.pipe(
  v.strictObject({
    from: Side,
    to: Side,
    protocol: v.optional(Protocol, "any"),
    port: v.optional(PortText, "any"),
  }),
  v.check((flow) => flow.protocol !== "icmp" || flow.port === "any", "ICMP has no ports: remove `port`."),
);

const TestEntry = v.pipe(
  v.strictObject({ accept: v.optional(Flow), deny: v.optional(Flow) }),
  v.check((test) => (test.accept === undefined) !== (test.deny === undefined), "Expected accept or deny."),
);

const aliasText = "An alias begins with a letter: a to z, then letters, digits and -.";

const AliasEntry = v.strictObject({
  name: v.pipe(foreignText(63), v.regex(/^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/, aliasText)),
  node: NodeWord,
  /** An address behind the node. Absent: the node's own addresses. */
  address: v.optional(foreignText(45)),
});

const GroupEntry = v.nullable(
  withoutList(
    v.strictObject({
      description: v.optional(v.pipe(foreignText(500), v.trim())),
      /**
       * The nodes, and the users or groups of providers whose nodes are in the group by this file. Absent: the file leaves them
       * alone.
       */
      members: v.optional(listOf(MemberWord, 10_000)),
    }),
  ),
);

/** Maximum entries of each list. */
export const listLimits = {
  groups: 2000,
  rules: maxFileRules,
  routes: 2000,
  relays: 1000,
  aliases: maxAliases,
  tests: 500,
};
// A network as of a peer: resolve.ts refuses the other words.
const Route = v.strictObject({ network: PeerSide, via: NodeWord });

/** A key that is absent is left alone by `apply`, also with `--prune`. */
export const PolicyFile = v.strictObject({
  groups: v.optional(v.pipe(strictRecord(GroupName, GroupEntry), v.maxEntries(listLimits.groups))),
  rules: v.optional(listOf(RuleEntry, listLimits.rules)),
  routes: v.optional(listOf(Route, listLimits.routes)),
  relays: v.optional(listOf(NodeWord, listLimits.relays)),
  aliases: v.optional(listOf(AliasEntry, listLimits.aliases)),
  tests: v.optional(listOf(TestEntry, listLimits.tests)),
});
export type PolicyFile = v.InferOutput<typeof PolicyFile>;

/**
 * Every word except `any` and networks has a prefix. E-mail addresses and groups of providers may contain a slash.
 */
export const isNetworkWord = (word: string) => word.includes("/") && !/^(user|idp):/.test(word);

/** The name in `node:NAME`. */
export function nodeNameOf(word: string): v.InferOutput<typeof NodeName> {
  return word.slice("node:".length);
}
