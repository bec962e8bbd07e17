// What the commands over organizations share: which they mean, and the exit status of several.

import { AppError, messageOf } from "../errors.ts";
import { clean } from "../log.ts";
import type { CommandOutput } from "./command.ts";
import type { Flags, Values } from "./values.ts";

export const teamFlags: Flags = {
  "org-slug": { type: "string", valueHint: "SLUG", description: "Only this organization" },
  all: { type: "boolean", description: "All organizations (the default)" },
};

/** Undefined: all. */
export function chosenSlug(values: Values): string | undefined {
  const slug = values.text("org-slug");
  if (slug !== undefined && values.on("all"))
    throw new AppError("usage", "Give --org-slug or --all, not both");
  return slug;
}

/** One failure of several organizations is said; a single one's is thrown. The worst counts: 7, then 6, then the rest. */
export function worst(
  results: readonly PromiseSettledResult<unknown>[],
  chosen: readonly { slug: string }[],
  output: CommandOutput,
): number {
  const failures = results.flatMap((each, at): [unknown, string][] =>
    each.status === "rejected" ? [[each.reason, chosen[at]?.slug ?? ""]] : [],
  );
  if (chosen.length === 1 && failures[0] !== undefined) throw failures[0][0];
  for (const [error, slug] of failures) output.say(`${slug}: ${clean(messageOf(error))}`);
  return worstStatus(failures.map(([error]) => (error instanceof AppError ? error.exitStatus : 1)));
}

export function worstStatus(statuses: readonly number[]): number {
  return [7, 6].find((each) => statuses.includes(each)) ?? Math.max(0, ...statuses);
}
