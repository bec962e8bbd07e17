// `--owner` and `--owner-id`: which user becomes owner, and the confirmation of a user that an invitation created.

import { brand } from "../../brand.ts";
import { AppError, hasCode } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import type { OwnerChoice } from "../../server/users/ownership.ts";
import { valueFlag, type Values } from "../values.ts";

export const ownerIdFlag = {
  "owner-id": valueFlag(
    "N",
    "Confirm the user id of the new owner; needed if an invitation created the user",
  ),
};

export const ownerFlags = {
  owner: valueFlag("EMAIL", "E-mail address of the user who becomes owner"),
  ...ownerIdFlag,
};

/**
 * Runs the work. If the control plane wants the user confirmed, the error names the line to repeat with --owner-id. `words` and
 * those of `flags` that were given form that line. It is quoted, because users paste it and an e-mail address can hold `$(…)`.
 */
export async function confirmable<T>(
  values: Values,
  words: readonly string[],
  flags: readonly string[],
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!hasCode(error, "owner_unconfirmed")) throw error;
    const given = flags.flatMap((name) => {
      const value = values.text(name);
      return value === undefined ? [] : [`--${name}`, value];
    });
    const line = [brand.executable, ...words, ...given].map(quoteWord).join(" ");
    // The end of the sentence of confirmOwner (server/users/ownership.ts). Another sentence stays as it is.
    const message = error.message.replace(
      /send the request again with "owner_id": (\d+)\.$/,
      (_, id: string) => `run \`${line} --owner-id ${id}\`.`,
    );
    throw new AppError(error.code, message, error.details);
  }
}

/** The user of --owner and --owner-id. */
export function ownerChoice(values: Values): OwnerChoice | undefined {
  const email = values.text("owner");
  if (email !== undefined) return { email, id: values.integer("owner-id", 1, Number.MAX_SAFE_INTEGER) };
  if (values.text("owner-id") === undefined) return undefined;
  throw new AppError("usage", "--owner-id confirms the user of --owner EMAIL: give both");
}
