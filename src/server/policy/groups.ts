// Groups of nodes. A group is created when a node, a token or a rule first uses it. The nodes' certificates hold the
// membership.

import type { Group, GroupRequest } from "../../api/groups.ts";
import { AppError, invalidField } from "../../base/errors.ts";
import { record, type Actor } from "../audit/record.ts";
import { editWithoutTests, storedTests } from "./edit-policy.ts";
import { reservedSentence } from "./firewall.ts";
import { isReservedGroup } from "../../api/values.ts";
import type { Org } from "../http/route.ts";
import type { ServerOptions, Store } from "../options.ts";
import { ifNotUnique, type Reader, type Row, type Transaction } from "../store/database.ts";
import { computed, queryOne, text } from "../store/table.ts";
import { isOpenToken } from "../store/tables/joining.ts";
import { nodeGroups } from "../store/tables/nodes.ts";
import { policies } from "../store/tables/policies.ts";

const group = nodeGroups.pick("id", "name", "description");
export const groupColumns = group.select();
export const groupOf = (row: Row): Group => group.parse(row);

/** Creates the groups that do not exist yet. Throws validation_failed for a new one with a reserved prefix. */
export async function ensureGroups(
  tx: Transaction,
  orgId: number,
  names: readonly string[],
  now: number,
): Promise<void> {
  for (const name of names.filter(isReservedGroup))
    if ((await nodeGroups.find(tx, { orgId, name })) === undefined) throw reservedName(name, "groups");
  await insertGroups(tx, orgId, names, now);
}

/** Whether one of these groups does not exist yet: a request that names it creates it. */
export async function namesNewGroup(
  reader: Reader,
  orgId: number,
  names: readonly string[],
): Promise<boolean> {
  for (const name of new Set(names))
    if ((await nodeGroups.find(reader, { orgId, name })) === undefined) return true;
  return false;
}

const reservedName = (name: string, field: string) => invalidField(field, reservedSentence(name));

/** Creates the groups that do not exist yet, whatever their names: also reserved ones, which existed before. */
export async function insertGroups(
  tx: Transaction,
  orgId: number,
  names: readonly string[],
  now: number,
): Promise<void> {
  for (const name of names) {
    await nodeGroups.upsert(tx, { orgId, name, createdAt: now }, "ON CONFLICT (org_id, name) DO NOTHING");
  }
}

export async function createGroup(
  { db, system }: Store,
  org: Org,
  { name, description }: GroupRequest,
  actor: Actor,
): Promise<Group> {
  if (isReservedGroup(name)) throw reservedName(name, "name");
  const created = editGroups({ db, system }, org, actor, async (tx) => {
    const createdAt = system.now();
    const { id } = await nodeGroups.insertReturning(tx, { orgId: org.id, name, description, createdAt });
    await record(tx, { ...groupEvent(org, system, actor, name), type: "group.created" });
    return { id, name, description };
  });
  const taken = (cause: unknown) => new AppError("name_taken", `A group ${name} already exists.`, { cause });
  return created.catch(ifNotUnique(taken));
}

export async function findGroup(reader: Reader, org: Org, name: string): Promise<Group> {
  const row = await nodeGroups.find(reader, { orgId: org.id, name });
  if (row === undefined) throw new AppError("not_found", "There is no such group.");
  return { id: row.id, name, description: row.description };
}

export async function describeGroup(
  { db, system }: Store,
  org: Org,
  name: string,
  description: string | undefined,
  actor: Actor,
): Promise<Group> {
  return editGroups({ db, system }, org, actor, async (tx) => {
    const before = await findGroup(tx, org, name);
    if (description === undefined || description === before.description) return before;
    await nodeGroups.update(tx, { id: before.id }, { description });
    await record(tx, { ...groupEvent(org, system, actor, name), type: "group.updated" });
    return { ...before, description };
  });
}

/**
 * The first use of a group. $1: organization, $2: the group's name in JSON, $3: the same as a peer or target, $4: now, ms. The columns
 * hold JSON text: one in which a replacement changes something contains the name.
 */
const firstUse = `SELECT 'node ' || name AS found FROM nodes
    WHERE org_id = $1 AND state <> 'revoked' AND (replace(groups, $2, '') <> groups OR replace(exit_groups, $2, '') <> exit_groups)
  UNION ALL SELECT 'firewall rule ' || id FROM firewall_rules
    WHERE org_id = $1 AND (replace(peer, $3, '') <> peer OR replace(target, $3, '') <> target)
  UNION ALL SELECT 'registration token ' || id FROM registration_tokens
    WHERE org_id = $1 AND ${isOpenToken("$4")} AND replace(groups, $2, '') <> groups
  UNION ALL SELECT 'waiting registration ' || id FROM registration_requests
    WHERE org_id = $1 AND state <> 'refused' AND expires_at > $4 AND replace(groups, $2, '') <> groups
  UNION ALL SELECT 'the policy, which puts users into it' FROM group_people
    WHERE org_id = $1 AND '"' || name || '"' = $2
  LIMIT 1`;

/** `node web1`, for example; undefined if nothing uses the group. */
export async function useOfGroup(
  tx: Reader,
  orgId: number,
  name: string,
  now: number,
): Promise<string | undefined> {
  // Group names need no escapes in JSON. LIKE would match their _ with any letter.
  const quoted = JSON.stringify(name);
  const params = [orgId, quoted, `"group":${quoted}`, now];
  return (await queryOne(tx, computed({ found: text() }), firstUse, params))?.found;
}

function editGroups<T>(
  { db, system }: Store,
  { id: orgId }: Org,
  actor: Actor,
  change: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const editor = { orgId, now: system.now(), actor };
  return db.writeFor({ org: orgId }, (tx) => editWithoutTests(tx, editor, () => change(tx)));
}

/**
 * `test 2 of the policy`, for example; undefined if no test names the group. useOfGroup leaves tests out, because an application of
 * a policy file deletes groups before it stores the file's tests.
 */
async function testOfGroup(tx: Reader, orgId: number, name: string): Promise<string | undefined> {
  const tests = storedTests(await policies.find(tx, { orgId }));
  const at = tests.findIndex((test) =>
    [test.from, test.to].some((side) => "group" in side && side.group === name),
  );
  return at === -1 ? undefined : `test ${at + 1} of the policy`;
}

/**
 * Throws conflict for a group in use: deleting it would change which nodes reach each other, or leave a test that no policy file
 * could hold.
 */
export async function deleteGroup(
  { db, system }: Store,
  org: Org,
  name: string,
  actor: Actor,
): Promise<void> {
  await editGroups({ db, system }, org, actor, async (tx) => {
    const { id } = await findGroup(tx, org, name);
    const use = (await useOfGroup(tx, org.id, name, system.now())) ?? (await testOfGroup(tx, org.id, name));
    if (use !== undefined) throw new AppError("conflict", `The group ${name} is in use by ${use}.`);
    await nodeGroups.delete(tx, { id });
    await record(tx, { ...groupEvent(org, system, actor, name), type: "group.deleted" });
  });
}

function groupEvent(org: Org, system: ServerOptions["system"], actor: Actor, name: string) {
  return { orgId: org.id, at: system.now(), actor, subject: `group/${name}` };
}
