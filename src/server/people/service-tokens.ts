// Tokens for programs. A service token has the rights of a role in one organization, but none over users or tokens. It is
// shown once and stored as a hash.

import * as v from "valibot";
import { formatTime } from "../../duration.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { parseNetwork } from "../../ip.ts";
import { scopes } from "./token-scopes.ts";
import { requireRole } from "./late-rights.ts";
import { record, type Actor } from "../audit/record.ts";
import { ExpiresIn } from "../http/fields.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import type { Row } from "../store/database.ts";
import { serviceTokens } from "../store/tables/service-tokens.ts";
import { foreignText, label } from "../../text.ts";

const SourceNetwork = v.pipe(
  foreignText(64),
  v.trim(),
  v.transform((text) => (text.includes("/") ? text : `${text}/${text.includes(":") ? 128 : 32}`)),
  v.check((text) => parseNetwork(text) !== undefined, "Enter a network such as 192.0.2.0/24."),
);
const defaultLifetimeS = 90 * 86_400;
const Role = v.picklist(["member", "admin"]);
export const ServiceTokenRequest = v.strictObject({
  name: label(100),
  role: Role,
  /** Default: 90 days. */
  expires_in: v.optional(ExpiresIn),
  /** Default: all that the role can use. */
  scopes: v.optional(v.pipe(v.array(v.picklist(scopes)), v.minLength(1), v.maxLength(scopes.length))),
  /** The token is valid only from these. Default: everywhere. */
  networks: v.optional(v.pipe(v.array(SourceNetwork), v.minLength(1), v.maxLength(20))),
});
export type ServiceTokenRequest = v.InferOutput<typeof ServiceTokenRequest>;

export const ServiceToken = v.object({
  id: v.number(),
  name: v.string(),
  role: Role,
  expires_at: v.nullable(v.string()),
  /** Null: a token of an earlier release, which has all rights of its role. */
  scopes: v.nullable(v.array(v.string())),
  /** Null: valid from everywhere. */
  networks: v.nullable(v.array(v.string())),
  created_at: v.string(),
  /** The user who made it. Null: the command line of the control plane itself, or a service token. */
  created_by: v.nullable(v.number()),
  /** To some minutes. Null: never, or not since the control plane records it. */
  last_used_at: v.nullable(v.string()),
});
export type ServiceToken = v.InferOutput<typeof ServiceToken>;
export const NewServiceToken = v.object({ ...ServiceToken.entries, token: v.string() });

type Store = Pick<ServerOptions, "db" | "system">;
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
  const { id, name, role, expiresAt, scopes: given, networks, createdAt, createdBy, lastUsedAt } = token;
  return {
    id,
    name,
    role,
    expires_at: expiresAt === null ? null : formatTime(expiresAt),
    scopes: given?.split(" ") ?? null,
    networks: networks?.split(" ") ?? null,
    created_at: formatTime(createdAt),
    created_by: createdBy,
    last_used_at: lastUsedAt === null ? null : formatTime(lastUsedAt),
  };
}

export async function createServiceToken(
  { db, system }: Store,
  org: Org,
  request: ServiceTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<v.InferOutput<typeof NewServiceToken>> {
  const token = makeOpaqueToken(system.random);
  const at = system.now();
  const { name, role, expires_in = defaultLifetimeS, scopes: asked, networks } = request;
  const given = asked ?? (role === "admin" ? scopes : ["read"]);
  const created = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, by.actor);
    const row = await serviceTokens.insertReturning(tx, {
      orgId: org.id,
      name,
      role,
      tokenHash: hashToken(token),
      expiresAt: at + expires_in * 1000,
      scopes: [...new Set(given)].join(" "),
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
      after: { name, role, scopes: [...given], networks: networks ?? null },
    };
    await record(tx, { ...event, type: "token.created" });
    return row;
  });
  return { ...showServiceToken(created), token };
}
