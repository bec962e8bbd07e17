// Tokens of both kinds once they are issued: revoked one by one, or all of a person's. They belong to the organization,
// not to whoever made them: when that person goes they go on, and somebody has to be told of it (decisions 4).

import { AppError } from "../../errors.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Services } from "../services.ts";
import { numberOf, textOf, textOrNull, type Reader, type Transaction } from "../store/database.ts";

/** As the audit log names them; the tables are called the same, in the plural. */
export type TokenKind = "registration_token" | "service_token";
export type IssuedToken = { org_slug: string; kind: TokenKind; id: number; name: string | null };

/** Nodes that it registered stay. Throws not_found. */
export async function revokeToken(
  { db, system }: Pick<Services, "db" | "system">,
  org: { id: number },
  kind: TokenKind,
  tokenId: number,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    const revoked = await revoke(tx, { orgId: org.id, kind, id: tokenId }, actor, system.now());
    if (!revoked) throw new AppError("not_found", "There is no such token.");
  });
}

async function revoke(
  tx: Transaction,
  { orgId, kind, id }: { orgId: number; kind: TokenKind; id: number },
  actor: Actor,
  now: number,
): Promise<boolean> {
  const revoked = await tx.run(
    `UPDATE ${kind}s SET revoked_at = $3 WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL`,
    [id, orgId, now],
  );
  if (revoked === 0) return false;
  await record(tx, { orgId, at: now, type: "token.revoked", actor, subject: `${kind}/${id}` });
  if (kind === "service_token") await tx.notify("auth", `service ${id}`);
  return true;
}

/** What the person has made and still opens something; in one organization, or in all. */
async function tokensMadeBy(
  reader: Pick<Reader, "all">,
  userId: number,
  now: number,
  org?: { id: number },
): Promise<(IssuedToken & { orgId: number })[]> {
  const made = (kind: TokenKind, stillGood: string) =>
    `SELECT '${kind}' AS kind, t.id AS id, t.name, t.org_id AS org_id, o.slug
     FROM ${kind}s t JOIN organizations o ON o.id = t.org_id AND o.deleted_at IS NULL
     WHERE t.created_by = $1 AND t.org_id = coalesce($3, t.org_id) AND t.revoked_at IS NULL AND ${stillGood}`;
  const rows = await reader.all(
    `${made("registration_token", "t.used < t.uses AND t.expires_at > $2")}
     UNION ALL ${made("service_token", "(t.expires_at IS NULL OR t.expires_at > $2)")} ORDER BY org_id, kind, id`,
    [userId, now, org?.id ?? null],
  );
  return rows.map((row) => ({
    org_slug: textOf(row, "slug"),
    kind: textOf(row, "kind") === "service_token" ? "service_token" : "registration_token",
    id: numberOf(row, "id"),
    name: textOrNull(row, "name"),
    orgId: numberOf(row, "org_id"),
  }));
}

export type TokensOfGone = { tokens_left: IssuedToken[]; tokens_revoked: IssuedToken[] };

/** Of somebody who goes, in the transaction in which they go. */
export async function settleTokens(
  tx: Transaction,
  userId: number,
  by: { actor: Actor; now: number; revokes: boolean },
  org?: { id: number },
): Promise<TokensOfGone> {
  const tokens = await tokensMadeBy(tx, userId, by.now, org);
  if (by.revokes) for (const each of tokens) await revoke(tx, each, by.actor, by.now);
  const told = tokens.map(({ org_slug, kind, id, name }) => ({ org_slug, kind, id, name }));
  return by.revokes ? { tokens_left: [], tokens_revoked: told } : { tokens_left: told, tokens_revoked: [] };
}

/** For the event that says that they went. */
export function tokensTold(tokens: TokensOfGone): { after?: TokensOfGone } {
  return Object.values(tokens).every((each) => each.length === 0) ? {} : { after: tokens };
}
