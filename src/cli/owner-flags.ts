// `--owner` and `--owner-id`: which user becomes owner, and the confirmation of a user that an invitation created.

import { AppError } from "../errors.ts";
import { quoteWord } from "../plan.ts";
import type { OwnerChoice, OwnerConfirmation } from "../server/people/ownership.ts";
import type { Flags, Values } from "./values.ts";

export const ownerIdFlag: Flags = {
  "owner-id": {
    type: "string",
    valueHint: "N",
    description: "Confirm the user id of the new owner; needed if an invitation created the user",
  },
};

export const ownerFlags: Flags = {
  owner: { type: "string", valueHint: "EMAIL", description: "E-mail address of the user who becomes owner" },
  ...ownerIdFlag,
};

/** `words` and the given flags form the command line to repeat with --owner-id. Users paste it, and an e-mail can hold `$(…)`. */
export function ownerConfirmation(
  values: Values,
  words: readonly string[],
  flags: readonly string[],
): Required<OwnerConfirmation> {
  const given = flags.flatMap((name) => {
    const value = values.text(name);
    return value === undefined ? [] : [`--${name}`, value];
  });
  const line = [...words, ...given].map(quoteWord).join(" ");
  return { id: values.integer("owner-id", 1, Number.MAX_SAFE_INTEGER), line };
}

export function ownerChoice(
  values: Values,
  words: readonly string[],
  flags: readonly string[],
): OwnerChoice | undefined {
  const email = values.text("owner");
  if (email !== undefined) return { email, ...ownerConfirmation(values, words, [...flags, "owner"]) };
  if (values.text("owner-id") === undefined) return undefined;
  throw new AppError("usage", "--owner-id confirms the user of --owner EMAIL: give both");
}
