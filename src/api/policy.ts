// The policy of an organization as a file: show, plan, test, apply, confirm, roll back.

import * as v from "valibot";
import { recordId, wholeNumber, listOf } from "../protocol/values.ts";
import { foreignText } from "../base/text.ts";
import { endpoint } from "./endpoint.ts";
import { ruleWords } from "./rules.ts";
import { Text, Time, word } from "./values.ts";

export const maxPolicyBytes = 512 * 1024;
export const maxFileRules = 10_000;
/** Maximum changes of access in a plan: between classes of nodes, and between single nodes. */
export const maxPlanClasses = 500;
export const maxPlanPairs = 1000;
/** JSON escapes the line ends and quotes of the text. */
const maxBody = 2 * maxPolicyBytes + 4096;

const PolicyText = foreignText(maxPolicyBytes, `At most ${maxPolicyBytes / 1024} KiB.`);
/** For each rule of the text, the id of the rule that it was before the edit, or null. So an edited rule keeps its id and history. */
const RuleIds = v.optional(listOf(v.nullable(recordId), maxFileRules));
/** `prune`: what the file does not name is deleted; without it, it stays. */
const PlanRequest = v.strictObject({
  policy: PolicyText,
  prune: v.optional(v.boolean(), false),
  rule_ids: RuleIds,
});
export type PlanRequest = v.InferOutput<typeof PlanRequest>;

/** Without `policy`, the tests of the stored policy run on the present state. */
const TestRequest = v.strictObject({
  policy: v.optional(PolicyText),
  prune: v.optional(v.boolean(), false),
});
export type TestRequest = v.InferOutput<typeof TestRequest>;

/** `by_file`: only a policy file may change rules, groups and memberships. */
const PolicyPatch = v.strictObject({ by_file: v.optional(v.boolean()) });
export type PolicyPatch = v.InferOutput<typeof PolicyPatch>;

const ApplyRequest = v.pipe(
  v.strictObject({
    policy: PolicyText,
    prune: v.optional(v.boolean(), false),
    rule_ids: RuleIds,
    /** For edits in the console: the state changes as the text says, and the stored file stays as it is. */
    keep_file: v.optional(v.boolean()),
    /** The version of the plan: refused if the policy has changed since. */
    version: v.optional(wholeNumber),
    /** After so many seconds the policy is rolled back, unless it is confirmed. */
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

const ClassNames = v.object({
  groups: v.array(Text),
  nodes: v.array(Text),
  count: v.number(),
  /** The class is of networks behind nodes, named `192.168.5.0/24 behind router1`. Absent: of nodes. */
  are: v.optional(v.literal("networks")),
});
const NamedNode = v.object({ id: v.number(), name: Text });
const accessChange = { gains: v.array(Text), loses: v.array(Text) };
const ShownRule = v.object({ id: v.nullable(v.number()), ...ruleWords(Text) });
const delta = v.object({ add: v.array(Text), remove: v.array(Text) });

export const Plan = v.object({
  /** Send it with `apply`. */
  version: v.number(),
  is_empty: v.boolean(),
  /** `describe`, here and below: only the description changes. */
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
  /** How many tests there are before and after the change, and which of these fail. */
  tests: v.object({ before: v.number(), after: v.number(), failing: v.array(Text) }),
  access: v.object({
    /** How many pairs of nodes, and of networks behind them, gain or lose something. */
    pairs_changed: v.number(),
    classes: v.array(
      v.object({
        from: ClassNames,
        to: ClassNames,
        /** Which pairs of them: all, those with the same owner, or the others. Absent: an older control plane. */
        owners: v.optional(word(["any", "same", "different"])),
        ...accessChange,
        pairs: v.number(),
      }),
    ),
    classes_left_out: v.number(),
    /** By id, at most `maxPlanPairs`. */
    pairs: v.array(v.object({ from: NamedNode, to: NamedNode, ...accessChange })),
  }),
  /** Sentences: what the file does not name and stays all the same. */
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
  /** Rises with each change of the policy by users or programs. */
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

/** The answer of `confirm`. */
const Version = v.object({ version: v.number() });

/** The answer of `revert`. `left_out`: what could not be rolled back, and why. */
const Reverted = v.object({ version: v.number(), left_out: v.optional(v.array(Text), []) });
export type Reverted = v.InferOutput<typeof Reverted>;

const planErrors = ["busy", "conflict", "name_taken", "too_many_rules"] as const;

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
    errors: ["busy"],
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
};
