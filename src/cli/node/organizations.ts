// Commands that work on several organizations use this: their words and flags, the report of failures, and the exit status.

import { AppError, messageOf } from "../../base/errors.ts";
import { clean } from "../../base/log.ts";
import type { CommandOutput } from "../command.ts";
import { switchFlag, valueFlag, wordArg, type Values } from "../values.ts";

/** The word ORG of commands that work on all organizations without it. */
export const anyOrgArg = {
  ORG: wordArg("The slug of one organization (default: all)", { required: false }),
};

export const organizationFlags = {
  "org-slug": valueFlag("SLUG", "Only this organization"),
  all: switchFlag("All organizations (the default)"),
};

/** Undefined means all. */
export function chosenSlug(values: Values): string | undefined {
  const slug = values.text("org-slug");
  if (slug !== undefined && values.on("all"))
    throw new AppError("usage", "Give --org-slug or --all, not both");
  return slug;
}

/** What became of the work on one organization. */
export type Outcome<T> = { slug: string } & ({ value: T } | { error: unknown });

/** The outcome of work that has begun. Never rejects, so that the failure of one organization does not stop the others. */
export const outcomeOf = <T>(slug: string, work: Promise<T>): Promise<Outcome<T>> =>
  work.then(
    (value) => ({ slug, value }),
    (error: unknown) => ({ slug, error }),
  );

/**
 * Returns the exit status of a command on these organizations. Throws the failure of a single organization, and prints
 * those of several. `isListed`: the result of the command holds the failures, so it has the same shape with one organization.
 */
export function reportFailures(
  outcomes: readonly Outcome<unknown>[],
  output: CommandOutput,
  { isListed = false } = {},
): number {
  const failures = outcomes.flatMap((each) => ("error" in each ? [each] : []));
  const [first] = failures;
  if (!isListed && outcomes.length === 1 && first !== undefined) throw first.error;
  for (const { error, slug } of failures) output.say(`${slug}: ${clean(messageOf(error))}`);
  return worstStatus(failures.map(({ error }) => (error instanceof AppError ? error.exitStatus : 1)));
}

/** 7 (revoked) wins, then 6 (control plane unreachable), then the highest; 0 without a failure. */
export function worstStatus(statuses: readonly number[]): number {
  return [7, 6].find((each) => statuses.includes(each)) ?? Math.max(0, ...statuses);
}
