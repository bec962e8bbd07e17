// Sessions of command lines: families of refresh tokens, each with a row in the list of the user's sessions. A family has ended
// when one of its tokens is revoked, also for access tokens, and for a token that is being made meanwhile.

import { clean } from "../../../base/log.ts";
import { cutText } from "../../../base/text.ts";
import type { AskedRequest, Call } from "../../http/route.ts";
import type { Reader, Transaction } from "../../store/database.ts";
import { browserSessions, refreshTokens } from "../../store/tables/sessions.ts";

/** Where a session is used. */
export type From = { address: string; device: string };

const maxDeviceLength = 200;

export const deviceOf = ({ headers }: Pick<AskedRequest, "headers">): string =>
  cutText(clean(headers.get("user-agent") ?? ""), maxDeviceLength);

export const fromOf = ({ address, request }: Pick<Call, "address" | "request">): From => ({
  address,
  device: deviceOf(request),
});

/**
 * Lists a family among the sessions of its user, or records its use. `at`: of the sign-in or use, ms. Also lists a family that an
 * earlier release began.
 */
export async function listFamily(
  tx: Transaction,
  session: {
    userId: number;
    at: number;
    family: string;
    endsAt: number;
    factorAt: number | null;
    providerId: number | null;
  },
  // Without `from`, the list shows no place.
  { address, device }: From = { address: "", device: "" },
): Promise<void> {
  const { at, family, endsAt, ...kept } = session;
  const used = { endsAt, lastUsedAt: at, address };
  if ((await browserSessions.update(tx, { family }, used)) > 0) return;
  // A hash never has this form, so no cookie belongs to this session.
  const row = { ...kept, ...used, family, tokenHash: `family ${family}`, device, createdAt: at };
  await browserSessions.insert(tx, row);
}

const anyRevoked = "SELECT 1 AS yes FROM refresh_tokens WHERE family = $1 AND revoked_at IS NOT NULL LIMIT 1";

export async function hasFamilyEnded(reader: Reader, family: string): Promise<boolean> {
  return (await reader.get(anyRevoked, [family])) !== undefined;
}

export async function endFamily(tx: Transaction, family: string, now: number): Promise<void> {
  await refreshTokens.update(tx, { family, revokedAt: null }, { revokedAt: now });
  await browserSessions.delete(tx, { family });
  await tx.notify("auth", "session");
}
