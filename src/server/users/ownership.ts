// Protects ownership against users that an invitation created. The holder of the link chose the password, so the email
// address of such a user proves nothing. The user becomes owner only if the caller confirms the id, or sent the
// invitation (members.ts).

import { formatTime } from "../../base/quantities.ts";
import { AppError } from "../../base/errors.ts";
import type { Reader } from "../store/database.ts";
import { computed, joined, queryOne, textOrNull } from "../store/table.ts";
import { users } from "../store/tables/users.ts";

/** `id`: the user that the caller confirms. */
export type OwnerConfirmation = { id?: number | undefined };
export type OwnerChoice = OwnerConfirmation & { email: string };

type Lookup = Reader;

/** The user, and the organization whose invitation created the user (`home_org_id`). `slug` null: no invitation did. */
const withHome = joined("u", users.pick("id", "email", "createdAt"), "o", computed({ slug: textOrNull() }));

function findWithHome(reader: Lookup, column: "id" | "email", value: number | string) {
  const sql = `SELECT ${withHome.select()} FROM users u
    LEFT JOIN organizations o ON o.id = u.home_org_id WHERE u.${column} = $1`;
  return queryOne(reader, withHome, sql, [value]);
}

/** Throws owner_unconfirmed if the confirmation is missing or names another user. */
export async function confirmOwner(
  reader: Lookup,
  userId: number,
  { id: confirmed }: OwnerConfirmation,
): Promise<void> {
  if (confirmed === userId) return;
  const found = await findWithHome(reader, "id", userId);
  if (found === undefined) throw new AppError("not_found", `There is no user ${userId}.`);
  const { email, slug, createdAt } = found;
  if (confirmed !== undefined) {
    throw new AppError("owner_unconfirmed", `${email} is user ${userId}, not user ${confirmed}.`);
  }
  if (slug === null) return;
  const origin = `An invitation of the organization ${slug} created the user at ${formatTime(createdAt)}`;
  throw new AppError(
    "owner_unconfirmed",
    `Nothing proves that user ${userId} is ${email}. ${origin}, and the holder of the link chose the password. ` +
      `Ask the owner of ${email}. If the user is theirs, send the request again with "owner_id": ${userId}.`,
  );
}

/** The end of a message: which invitation created the user of this address; "" if none did. */
export async function describeOrigin(reader: Lookup, email: string): Promise<string> {
  const found = await findWithHome(reader, "email", email);
  if (found === undefined || found.slug === null) return "";
  const at = formatTime(found.createdAt);
  return `: user ${found.id}, created by an invitation of the organization ${found.slug} at ${at}`;
}
