// The policy of an organization as a file: show, plan, test, apply, confirm, take back.

import * as v from "valibot";
import { OrderKey, recordId } from "../protocol/values.ts";
import { foreignText } from "../base/text.ts";
import { maxSealBytes, SealedState, SignedSeal } from "../protocol/seals/seal.ts";
import { endpoint } from "./endpoint.ts";
import { Moment, ruleWords, since, Text, Time, whole, word } from "./values.ts";

export const maxPolicyBytes = 512 * 1024;
export const maxFileRules = 10_000;
/** JSON escapes the line ends and quotes of the text. */
const maxBody = 2 * maxPolicyBytes + 4096;

const PolicyText = foreignText(maxPolicyBytes, `At most ${maxPolicyBytes / 1024} KiB.`);
/**
 * For each rule of the text, the id of the rule that it was before it was edited, or null. A rule that takes the place of a
 * removed one keeps its id by that, and its history.
 */
const RuleIds = v.optional(v.pipe(v.array(v.nullable(recordId)), v.maxLength(maxFileRules)));
const PlanRequest = v.strictObject({
  policy: PolicyText,
  prune: v.optional(v.boolean(), false),
  rule_ids: RuleIds,
});
export type PlanRequest = v.InferOutput<typeof PlanRequest>;

const TestRequest = v.strictObject({
  policy: v.optional(PolicyText),
  prune: v.optional(v.boolean(), false),
});
export type TestRequest = v.InferOutput<typeof TestRequest>;

const PolicyPatch = v.strictObject({ by_file: v.optional(v.boolean()) });
export type PolicyPatch = v.InferOutput<typeof PolicyPatch>;

const ApplyRequest = v.pipe(
  v.strictObject({
    policy: PolicyText,
    prune: v.optional(v.boolean(), false),
    rule_ids: RuleIds,
    /** An edit by hand of what the text names: the stored file stays, and the state differs from it afterwards. */
    keep_file: v.optional(v.boolean()),
    /** The version of the plan. Another one is refused. */
    version: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER))),
    /** Seconds after which it is rolled back unless it is confirmed. */
    confirm: v.optional(
      v.pipe(v.number(), v.integer(), v.minValue(10, "At least 10 s."), v.maxValue(86_400, "At most 24 h.")),
    ),
  }),
  v.forward(
    v.check(
      ({ keep_file, confirm }) => keep_file !== true || confirm === undefined,
      "Only a file is confirmed.",
    ),
    ["confirm"],
  ),
);
export type ApplyRequest = v.InferOutput<typeof ApplyRequest>;

const Names = v.object({
  groups: v.array(Text),
  nodes: v.array(Text),
  count: v.number(),
  /** They are networks behind nodes, named `192.168.5.0/24 behind router1`. Absent: nodes. */
  are: v.optional(v.literal("networks")),
});
const NodeName = v.object({ id: v.number(), name: Text });
const access = { gains: v.array(Text), loses: v.array(Text) };
const ShownRule = v.object({ id: v.nullable(v.number()), ...ruleWords(Text) });
const delta = v.object({ add: v.array(Text), remove: v.array(Text) });

export const Plan = v.object({
  /** For `apply`: it refuses another version. */
  version: v.number(),
  is_empty: v.boolean(),
  rules: v.object({ create: v.array(ShownRule), delete: v.array(ShownRule), describe: v.array(ShownRule) }),
  groups: v.object({
    create: v.array(Text),
    delete: v.array(Text),
    describe: v.array(Text),
    /** Users whose nodes join or leave a group. Absent: an older control plane. */
    members: v.optional(v.array(v.object({ group: Text, ...delta.entries }))),
  }),
  nodes: v.array(
    v.object({
      id: v.number(),
      name: Text,
      groups: delta,
      routes: delta,
      relay: v.nullable(v.boolean()),
    }),
  ),
  aliases: v.object({ create: v.array(Text), delete: v.array(Text) }),
  tests: v.object({ before: v.number(), after: v.number(), failing: v.array(Text) }),
  access: v.object({
    /** How many pairs of nodes, and of networks behind them, gain or lose something. */
    pairs_changed: v.number(),
    classes: v.array(
      v.object({
        from: Names,
        to: Names,
        /** Which pairs of them: all, those with the same owner, or the others. Absent: an older control plane. */
        owners: v.optional(word(["any", "same", "different"])),
        ...access,
        pairs: v.number(),
      }),
    ),
    classes_left_out: v.number(),
    /** The first 1,000, by id. */
    pairs: v.array(v.object({ from: NodeName, to: NodeName, ...access })),
  }),
  kept: v.array(Text),
});
export type Plan = v.InferOutput<typeof Plan>;

const Applied = v.object({ ...Plan.entries, unconfirmed_until: v.nullable(Time) });
export type Applied = v.InferOutput<typeof Applied>;

const ListedTest = v.object({
  expect: word(["accept", "deny"]),
  /** Words as in a policy file; `node:#7` for a node that is gone. */
  from: Text,
  to: Text,
  protocol: Text,
  ports: Text,
  /** Null: the tests together take too long. */
  passes: v.nullable(v.boolean()),
});

