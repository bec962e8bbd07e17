// Names of groups. A group that a node, a token or a rule speaks of exists from then on; who is in it stands in the
// nodes' certificates.

import * as v from "valibot";
import { AppError } from "../../errors.ts";
import { record, type Actor } from "../audit/record.ts";
import { GroupName } from "./firewall.ts";
import type { OrganizationAccess } from "../http/route.ts";
import type { Services } from "../services.ts";
import { NotUnique, numberOf, textOf, type Row, type Transaction } from "../store/database.ts";

const Description = v.pipe(v.string(), v.trim(), v.maxLength(500));
export const GroupRequest = v.strictObject({ name: GroupName, description: v.optional(Description, "") });
export const GroupPatch = v.strictObject({ description: v.optional(Description) });

export const Group = v.object({ id: v.number(), name: v.string(), description: v.string() });
export type Group = v.InferOutput<typeof Group>;

type Store = Pick<Services, "db" | "system">;
type Org = Pick<OrganizationAccess, "id" | "slug">;

export const groupColumns = "id, name, description";

export function groupOf(row: Row): Group {
  return {
    id: numberOf(row, "id"),
    name: textOf(row, "name"),
    description: textOf(row, "description"),
  };
}

/** Makes those that are not there yet. */
export async function ensureGroups(
  tx: Transaction,
  orgId: number,
  names: readonly string[],
  now: number,
): Promise<void> {
  for (const name of names) {
    await tx.run(
      "INSERT INTO node_groups (org_id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT (org_id, name) DO NOTHING",
      [orgId, name, now],
    );
  }
}

export async function createGroup(
  { db, system }: Store,
  org: Org,
  { name, description }: v.InferOutput<typeof GroupRequest>,
  actor: Actor,
): Promise<Group> {
  const created = db.write(async (tx) => {
    const row = await tx.get(
      `INSERT INTO node_groups (org_id, name, description, created_at) VALUES ($1, $2, $3, $4)
       RETURNING ${groupColumns}`,
      [org.id, name, description, system.now()],
    );
    await record(tx, { ...happened(org, system, actor, name), type: "group.created" });
    return groupOf(row ?? {});
  });
  return created.catch((error: unknown) => {
    if (!(error instanceof NotUnique)) throw error;
    throw new AppError("name_taken", `There is a group ${name} already.`, { cause: error });
  });
}

export async function findGroup(reader: Pick<Transaction, "get">, org: Org, name: string): Promise<Group> {
  const row = await reader.get(`SELECT ${groupColumns} FROM node_groups WHERE org_id = $1 AND name = $2`, [
    org.id,
    name,
  ]);
  if (row === undefined) throw new AppError("not_found", "There is no such group.");
  return groupOf(row);
}

export async function describeGroup(
  { db, system }: Store,
  org: Org,
  name: string,
  description: string | undefined,
  actor: Actor,
): Promise<Group> {
  return db.write(async (tx) => {
    const before = await findGroup(tx, org, name);
    if (description === undefined || description === before.description) return before;
    await tx.run("UPDATE node_groups SET description = $3 WHERE org_id = $1 AND name = $2", [
      org.id,
      name,
      description,
    ]);
    await record(tx, { ...happened(org, system, actor, name), type: "group.updated" });
    return { ...before, description };
  });
}

/** A group that a node, a rule or a token still needs stays: taking it away would change who may reach whom. */
export async function deleteGroup(
  { db, system }: Store,
  org: Org,
  name: string,
  actor: Actor,
): Promise<void> {
  await db.write(async (tx) => {
    await findGroup(tx, org, name);
    // Names need no escapes in JSON (GroupName), and LIKE would take their _ for any letter.
    const node = await tx.get(
      `SELECT name FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND replace(groups, $2, '') <> groups LIMIT 1`,
      [org.id, JSON.stringify(name)],
    );
    if (node !== undefined) throw inUse(name, `node ${textOf(node, "name")} is in it`);
    const spoken = `"group":${JSON.stringify(name)}`;
    const rule = await tx.get(
      `SELECT id FROM firewall_rules
       WHERE org_id = $1 AND (replace(peer, $2, '') <> peer OR replace(target, $2, '') <> target) LIMIT 1`,
      [org.id, spoken],
    );
    if (rule !== undefined) throw inUse(name, `firewall rule ${numberOf(rule, "id")} speaks of it`);
    const token = await tx.get(
      `SELECT id FROM registration_tokens WHERE org_id = $1 AND revoked_at IS NULL AND used < uses AND expires_at > $3
         AND replace(groups, $2, '') <> groups LIMIT 1`,
      [org.id, JSON.stringify(name), system.now()],
    );
    if (token !== undefined) throw inUse(name, `registration token ${numberOf(token, "id")} gives it`);
    await tx.run("DELETE FROM node_groups WHERE org_id = $1 AND name = $2", [org.id, name]);
    await record(tx, { ...happened(org, system, actor, name), type: "group.deleted" });
  });
}

function inUse(name: string, why: string): AppError {
  return new AppError("conflict", `The group ${name} is in use: ${why}.`);
}

function happened(org: Org, system: Services["system"], actor: Actor, name: string) {
  return { orgId: org.id, at: system.now(), actor, subject: `group/${name}` };
}

/** All of them, for the admin commands. */
export async function listGroups(reader: Pick<Transaction, "all">, org: Org): Promise<Group[]> {
  const rows = await reader.all(`SELECT ${groupColumns} FROM node_groups WHERE org_id = $1 ORDER BY id`, [
    org.id,
  ]);
  return rows.map(groupOf);
}
