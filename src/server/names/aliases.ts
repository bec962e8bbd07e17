// Aliases: further names of a node, and names of addresses behind a router. An alias never gets the name of a node, and
// gives way to a node that gets its name later.

import { maxAliases, type Alias, type AliasRequest } from "../../api/names.ts";
import { formatTime } from "../../base/quantities.ts";
import { AppError, invalidField } from "../../base/errors.ts";
import { networkContains, parseAddress, parseNetwork, formatAddress } from "../../base/ip.ts";
import { hostLabels } from "../../protocol/host-labels.ts";
import { record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import { editWithoutTests } from "../policy/edit-policy.ts";
import { ifNotUnique, type Reader, type Row, type Transaction } from "../store/database.ts";
import { findNode } from "../store/nodes.ts";
import { computed, joined, queryNumber, queryOne, text } from "../store/table.ts";
import { nameAliases } from "../store/tables/nodes.ts";
import { hasNode } from "./publish.ts";
import { raiseNamesVersion } from "../store/versions.ts";
import { keptVersions } from "../allocation/held-names.ts";

type Org = { id: number };

const aliasPick = joined(
  "a",
  nameAliases.pick("id", "name", "nodeId", "address", "isShadowed", "createdAt"),
  "n",
  computed({ nodeName: text() }),
);
const columns = "a.id, a.name, a.node_id, a.address, a.is_shadowed, a.created_at, n.name AS node_name";
/** In place of a table: the aliases that are not deleted, each with the name of its node. */
const namedAliases = `(SELECT ${columns}, a.org_id FROM name_aliases a JOIN nodes n ON n.id = a.node_id
  WHERE a.deleted_at IS NULL) aliases`;

/** For lists of the API: the table, its columns, and how a row is shown. */
export const aliasList = {
  table: namedAliases,
  columns: "id, name, node_id, address, is_shadowed, created_at, node_name",
  toItem: aliasOf,
};

function aliasOf(row: Row): Alias {
  const { id, name, nodeId, nodeName, address, isShadowed, createdAt } = aliasPick.parse(row);
  return {
    id,
    name,
    node: nodeId,
    node_name: nodeName,
    address,
    is_shadowed: isShadowed,
    created_at: formatTime(createdAt),
  };
}

/** Throws conflict, name_taken, validation_failed. Names let no packet pass, so no test of the policy is run. */
export async function createAlias(
  { db, system }: Store,
  org: Org,
  request: AliasRequest,
  actor: Actor,
): Promise<Alias> {
  const now = system.now();
  const created = db.writeFor({ org: org.id }, (tx) =>
    editWithoutTests(tx, { orgId: org.id, now, actor }, async () => {
      const { id, address } = await insertAlias(tx, org, request, now);
      const after = { name: request.name, node: request.node, address };
      await record(tx, { ...eventOf(org, now, actor, request.name), type: "name.created", after });
      return findAlias(tx, org, id);
    }),
  );
  const taken = (cause: unknown) =>
    new AppError("name_taken", `There is an alias ${request.name} already.`, {
      cause,
      errors: { name: ["This name is taken."] },
      hint: "Choose another name, or delete the alias that has it.",
    });
  return created.catch(ifNotUnique(taken));
}

/** Throws conflict, name_taken, validation_failed, or NotUnique if there is an alias with this name. */
export async function insertAlias(
  tx: Transaction,
  org: Org,
  request: AliasRequest,
  createdAt: number,
): Promise<{ id: number; address: string | null }> {
  await requireRoom(tx, org);
  const address = await checkTarget(tx, org, request);
  await requireFreeName(tx, org, request.name);
  const { id } = await nameAliases.insertReturning(tx, {
    orgId: org.id,
    name: request.name,
    nodeId: request.node,
    address,
    namesVersion: await raiseNamesVersion(tx, org.id),
    createdAt,
  });
  return { id, address };
}

/** Throws name_taken if a node has the name. */
export async function requireFreeName(reader: Reader, org: Org, name: string): Promise<void> {
  if (!(await hasNode(reader, org.id, name, ["active", "pending"]))) return;
  throw new AppError("name_taken", `A node is named ${name}. An alias never takes the name of a node.`, {
    errors: { name: ["This name is taken."] },
    hint: "Choose another name.",
  });
}

/**
 * For machines that no administrator registers. An alias yields to a node with its name, so whoever may add a machine
 * could take over a name such as that of the database. Throws name_taken.
 */
export async function refuseAliasName(reader: Reader, org: Org, name: string): Promise<void> {
  for (const label of hostLabels(name)) {
    if ((await nameAliases.find(reader, { orgId: org.id, name: label, deletedAt: null })) === undefined)
      continue;
    throw new AppError("name_taken", `${label} is an alias of another node.`, {
      errors: { name: ["This name is taken."] },
      hint: "Choose another name, or ask an administrator to delete the alias.",
    });
  }
}

/** Throws conflict if the organization has its maximum. */
async function requireRoom(tx: Transaction, org: Org): Promise<void> {
  const sql = "SELECT count(*) AS n FROM name_aliases WHERE org_id = $1 AND deleted_at IS NULL";
  requireFewAliases((await queryNumber(tx, sql, [org.id])) + 1);
}

/** Throws conflict. `count`: aliases that the organization would have. */
export function requireFewAliases(count: number): void {
  if (count <= maxAliases) return;
  throw new AppError(
    "conflict",
    `The organization has ${maxAliases} aliases, the maximum. Delete aliases that are not needed.`,
  );
}

/** Returns the address in its canonical form. Throws validation_failed. */
async function checkTarget(tx: Transaction, org: Org, request: AliasRequest): Promise<string | null> {
  const node = await findNode(tx, org.id, request.node).catch((error: unknown) => {
    if (!(error instanceof AppError) || error.code !== "not_found") throw error;
    return undefined;
  });
  if (node === undefined || node.state === "revoked")
    throw invalidField("node", `There is no node ${request.node}.`);
  if (node.ephemeralSilenceS !== null) throw invalidField("node", `The node ${node.name} is ephemeral.`);
  return requireRouted(node, request.address ?? null);
}

/** Returns the address in its canonical form. Throws validation_failed if it is not behind the node. */
export function requireRouted(
  node: { name: string; subnets: readonly string[] },
  address: string | null,
): string | null {
  if (address === null) return null;
  const parsed = parseAddress(address);
  if (parsed === undefined) throw invalidField("address", `${address} is no IP address.`);
  const isRouted = node.subnets.some((subnet) => {
    const network = parseNetwork(subnet);
    return network !== undefined && networkContains(network, parsed);
  });
  if (isRouted) return formatAddress(parsed);
  throw invalidField("address", `${address} is in no subnet that the node ${node.name} routes.`);
}

async function findAlias(reader: Reader, org: Org, id: number): Promise<Alias> {
  const sql = `SELECT ${aliasList.columns} FROM ${namedAliases} WHERE org_id = $1 AND id = $2`;
  const found = await queryOne(reader, { parse: aliasOf }, sql, [org.id, id]);
  if (found === undefined) throw new AppError("not_found", "There is no such alias.");
  return found;
}

/** Throws not_found. */
export async function deleteAlias({ db, system }: Store, org: Org, id: number, actor: Actor): Promise<void> {
  const now = system.now();
  await db.writeFor({ org: org.id }, (tx) =>
    editWithoutTests(tx, { orgId: org.id, now, actor }, async () => {
      const { name } = await findAlias(tx, org, id);
      await removeAlias(tx, org, id, now);
      await record(tx, { ...eventOf(org, now, actor, name), type: "name.deleted" });
    }),
  );
}

/** The row stays as deleted, so that nodes which have the alias learn of it. */
export async function removeAlias(tx: Transaction, org: Org, id: number, now: number): Promise<void> {
  const namesVersion = await raiseNamesVersion(tx, org.id);
  await nameAliases.update(tx, { id }, { deletedAt: now, namesVersion });
  // A node whose version is older gets the whole list.
  await tx.run(
    "DELETE FROM name_aliases WHERE org_id = $1 AND deleted_at IS NOT NULL AND names_version <= $2",
    [org.id, namesVersion - keptVersions],
  );
}

function eventOf(org: Org, at: number, actor: Actor, name: string) {
  return { orgId: org.id, at, actor, subject: `name/${name}` };
}
