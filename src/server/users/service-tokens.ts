// Tokens for programs. A service token has the rights of a role in one organization, but none over users or tokens. It is
// shown once and stored as a hash.

import {
  tokenScopes,
  type NewServiceToken,
  type ServiceToken,
  type ServiceTokenRequest,
} from "../../api/tokens/service-tokens.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { writeAsAdmin } from "../require-role.ts";
import { record, type Actor } from "../audit/record.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { Store } from "../options.ts";
import type { Row } from "../store/database.ts";
import { serviceTokens } from "../store/tables/sessions.ts";

const defaultLifetimeS = 90 * 86_400;
type Org = Pick<OrganizationAccess, "id">;
const shown = serviceTokens.pick(
  "id",
  "name",
  "role",
  "expiresAt",
  "scopes",
  "networks",
  "createdAt",
  "createdBy",
  "lastUsedAt",
);
export const serviceTokenColumns = shown.select();

export function serviceTokenOf(row: Row): ServiceToken {
  return showServiceToken(shown.parse(row));
}

function showServiceToken(token: ReturnType<typeof shown.parse>) {
  const { id, name, role, expiresAt, scopes, networks, createdAt, createdBy, lastUsedAt } = token;
  return {
    id,
    name,
    role,
    expires_at: timeOrNull(expiresAt),
    // Null: a token of an earlier release, which has all rights of its role.
    scopes: scopes?.split(" ") ?? null,
    // Null: valid from everywhere.
    networks: networks?.split(" ") ?? null,
    created_at: formatTime(createdAt),
    created_by: createdBy,
    last_used_at: timeOrNull(lastUsedAt),
  };
}

/** Creates a token for a program. The answer alone has the token. Throws validation_failed for scopes that the role cannot use. */
export async function createServiceToken(
  { db, system }: Store,
  org: Org,
  request: ServiceTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<NewServiceToken> {
  const token = makeOpaqueToken(system.random);
  const at = system.now();
  const { name, role, expires_in = defaultLifetimeS, networks } = request;
  const scopes = request.scopes ?? (role === "admin" ? tokenScopes : ["read"]);
  if (role === "member" && scopes.every((scope) => scope === "webhooks"))
    throw new AppError(
      "validation_failed",
      "A token of the role member can use nothing of the scope webhooks.",
      {
        errors: { scopes: ["Only admins may read or change webhooks."] },
        hint: "Create one with the role admin.",
      },
    );
  const created = await writeAsAdmin(db, org.id, by.actor, async (tx) => {
    const row = await serviceTokens.insertReturning(tx, {
      orgId: org.id,
      name,
      role,
      tokenHash: hashToken(token),
      expiresAt: at + expires_in * 1000,
      scopes: [...new Set(scopes)].join(" "),
      networks: networks?.join(" ") ?? null,
      createdBy: by.userId,
      createdAt: at,
    });
    const subject = `service_token/${row.id}`;
    const event = {
      orgId: org.id,
      at,
      actor: by.actor,
      subject,
      after: { name, role, scopes: [...scopes], networks: networks ?? null },
    };
    await record(tx, { ...event, type: "token.created" });
    return row;
  });
  return { ...showServiceToken(created), token };
}
