// Tokens for programs: the rights of a role in one organization, never over people or tokens. Shown once, stored hashed.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { requireRole } from "./late-rights.ts";
import { record, type Actor } from "../audit/record.ts";
import { ExpiresIn } from "../http/fields.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import { numberOf, numberOrNull, textOf, type Row } from "../store/database.ts";

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
export const serviceTokenColumns = "id, name, role, expires_at, created_at";

export function serviceTokenOf(row: Row): ServiceToken {
  const expires = numberOrNull(row, "expires_at");
  return {
    id: numberOf(row, "id"),
    name: textOf(row, "name"),
    role: textOf(row, "role") === "admin" ? "admin" : "member",
    expires_at: expires === null ? null : formatTime(expires),
    created_at: formatTime(numberOf(row, "created_at")),
  };
}

export async function createServiceToken(
  { db, system }: Store,
  org: Org,
  request: ServiceTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<v.InferOutput<typeof NewServiceToken>> {
  const token = makeOpaqueToken(system.random);
  const now = system.now();
  const expiresAt = request.expires_in === undefined ? null : now + request.expires_in * 1000;
  const made = await db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor);
    const row = await tx.get(
      `INSERT INTO service_tokens (org_id, name, role, token_hash, expires_at, created_by, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${serviceTokenColumns}`,
      [org.id, request.name, request.role, hashToken(token), expiresAt, by.userId, now],
    );
    const created = serviceTokenOf(row ?? {});
    const after = { name: created.name, role: created.role };
    await record(tx, { ...happened(org, now, by.actor, created.id), type: "token.created", after });
    return created;
  });
  return { ...made, token };
}

function happened(org: Org, at: number, actor: Actor, tokenId: number) {
  return { orgId: org.id, at, actor, subject: `service_token/${tokenId}` };
}
