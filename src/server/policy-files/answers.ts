// What the API answers about policy files. The command line reads it too, so this file imports nothing of the server.

import * as v from "valibot";

const Names = v.object({
  groups: v.array(v.string()),
  nodes: v.array(v.string()),
  count: v.number(),
  /** They are networks behind nodes, named `192.168.5.0/24 behind router1`. Absent: nodes. */
  are: v.optional(v.literal("networks")),
});
const NodeName = v.object({ id: v.number(), name: v.string() });
const access = { gains: v.array(v.string()), loses: v.array(v.string()) };
const ShownRule = v.object({
  id: v.nullable(v.number()),
  direction: v.string(),
  protocol: v.string(),
  ports: v.string(),
  peer: v.string(),
  target: v.string(),
  description: v.string(),
});
const delta = v.object({ add: v.array(v.string()), remove: v.array(v.string()) });

export const Plan = v.object({
  /** For `apply`: it refuses another version. */
  version: v.number(),
  is_empty: v.boolean(),
  rules: v.object({ create: v.array(ShownRule), delete: v.array(ShownRule), describe: v.array(ShownRule) }),
  groups: v.object({
    create: v.array(v.string()),
    delete: v.array(v.string()),
    describe: v.array(v.string()),
    /** Users whose nodes join or leave a group. Absent: an older control plane. */
    members: v.optional(v.array(v.object({ group: v.string(), ...delta.entries }))),
  }),
  nodes: v.array(
    v.object({
      id: v.number(),
      name: v.string(),
      groups: delta,
      routes: delta,
      relay: v.nullable(v.boolean()),
    }),
  ),
  aliases: v.object({ create: v.array(v.string()), delete: v.array(v.string()) }),
  tests: v.object({ before: v.number(), after: v.number(), failing: v.array(v.string()) }),
  access: v.object({
    /** How many pairs of nodes, and of networks behind them, gain or lose something. */
    pairs_changed: v.number(),
    classes: v.array(
      v.object({
        from: Names,
        to: Names,
        /** Which pairs of them: all, those with the same owner, or the others. Absent: an older control plane. */
        owners: v.optional(v.picklist(["any", "same", "different"])),
        ...access,
        pairs: v.number(),
      }),
    ),
    classes_left_out: v.number(),
    /** The first 1,000, by id. */
    pairs: v.array(v.object({ from: NodeName, to: NodeName, ...access })),
  }),
  kept: v.array(v.string()),
});
export type Plan = v.InferOutput<typeof Plan>;

export const Applied = v.object({ ...Plan.entries, unconfirmed_until: v.nullable(v.string()) });
export type Applied = v.InferOutput<typeof Applied>;

const ListedTest = v.object({
  expect: v.picklist(["accept", "deny"]),
  /** Words as in a policy file; `node:#7` for a node that is gone. */
  from: v.string(),
  to: v.string(),
  protocol: v.string(),
  ports: v.string(),
  /** Null: the tests together take too long. */
  passes: v.nullable(v.boolean()),
});

export const Policy = v.object({
  /** Rises with each change by people. */
  version: v.number(),
  /** `file`: as it was written. `state`: rendered, because there is no file or the state differs from it. */
  source: v.picklist(["file", "state"]),
  policy: v.string(),
  by_file: v.boolean(),
  applied_at: v.nullable(v.string()),
  applied_by: v.nullable(v.string()),
  /** Since when the state differs from the file. */
  drifted_since: v.nullable(v.string()),
  unconfirmed: v.nullable(v.object({ by: v.string(), until: v.string() })),
  tests: v.object({ count: v.number(), failing: v.array(v.string()), list: v.array(ListedTest) }),
});
export type Policy = v.InferOutput<typeof Policy>;

export const TestResult = v.object({ count: v.number(), failing: v.array(v.string()) });
export type TestResult = v.InferOutput<typeof TestResult>;

/** After confirm. */
export const Version = v.object({ version: v.number() });

/** After revert. `left_out`: what is not as before, and why. */
export const Reverted = v.object({ version: v.number(), left_out: v.optional(v.array(v.string()), []) });
export type Reverted = v.InferOutput<typeof Reverted>;