export const Policy = v.object({
  /** Rises with each change by people. */
  version: v.number(),
  /** `file`: as it was written. `state`: rendered, because there is no file or the state differs from it. */
  source: word(["file", "state"]),
  policy: Text,
  by_file: v.boolean(),
  applied_at: v.nullable(Time),
  applied_by: v.nullable(Text),
  /** Since when the state differs from the file. */
  drifted_since: v.nullable(Time),
  unconfirmed: v.nullable(v.object({ by: Text, until: Time })),
  tests: v.object({ count: v.number(), failing: v.array(Text), list: v.array(ListedTest) }),
});
export type Policy = v.InferOutput<typeof Policy>;

const TestResult = v.object({ count: v.number(), failing: v.array(Text) });
export type TestResult = v.InferOutput<typeof TestResult>;

/** After confirm. */
const Version = v.object({ version: v.number() });

/** After revert. `left_out`: what is not as before, and why. */
const Reverted = v.object({ version: v.number(), left_out: v.optional(v.array(Text), []) });
export type Reverted = v.InferOutput<typeof Reverted>;

/** A hash of the audit log that was noted earlier. */
export const NotedHash = v.pipe(
  foreignText(64),
  v.regex(/^[0-9a-f]{64}$/, "A hash of the audit log has 64 hex digits."),
);

const PastQuery = v.strictObject({
  at: Moment,
  /** Names of nodes at that moment. Without `to`: the policy as a file, and nothing else may be given. Without `from`: every node that could reach it. */
  from: v.optional(foreignText(255)),
  to: v.optional(foreignText(255)),
  /** Without `port`: everything that was permitted, of this protocol or of all. A port alone is of TCP. */
  protocol: v.optional(v.picklist(["tcp", "udp", "icmp"])),
  port: v.optional(whole(1, 65_535)),
  /** To find in the log. */
  head: v.optional(NotedHash),
});
export type PastQuery = v.InferOutput<typeof PastQuery>;

/** A report is also read from a file, which may come from anywhere. */
const Word = foreignText(4096);
const many = <T extends v.GenericSchema>(item: T) => v.pipe(v.array(item), v.maxLength(100_000));
const PastNode = v.object({ id: v.number(), name: Word });
const PastCertificate = v.object({
  fingerprint: Word,
  version: v.number(),
  /** With that moment's groups of its node, or with those of a former one. */
  groups: many(Word),
  not_before: Word,
  not_after: Word,
});
const Access = v.object({
  from: PastNode,
  to: PastNode,
  allowed: v.boolean(),
  /** The inbound rule. */
  rule_id: v.nullable(v.number()),
  outbound_rule_id: v.nullable(v.number()),
  reason: Word,
  /** Where no port was asked for: everything that was permitted, as `tcp/5432`. */
  permitted: v.optional(many(Word)),
  /** Of the sender: what was valid then. */
  certificates: many(PastCertificate),
});

/** What stands in the signed text of a report. */
export const PastReport = v.object({
  format: v.literal(1),
  organization: Word,
  order_key: OrderKey,
  at: Word,
  made_at: Word,
  asked: v.object({
    from: v.nullable(Word),
    to: v.nullable(Word),
    protocol: Word,
    port: v.nullable(v.number()),
  }),
  /** Without `to`: the policy, as a file. */
  policy: v.nullable(foreignText(16 * maxPolicyBytes)),
  access: many(Access),
  /** Nodes that could not reach `to`, where `from` was left out. */
  refused: v.number(),
  /**
   * Who did reach `to` on that day (UTC), as its own machine reported; not from the audit log. Null: nothing is known, because
   * it reported no flows of that day, or they were deleted after 30 days.
   */
  did: v.nullable(
    many(
      v.object({
        from: v.nullable(PastNode),
        address: Word,
        protocol: Word,
        port: v.number(),
        flows: v.number(),
        /** How many of them the machine answered. Reports of earlier builds do not say it. */
        answered: v.optional(v.number()),
        first_at: Word,
        last_at: Word,
      }),
    ),
  ),
  /** The rules that `access` names. */
  rules: many(v.object({ id: v.number(), ...ruleWords(Word) })),
  chain: v.object({
    /** Events in the database, each verified, and the hash of the last one. */
    events: v.number(),
    head: Word,
    /** The last event that counts for the moment. */
    last: v.nullable(v.object({ id: v.number(), hash: Word })),
    /** The hash that was asked for, and the event that has it; null: none has it. */
    noted: v.nullable(v.object({ hash: Word, event: v.nullable(v.number()) })),
    /** Files of archives that were read. */
    archives: many(Word),
  }),
  /** Sentences: what is not certain. */
  doubts: many(Word),
});
export type PastReport = v.InferOutput<typeof PastReport>;

const SignedReport = v.object({
  /** JSON. */
  report: Text,
  /** A compact JWS by the order key of the organization, over the SHA-256 of `report`. */
  signature: Text,
});

