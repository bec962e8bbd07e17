// Tokens for programs. A service token has the rights of a role in one organization, but none over users or tokens. It is
// shown once and stored as a hash.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { requireRole } from "./late-rights.ts";
import { record, type Actor } from "../audit/record.ts";
import { ExpiresIn } from "../http/fields.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import type { Row } from "../store/database.ts";
import { serviceTokens } from "../store/tables/service-tokens.ts";

const Role = v.picklist(["member", "admin"]);
export const ServiceTokenRequest = v.strictObject({
  name: v.pipe(v.string(), v.trim(), v.minLength(1), v.maxLength(100)),
  role: Role,
  expires_in: v.optional(ExpiresIn),
});
export type ServiceTokenRequest = v.InferOutput<typeof ServiceTokenRequest>;

export const ServiceToken = v.object({
  id: v.number(),
  name: v.string(),
  role: Role,
  expires_at: v.nullable(v.string()),
  created_at: v.string(),
});
export type ServiceToken = v.InferOutput<typeof ServiceToken>;
export const NewServiceToken = v.object({ ...ServiceToken.entries, token: v.string() });

type Store = Pick<ServerOptions, "db" | "system">;
type Org = Pick<OrganizationAccess, "id">;
const shown = serviceTokens.pick("id", "name", "role", "expiresAt", "createdAt");
export const serviceTokenColumns = shown.select();

export function serviceTokenOf(row: Row): ServiceToken {
  return showServiceToken(shown.parse(row));
}

function showServiceToken({ id, name, role, expiresAt, createdAt }: ReturnType<typeof shown.parse>) {
  const expires_at = expiresAt === null ? null : formatTime(expiresAt);
  return { id, name, role, expires_at, created_at: formatTime(createdAt) };
}

export async function createServiceToken(
  { db, system }: Store,
  org: Org,
  request: ServiceTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<v.InferOutput<typeof NewServiceToken>> {
  const token = makeOpaqueToken(system.random);
  const at = system.now();
  const { name, role, expires_in } = request;
  const created = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, by.actor);
    const row = await serviceTokens.insertReturning(tx, {
      orgId: org.id,
      name,
      role,
      tokenHash: hashToken(token),
      expiresAt: expires_in === undefined ? null : at + expires_in * 1000,
      createdBy: by.userId,
      createdAt: at,
    });
    const subject = `service_token/${row.id}`;
    const event = { orgId: org.id, at, actor: by.actor, subject, after: { name, role } };
    await record(tx, { ...event, type: "token.created" });
    return row;
  });
  return { ...showServiceToken(created), token };
}
