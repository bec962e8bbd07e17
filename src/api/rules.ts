// Firewall rules, and testing what they permit.

import * as v from "valibot";
import { Cidr } from "../engine/allowed-settings.ts";
import { selfGroup } from "../protocol/users-groups.ts";
import { recordId, GroupName, Port } from "../protocol/values.ts";
import { comparedText, foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { ListQuery, open, reachErrors, since, Text, word } from "./values.ts";

/** A rule in the words of policy files. */
export const ruleWords = <T extends v.GenericSchema>(text: T) => ({
  direction: text,
  protocol: text,
  ports: text,
  peer: text,
  target: text,
  description: text,
});

export const Ports = v.pipe(
  foreignText(11),
  v.regex(/^(any|\d{1,5}(-\d{1,5})?)$/, "Enter any, a port or a range such as 8000-8010."),
  v.check((text) => portRange(text) !== undefined, "Enter ports from 1 to 65535, the lower one first."),
);
export function portRange(text: string): "any" | readonly [number, number] | undefined {
  if (text === "any") return "any";
  const [first = 0, last = first] = text.split("-").map(Number);
  return first >= 1 && first <= last && last <= 65_535 ? [first, last] : undefined;
}

const anyNode = v.strictObject({ any: v.literal(true) });
const oneGroup = v.strictObject({ group: GroupName });
const oneNode = v.strictObject({ node: recordId });

export const Peer = v.union([anyNode, oneGroup, oneNode, v.strictObject({ cidr: Cidr })]);
export type Peer = v.InferOutput<typeof Peer>;
export const Target = v.union([anyNode, oneGroup, oneNode]);
export type Target = v.InferOutput<typeof Target>;
const protocols = ["any", "tcp", "udp", "icmp"] as const;
export const Protocol = v.picklist(protocols);
export type Protocol = v.InferOutput<typeof Protocol>;
const directions = ["inbound", "outbound"] as const;

/** Whether a side of a rule is the group `self`, which stands for the nodes with the same owner as the target. */
export const isSelf = (side: Peer) => "group" in side && side.group === selfGroup;
export const selfSentence = "self is a peer only: the nodes with the same owner as the target.";

export const ruleFields = {
  direction: v.picklist(directions),
  protocol: Protocol,
  ports: Ports,
  peer: Peer,
  target: Target,
  description: v.optional(foreignText(255)),
};

/** A group of a provider of identities, by its name there. It is stored as the group of its users' nodes. */
const providerGroupSide = v.strictObject({
  idp: v.pipe(
    comparedText(250),
    v.regex(
      /^\S(.{0,248}\S)?$/,
      "Enter a group of a provider, with at most 250 letters and no space around it.",
    ),
  ),
});
/** What requests hold. The server checks more (`CheckedRule`), stores the rule, and sends it as a `SentRule`. */
const AskedRule = v.strictObject({
  ...ruleFields,
  peer: v.union([...Peer.options, providerGroupSide]),
  target: v.union([...Target.options, providerGroupSide]),
});
export type AskedRule = v.InferOutput<typeof AskedRule>;
const AskedPatch = v.partial(AskedRule);
export type AskedPatch = v.InferOutput<typeof AskedPatch>;

export const CheckedRule = v.pipe(
  v.strictObject(ruleFields),
  v.forward(
    v.check((rule) => rule.protocol !== "icmp" || rule.ports === "any", "ICMP has no ports: enter any."),
    ["ports"],
  ),
  v.forward(
    v.check(({ target }) => !isSelf(target), selfSentence),
    ["target"],
  ),
);
export type CheckedRule = v.InferOutput<typeof CheckedRule>;

/** A side of a rule of any version: `{ any: true }`, or one kind and what it names. */
const AnySide = v.record(Text, v.union([v.boolean(), v.number(), Text]));
const SentRule = v.object({
  id: v.number(),
  direction: word(directions),
  protocol: word(protocols),
  ports: Text,
  peer: open(AnySide, Peer),
  target: open(AnySide, Target),
  description: Text,
});
export type Rule = v.InferOutput<typeof SentRule>;

const RuleTest = v.strictObject({
  from: recordId,
  to: recordId,
  protocol: v.picklist(["tcp", "udp", "icmp"]),
  port: v.optional(Port),
});
export type RuleTest = v.InferOutput<typeof RuleTest>;

const Explained = v.object({
  allowed: v.boolean(),
  /** The inbound rule that permits it. Both rules are needed. */
  rule_id: v.nullable(v.number()),
  /** The outbound rule that permits it, even if no inbound rule does. */
  outbound_rule_id: since("0.2.0", v.nullable(v.number())),
  reason: Text,
  /** All that the rules permit between the two, whatever was asked: `icmp`, `tcp/5432`, `any`. */
  permitted: since("0.2.0", v.array(Text)),
});
export type Explained = v.InferOutput<typeof Explained>;

/** `group`: its name in rules and certificates. `name`: at the provider. `word`: in policy files. */
const ProviderGroup = v.object({ group: Text, name: Text, word: Text });

const onePath = "/api/org/{slug}/firewall_rules/{id}/";

export const rulesApi = {
  list: endpoint({
    name: "firewall_rules_list",
    method: "GET",
    path: "/api/org/{slug}/firewall_rules/",
    access: "member",
    scope: "policy",
    summary: "Firewall rules. Traffic that no rule permits is refused",
    query: ListQuery,
    answers: { 200: { description: "Rules", schema: v.array(SentRule) } },
  }),
  create: endpoint({
    name: "firewall_rules_create",
    method: "POST",
    path: "/api/org/{slug}/firewall_rules/",
    access: "admin",
    scope: "policy",
    summary: "Create a firewall rule. Every node applies it at once",
    grows: true,
    fresh: true,
    body: AskedRule,
    answers: { 201: { description: "The rule", schema: SentRule } },
    errors: ["too_many_rules", ...reachErrors],
  }),
  test: endpoint({
    name: "firewall_rules_test",
    method: "POST",
    path: "/api/org/{slug}/firewall_rules/test/",
    access: "member",
    scope: "policy",
    reads: true,
    summary: "Whether one node may reach another, and which rules permit it",
    body: RuleTest,
    answers: { 200: { description: "The result", schema: Explained } },
  }),
  retrieve: endpoint({
    name: "firewall_rules_retrieve",
    method: "GET",
    path: onePath,
    access: "member",
    scope: "policy",
    summary: "One firewall rule",
    answers: { 200: { description: "The rule", schema: SentRule } },
  }),
  update: endpoint({
    name: "firewall_rules_partial_update",
    method: "PATCH",
    path: onePath,
    access: "admin",
    scope: "policy",
    summary: "Change a firewall rule",
    grows: true,
    fresh: {
      description: false,
      direction: true,
      protocol: true,
      ports: true,
      peer: true,
      target: true,
    },
    body: AskedPatch,
    answers: { 200: { description: "The rule", schema: SentRule } },
    errors: reachErrors,
  }),
  delete: endpoint({
    name: "firewall_rules_destroy",
    method: "DELETE",
    path: onePath,
    access: "admin",
    scope: "policy",
    summary: "Delete a firewall rule. Established connections that only it permitted are cut",
    fresh: true,
    answers: { 204: { description: "Deleted" } },
    errors: reachErrors,
  }),
  providerGroups: endpoint({
    name: "provider_groups_list",
    method: "GET",
    path: "/api/org/{slug}/provider_groups/",
    access: "member",
    scope: "policy",
    summary: "Groups of providers of identities that the policy names, with their words in policy files",
    answers: { 200: { description: "At most 64 groups", schema: v.array(ProviderGroup) } },
  }),
};
