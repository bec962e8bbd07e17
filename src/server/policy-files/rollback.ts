// What a rollback of a policy needs: the inverse changes, stored until the policy is confirmed, and how a part that has become
// impossible is left out.

import * as v from "valibot";
import { AppError, type ErrorCode } from "../../base/errors.ts";
import { ensureGroups, insertGroups } from "../policy/groups.ts";
import { PolicyTest } from "../policy/policy-tests.ts";
import { StoredRule } from "../policy/stored-rules.ts";
import type { Transaction } from "../store/database.ts";
import { inSavepoint } from "../store/savepoint.ts";

const texts = v.array(v.string());
const named = { name: v.string(), description: v.string() };
const alias = { name: v.string(), nodeId: v.number(), address: v.nullable(v.string()) };
/** The nodes of users (`people`, the group of their nodes) are in the group `name`. */
const groupSource = v.object({ name: v.string(), people: v.string() });
const providerGroup = v.object({ people: v.string(), providerId: v.number(), name: v.string() });
const delta = v.object({ add: texts, remove: texts });
/** JSON in the column `undo` of a policy. */
export const Undo = v.object({
  changes: v.object({
    groups: v.object({
      create: v.array(v.object(named)),
      delete: v.array(v.object(named)),
      describe: v.array(v.object({ ...named, before: v.string() })),
    }),
    rules: v.object({
      create: v.array(StoredRule),
      delete: v.array(StoredRule),
      describe: v.array(v.object({ ...StoredRule.entries, before: v.string() })),
    }),
    nodes: v.array(
      v.object({
        id: v.number(),
        name: v.string(),
        groups: delta,
        subnets: delta,
        /** Null: it is not changed. */
        relay: v.nullable(v.boolean()),
      }),
    ),
    /** Absent in rows of earlier versions. */
    people: v.optional(v.object({ add: v.array(groupSource), remove: v.array(groupSource) }), {
      add: [],
      remove: [],
    }),
    providerGroups: v.optional(v.object({ add: v.array(providerGroup), remove: v.array(providerGroup) }), {
      add: [],
      remove: [],
    }),
    aliases: v.object({ create: v.array(v.object(alias)), delete: v.array(v.object(alias)) }),
    tests: v.optional(v.array(PolicyTest)),
  }),
  /** The file that was in force before. */
  former: v.object({
    text: v.nullable(v.string()),
    appliedAt: v.nullable(v.number()),
    appliedBy: v.nullable(v.string()),
    driftedAt: v.nullable(v.number()),
  }),
});
export type Undo = v.InferOutput<typeof Undo>;

/**
 * A rollback must always complete: a part that has become impossible is left out, with a sentence here. Limits of
 * certificates and rules do not apply.
 */
export type Rollback = { leftOut: string[] };

/**
 * Creates the groups that do not exist yet. Throws validation_failed for a reserved name, but not in a rollback: an upgrade may have
 * reserved the name of a group that existed before.
 */
export function makeGroups(
  tx: Transaction,
  orgId: number,
  names: readonly string[],
  now: number,
  rollback: Rollback | undefined,
): Promise<void> {
  const make = rollback === undefined ? ensureGroups : insertGroups;
  return make(tx, orgId, names, now);
}

/**
 * Runs one part of the changes. In a rollback, returns undefined if the part is refused, and notes it in `leftOut`. `what`: the
 * subject of the note, such as `The alias db`. `part` must not return undefined.
 */
export async function attempt<T>(
  tx: Transaction,
  rollback: Rollback | undefined,
  what: string,
  part: () => Promise<T>,
): Promise<T | undefined> {
  if (rollback === undefined) return part();
  try {
    return await inSavepoint(tx, part);
  } catch (error) {
    if (!(error instanceof AppError) || !refusals.has(error.code)) throw error;
    rollback.leftOut.push(`${what} is not as before: ${error.message}`);
    return undefined;
  }
}

/** Codes of errors by which a part is refused. Other errors end the rollback. */
const refusals: ReadonlySet<ErrorCode> = new Set([
  "conflict",
  "name_taken",
  "too_many_certificates",
  "validation_failed",
]);
