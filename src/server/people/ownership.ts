// Users that an invitation created. Whoever held the link chose the password, so the address of such a user proves
// nothing: it becomes owner only if the caller confirms its id, or sent it the invitation (members.ts).

import { brand } from "../../brand.ts";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { numberOf, textOf, textOrNull, type Reader } from "../store/database.ts";

/** `id`: the user that the caller means. `line`: the command to which `--owner-id` is added; the API has none. */
export type OwnerConfirmation = { id?: number | undefined; line?: string };
export type OwnerChoice = OwnerConfirmation & { email: string };

type Lookup = Pick<Reader, "get">;

const withOrigin = `SELECT u.id, u.email, u.created_at, o.slug FROM users u
  LEFT JOIN organizations o ON o.id = u.home_org_id`;

/** Throws owner_unconfirmed where the confirmation is missing, or names another user. */
export async function confirmOwner(
  reader: Lookup,
  userId: number,
  { id: confirmed, line }: OwnerConfirmation,
): Promise<void> {
  if (confirmed === userId) return;
  const row = (await reader.get(`${withOrigin} WHERE u.id = $1`, [userId])) ?? {};
  const email = textOf(row, "email");
  if (confirmed !== undefined) {
    throw new AppError("owner_unconfirmed", `${email} is user ${userId}, not user ${confirmed}.`);
  }
  const slug = textOrNull(row, "slug");
  if (slug === null) return;
  const how =
    line === undefined
      ? `send the request again with "owner_id": ${userId}.`
      : `run \`${brand.executable} ${line} --owner-id ${userId}\`.`;
  const made = `An invitation of the organization ${slug} created it at ${formatTime(numberOf(row, "created_at"))}`;
  throw new AppError(
    "owner_unconfirmed",
    `Nothing proves that user ${userId} is ${email}. ${made}: whoever held the link chose the password. ` +
      `Ask the person; if the user is theirs, ${how}`,
  );
}

/** For a message: which invitation created the user of this address; "" where none did. */
export async function originOf(reader: Lookup, email: string): Promise<string> {
  const row = await reader.get(`${withOrigin} WHERE u.email = $1`, [email]);
  const slug = row === undefined ? null : textOrNull(row, "slug");
  if (row === undefined || slug === null) return "";
  const at = formatTime(numberOf(row, "created_at"));
  return `: user ${numberOf(row, "id")}, created by an invitation of the organization ${slug} at ${at}`;
}