const Seals = v.object({
  /** Those that changed the signers, and the newest, in their order. Empty: the organization is not sealed. */
  seals: v.array(SignedSeal),
  /** What the control plane would tell nodes now, as the next seal would have it. */
  state: SealedState,
  /** The certificates of its CAs (PEM): a signer reads their limits, and compares their fingerprints with the state. */
  authorities: since("0.2.0", Text),
});

const planErrors = ["busy", "throttled", "conflict", "name_taken", "too_many_rules"] as const;

export const policyApi = {
  schema: endpoint({
    name: "schema_policy_retrieve",
    method: "GET",
    path: "/api/schema/policy/",
    access: "public",
    scope: "policy",
    summary: "The JSON Schema of policy files, for editors",
    answers: { 200: { description: "JSON Schema 2020-12", type: "application/schema+json" } },
  }),
  retrieve: endpoint({
    name: "policy_retrieve",
    method: "GET",
    path: "/api/org/{slug}/policy/",
    access: "member",
    scope: "policy",
    summary: "The policy as a file: as it was applied, or the state if that differs",
    answers: { 200: { description: "The policy", schema: Policy } },
    errors: ["busy", "throttled"],
  }),
  past: endpoint({
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
    errors: ["busy", "throttled", "conflict"],
  }),
  plan: endpoint({
    name: "policy_plan",
    method: "POST",
    path: "/api/org/{slug}/policy/plan/",
    access: "member",
    scope: "policy",
    reads: true,
    summary: "What a policy file would change, and who would gain or lose access. Changes nothing",
    maxBody,
    body: PlanRequest,
    answers: { 200: { description: "The plan", schema: Plan } },
    errors: planErrors,
  }),
  test: endpoint({
    name: "policy_test",
    method: "POST",
    path: "/api/org/{slug}/policy/test/",
    access: "member",
    scope: "policy",
    reads: true,
    summary: "Run the tests of the policy, or those of a file on the state that it would make",
    maxBody,
    body: TestRequest,
    answers: { 200: { description: "The result", schema: TestResult } },
    errors: planErrors,
  }),
  update: endpoint({
    name: "policy_partial_update",
    method: "PATCH",
    path: "/api/org/{slug}/policy/",
    access: "admin",
    scope: "policy",
    summary: "Whether the policy is changed by its file only",
    fresh: true,
    body: PolicyPatch,
    answers: { 204: { description: "Changed" } },
  }),
  apply: endpoint({
    name: "policy_apply",
    method: "POST",
    path: "/api/org/{slug}/policy/apply/",
    access: "admin",
    scope: "policy",
    summary: "Apply a policy file. Refused if one of its tests fails",
    grows: true,
    fresh: true,
    maxBody,
    body: ApplyRequest,
    answers: { 200: { description: "What was changed", schema: Applied } },
    errors: [
      "policy_test_failed",
      "policy_changed",
      "policy_unconfirmed",
      "policy_by_file",
      "too_many_rules",
      "too_many_certificates",
      "name_taken",
      "conflict",
      "busy",
    ],
  }),
  confirm: endpoint({
    name: "policy_confirm",
    method: "POST",
    path: "/api/org/{slug}/policy/confirm/",
    access: "admin",
    scope: "policy",
    summary: "Confirm the policy that was applied with `confirm`, so that it stays",
    fresh: true,
    answers: { 200: { description: "The version", schema: Version } },
    errors: ["conflict"],
  }),
  revert: endpoint({
    name: "policy_revert",
    method: "POST",
    path: "/api/org/{slug}/policy/revert/",
    access: "admin",
    scope: "policy",
    summary: "Take back the policy that waits for its confirmation",
    fresh: true,
    answers: { 200: { description: "The version, and what could not be taken back", schema: Reverted } },
    errors: ["conflict"],
  }),
  /** docs/design/sealed.md */
  seals: endpoint({
    name: "seals_retrieve",
    method: "GET",
    path: "/api/org/{slug}/seals/",
    access: "member",
    scope: "policy",
    summary: "The seals of the organization, and what the next one would hold",
    answers: { 200: { description: "The seals", schema: Seals } },
  }),
  publishSeal: endpoint({
    name: "seals_create",
    method: "POST",
    path: "/api/org/{slug}/seals/",
    access: "admin",
    scope: "policy",
    summary:
      "Publish a seal that its signers have signed. Every node compares it with what it is told. The first one needs an owner, later ones an administrator",
    grows: true,
    fresh: true,
    maxBody: 2 * maxSealBytes + 131_072,
    body: v.strictObject(SignedSeal.entries),
    answers: {
      201: { description: "It is published", schema: v.object({ number: v.number(), hash: Text }) },
    },
    errors: ["conflict"],
  }),
  forgetSeals: endpoint({
    name: "seals_destroy",
    method: "DELETE",
    path: "/api/org/{slug}/seals/",
    access: "owner",
    summary:
      "Forget the seals, if no signer is left. Nodes that hold one keep it until root ends it there; the next one is a first seal",
    fresh: true,
    answers: { 204: { description: "Forgotten" } },
    errors: ["conflict"],
  }),
};
