// Reports about the past of an organization: what was in force at a moment, and who could reach a node then.

import * as v from "valibot";
import { OrderKey, listOf } from "../../protocol/values.ts";
import { foreignText } from "../../base/text.ts";
import { endpoint } from "../endpoint.ts";
import { maxPolicyBytes } from "../policy.ts";
import { ruleWords } from "../rules.ts";
import { Moment, Text, whole } from "../values.ts";

/** A hash of the audit log that was noted earlier. */
export const NotedHash = v.pipe(
  foreignText(64),
  v.regex(/^[0-9a-f]{64}$/, "A hash of the audit log has 64 hex digits."),
);

const PastQuery = v.strictObject({
  at: Moment,
  /**
   * Names of nodes at that moment. Without `to`: the policy as a file, and nothing else may be given. Without `from`: every node that
   * could reach `to`.
   */
  from: v.optional(foreignText(255)),
  to: v.optional(foreignText(255)),
  /** Without `port`: everything that was permitted, of this protocol or of all. A port alone is of TCP. */
  protocol: v.optional(v.picklist(["tcp", "udp", "icmp"])),
  port: v.optional(whole(1, 65_535)),
  /** Say which event of the log has this hash. */
  head: v.optional(NotedHash),
});
export type PastQuery = v.InferOutput<typeof PastQuery>;

/** Bounded, because a report is also read from a file, which may come from anywhere. */
const ShortText = foreignText(4096);
const many = <T extends v.GenericSchema>(item: T) => listOf(item, 100_000);
const PastNode = v.object({ id: v.number(), name: ShortText });
const PastCertificate = v.object({
  fingerprint: ShortText,
  version: v.number(),
  /** The groups of its node at that moment, or at an earlier one. */
  groups: many(ShortText),
  not_before: ShortText,
  not_after: ShortText,
});
const Access = v.object({
  from: PastNode,
  to: PastNode,
  allowed: v.boolean(),
  /** The inbound rule. */
  rule_id: v.nullable(v.number()),
  outbound_rule_id: v.nullable(v.number()),
  reason: ShortText,
  /** Where no port was asked for: everything that was permitted, as `tcp/5432`. */
  permitted: v.optional(many(ShortText)),
  /** Of the sender: what was valid then. */
  certificates: many(PastCertificate),
});

/** The signed text of a report. */
export const PastReport = v.object({
  format: v.literal(1),
  organization: ShortText,
  order_key: OrderKey,
  at: ShortText,
  made_at: ShortText,
  asked: v.object({
    from: v.nullable(ShortText),
    to: v.nullable(ShortText),
    /** "any": all protocols. */
    protocol: ShortText,
    port: v.nullable(v.number()),
  }),
  /**
   * Without `to`: the policy, as a file. The bound is wide, because rules and groups that were created one by one can make a longer file
   * than one that may be applied.
   */
  policy: v.nullable(foreignText(16 * maxPolicyBytes)),
  access: many(Access),
  /** Nodes that could not reach `to`, where `from` was left out. */
  refused: v.number(),
  /**
   * The nodes that reached `to` on that day (UTC), as its own machine reported; not from the audit log. Null: unknown, because
   * the machine reported no flows of that day, or they were deleted after 30 days.
   */
  did: v.nullable(
    many(
      v.object({
        from: v.nullable(PastNode),
        address: ShortText,
        protocol: ShortText,
        port: v.number(),
        flows: v.number(),
        /** How many of them the machine answered. Reports of earlier builds do not say it. */
        answered: v.optional(v.number()),
        first_at: ShortText,
        last_at: ShortText,
      }),
    ),
  ),
  /** The rules that `access` names. */
  rules: many(v.object({ id: v.number(), ...ruleWords(ShortText) })),
  chain: v.object({
    /** Events in the database, each verified, and the hash of the last one. */
    events: v.number(),
    head: ShortText,
    /** The last event that counts for the moment. */
    last: v.nullable(v.object({ id: v.number(), hash: ShortText })),
    /** The hash that was asked for, and the event that has it; null: none has it. */
    noted: v.nullable(v.object({ hash: ShortText, event: v.nullable(v.number()) })),
    /** Files of archives that were read. */
    archives: many(ShortText),
  }),
  /** Sentences: what is not certain. */
  doubts: many(ShortText),
});
export type PastReport = v.InferOutput<typeof PastReport>;

const SignedReport = v.object({
  /** JSON. */
  report: Text,
  /** A compact JWS by the order key of the organization, over the SHA-256 of `report`. */
  signature: Text,
});

export const pastApi = {
  retrieve: endpoint({
    name: "policy_past_retrieve",
    method: "GET",
    path: "/api/org/{slug}/policy/past/",
    access: "admin",
    scope: "policy",
    summary:
      "What was in force at a moment, from the audit log, as a signed report: the policy as a file, or who could reach a node, " +
      "by which rule and certificate. Verifies the log while it is read. With `to`, needs the scope of GET flows/ too",
    query: PastQuery,
    answers: { 200: { description: "The report and its signature", schema: SignedReport } },
    errors: ["busy", "conflict"],
  }),
};
