// Tokens with which new machines register: made and listed. Shown once, stored hashed. Who uses one up is the
// registration itself (in the statement that checks it).

import * as v from "valibot";
import { brand } from "../../brand.ts";
import { quoteWord } from "../../plan.ts";
import { formatTime } from "../../duration.ts";
import { AppError } from "../../errors.ts";
import { isLoopback } from "../../loopback.ts";
import { hashToken, makeOpaqueToken } from "../../pki/opaque.ts";
import { requireRole } from "../people/late-rights.ts";
import { record, type Actor } from "../audit/record.ts";
import { NodeName } from "../../protocol.ts";
import { GroupName, NodeId } from "../policy/firewall.ts";
import { ensureGroups } from "../policy/groups.ts";
import { ExpiresIn } from "../http/fields.ts";
import { insertPending } from "./nodes.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { ServerOptions } from "../options.ts";
import {
  numberOf,
  numberOrNull,
  textOrNull,
  textsOf,
  truthOf,
  type Row,
  type Transaction,
} from "../store/database.ts";

export const RegistrationTokenRequest = v.pipe(
  v.strictObject({
    name: v.optional(v.pipe(v.string(), v.trim(), v.minLength(1), v.maxLength(100))),
    uses: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1_000_000)), 1),
    expires_in: v.optional(ExpiresIn, "24h"),
    groups: v.optional(v.pipe(v.array(GroupName), v.maxLength(64)), []),
    is_lighthouse: v.optional(v.boolean(), false),
    /** Good for this pending node alone, by its id, or by its name: then it is made where there is none. */
    node_id: v.optional(NodeId),
    node_name: v.optional(NodeName),
  }),
  v.forward(
    v.check(
      ({ node_id, node_name }) => node_id === undefined || node_name === undefined,
      "Give node_id or node_name, not both.",
    ),
    ["node_name"],
  ),
);
export type RegistrationTokenRequest = v.InferOutput<typeof RegistrationTokenRequest>;

export const RegistrationToken = v.object({
  id: v.number(),
  name: v.nullable(v.string()),
  uses: v.number(),
  used: v.number(),
  groups: v.array(v.string()),
  is_lighthouse: v.boolean(),
  node_id: v.nullable(v.number()),
  expires_at: v.string(),
  created_at: v.string(),
});
export type RegistrationToken = v.InferOutput<typeof RegistrationToken>;
export const NewRegistrationToken = v.object({
  ...RegistrationToken.entries,
  token: v.string(),
  /** To paste on the new machine; the token goes in by standard input, never as an argument. */
  command: v.string(),
});
export type NewRegistrationToken = v.InferOutput<typeof NewRegistrationToken>;

type Org = Pick<OrganizationAccess, "id" | "slug">;
export const registrationTokenColumns =
  "id, name, uses, used, groups, is_lighthouse, node_id, expires_at, created_at";

export function registrationTokenOf(row: Row): RegistrationToken {
  return {
    id: numberOf(row, "id"),
    name: textOrNull(row, "name"),
    uses: numberOf(row, "uses"),
    used: numberOf(row, "used"),
    groups: textsOf(row, "groups"),
    is_lighthouse: truthOf(row, "is_lighthouse"),
    node_id: numberOrNull(row, "node_id"),
    expires_at: formatTime(numberOf(row, "expires_at")),
    created_at: formatTime(numberOf(row, "created_at")),
  };
}

export async function createRegistrationToken(
  services: Pick<ServerOptions, "db" | "system" | "publicUrl" | "caFingerprint">,
  org: Org,
  request: RegistrationTokenRequest,
  by: { userId: number | null; actor: Actor },
): Promise<NewRegistrationToken> {
  const { db, system } = services;
  const token = makeOpaqueToken(system.random);
  const now = system.now();
  const made = await db.write(async (tx) => {
    await requireRole(tx, org.id, by.actor);
    const nodeId = await nodeOf(tx, org, request, by.actor, now);
    await ensureGroups(tx, org.id, request.groups, now);
    const row = await tx.get(
      `INSERT INTO registration_tokens
         (org_id, name, token_hash, uses, groups, is_lighthouse, node_id, expires_at, created_by, created_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING ${registrationTokenColumns}`,
      [
        org.id,
        request.name ?? null,
        hashToken(token),
        nodeId === undefined ? request.uses : 1,
        JSON.stringify(request.groups),
        request.is_lighthouse ? 1 : 0,
        nodeId ?? null,
        now + request.expires_in * 1000,
        by.userId,
        now,
      ],
    );
    const created = registrationTokenOf(row ?? {});
    await record(tx, {
      orgId: org.id,
      at: now,
      type: "token.created",
      actor: by.actor,
      subject: `registration_token/${created.id}`,
      after: { uses: created.uses, groups: created.groups, expires_at: created.expires_at },
    });
    return created;
  });
  return { ...made, token, command: registerLine(services, org.slug, token) };
}

/** The node that the token is good for alone, if it is for one. */
async function nodeOf(
  tx: Transaction,
  org: Org,
  { node_id, node_name }: Pick<RegistrationTokenRequest, "node_id" | "node_name">,
  actor: Actor,
  now: number,
): Promise<number | undefined> {
  const [column, value] = node_id === undefined ? ["name", node_name] : ["id", node_id];
  if (value === undefined) return undefined;
  const row = await tx.get(
    `SELECT id, state, registered_at FROM nodes WHERE org_id = $1 AND ${column} = $2 AND state <> 'revoked'`,
    [org.id, value],
  );
  // The name may be held: what an administrator gives to a machine by name is meant for it.
  if (row === undefined && node_name !== undefined)
    return (await insertPending(tx, org, { name: node_name }, actor, now)).id;
  if (row?.["state"] === "pending" || (row?.["state"] === "active" && row["registered_at"] === null))
    return numberOf(row, "id");
  const [field, what] = node_id === undefined ? ["node_name", "name"] : ["node_id", "id"];
  throw new AppError("validation_failed", "The request does not hold what it should.", {
    errors: { [field]: [`There is no pending node with this ${what}.`] },
  });
}

/** The line to paste on a new machine. */
export function registerLine(
  { publicUrl, caFingerprint }: Pick<ServerOptions, "publicUrl" | "caFingerprint">,
  slug: string,
  token: string,
): string {
  const { protocol, hostname } = new URL(publicUrl);
  return [
    `printf '%s\\n' '${token}' | ${brand.executable} register`,
    `--api-base ${quoteWord(publicUrl)} --org-slug ${quoteWord(slug)}`,
    ...(caFingerprint === undefined ? [] : [`--ca-fingerprint ${quoteWord(caFingerprint)}`]),
    ...(protocol === "http:" && !isLoopback(hostname) ? ["--allow-plain-http"] : []),
    "--registration-token-file -",
  ].join(" ");
}

/** All that are not revoked, for the admin commands. */
export async function listRegistrationTokens(
  reader: Pick<Transaction, "all">,
  org: Org,
): Promise<RegistrationToken[]> {
  const rows = await reader.all(
    `SELECT ${registrationTokenColumns} FROM registration_tokens
     WHERE org_id = $1 AND revoked_at IS NULL ORDER BY id`,
    [org.id],
  );
  return rows.map(registrationTokenOf);
}
