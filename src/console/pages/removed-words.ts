// The sentences after a user was removed from an organization. Pure.

import { plural } from "../words/numbers.ts";

type Items = readonly { kind: string }[];
/** What the user could use: nodes, tokens, webhooks. */
type AccessReport = { access_left: Items; access_revoked: Items };

/** "2 nodes, 1 token". */
export function counted(items: Items): string {
  return [...Map.groupBy(items, ({ kind }) => kind.replaceAll("_", " "))]
    .map(([kind, { length }]) => plural(length, kind))
    .join(", ");
}

/** The user stays: nothing but disabling ends the sign-in. */
export function removedWords(
  email: string,
  { access_left: left, access_revoked: revoked }: AccessReport,
  isStaff: boolean,
): string {
  return [
    `${email} is removed from this organization.`,
    revoked.length === 0 ? "" : `Revoked: ${counted(revoked)}.`,
    left.length === 0 ? "" : `Still working, revoke what must end: ${counted(left)}.`,
    "The user can still sign in to this control plane.",
    isStaff
      ? "To end that, disable the user under Users."
      : "Staff of the control plane can disable the user.",
  ]
    .filter((sentence) => sentence !== "")
    .join(" ");
}
