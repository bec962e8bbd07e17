// Publishes changes of nodes to the names. A node is published as long as `named_as` equals what its columns say; an index
// holds the nodes that differ. So a change that was made without this file, by an older release for example, is found later,
// by the upkeep. A change of names has a version of its own, and raises no version of a configuration.

import { hostLabels, nodesWithLabel } from "../../protocol/host-labels.ts";
import { forAll, orgOf } from "../for-all.ts";
import type { ServerOptions } from "../options.ts";
import { requireLockOf, type Reader, type Transaction } from "../store/database.ts";
import { raiseNamesVersion } from "../store/versions.ts";
import { computed, integer, places, queryAll, text, truth } from "../store/table.ts";
import { nameAliases, isUnpublished, nodes, publishedText, type NodeRow } from "../store/tables/nodes.ts";

/** Nodes that get one version at most: one answer to a node can hold as many. */
const publishedTogether = 1000;

const nodeIds = nodes.pick("id");
/** `isLate`: its columns say something else than what is published. */
const latePick = computed({ id: integer(), name: text(), namedAs: text(), isLate: truth(0) });

/**
 * Publishes the changes of these nodes. The commit wakes waiting nodes. Only they are read: PostgreSQL cannot know that few
 * rows are unpublished, and looks at all nodes of the organization to find them.
 */
export async function publishNames(tx: Transaction, orgId: number, ids: readonly number[]): Promise<void> {
  for (let at = 0; at < ids.length; at += publishedTogether)
    await publishTogether(tx, orgId, ids.slice(at, at + publishedTogether));
}

async function publishTogether(tx: Transaction, orgId: number, ids: readonly number[]): Promise<void> {
  requireLockOf(tx, orgId);
  // Filtered here, not by SQL: PostgreSQL would read the index of unpublished nodes, with all nodes that were
  // unpublished a while ago.
  const rows = `SELECT id, name, named_as, CASE WHEN ${isUnpublished} THEN 1 ELSE 0 END AS is_late
    FROM nodes WHERE org_id = $1 AND id IN (${places(ids, 2)}) ORDER BY id`;
  const [found, aliases] = await Promise.all([
    queryAll(tx, latePick, rows, [orgId, ...ids]),
    nameAliases.all(tx, { orgId, deletedAt: null }),
  ]);
  const changed = found.filter(({ isLate }) => isLate);
  if (changed.length === 0) return;
  const publish = `UPDATE nodes SET names_version = (SELECT names_version FROM organizations WHERE id = $1),
     named_as = ${publishedText} WHERE org_id = $1 AND id IN (${places(changed, 2)})`;
  // In this order: a transaction runs statements as they are called, and the second one reads what the first one raised.
  const [version] = await Promise.all([
    raiseNamesVersion(tx, orgId),
    tx.run(publish, [orgId, ...changed.map(({ id }) => id)]),
  ]);
  // What is published begins with the name.
  const formerNames = changed.flatMap(({ namedAs }) => namedAs.split(" ", 1));
  const names = new Set([...changed.map(({ name }) => name), ...formerNames]);
  await shadowAliases(tx, orgId, { aliases, names, version });
}

/** Tells the node, and all servers, that its `names` role was added or removed. Its peers see no difference. */
export async function publishNameServer(
  tx: Transaction,
  { id, orgId, state }: Pick<NodeRow, "id" | "orgId" | "state">,
): Promise<void> {
  if (state !== "active") return;
  await nodes.update(tx, { id }, { namesVersion: await raiseNamesVersion(tx, orgId) });
}

/** Hides aliases whose name a node has, and shows them again when the node is gone. */
async function shadowAliases(
  tx: Transaction,
  orgId: number,
  {
    aliases,
    names,
    version,
  }: {
    aliases: Awaited<ReturnType<typeof nameAliases.all>>;
    names: ReadonlySet<string>;
    version: number;
  },
): Promise<void> {
  const labels = new Set([...names].flatMap(hostLabels));
  for (const { id, name, isShadowed } of aliases) {
    if (!labels.has(name)) continue;
    const isTaken = await hasNode(tx, orgId, name, ["active"]);
    if (isTaken !== isShadowed)
      await nameAliases.update(tx, { id }, { isShadowed: isTaken, namesVersion: version });
  }
}

/** Whether a node in one of these states has the label. */
export async function hasNode(
  reader: Reader,
  orgId: number,
  label: string,
  states: readonly ("pending" | "active")[],
): Promise<boolean> {
  for (const name of nodesWithLabel(label)) {
    for (const state of states) {
      if ((await nodes.find(reader, { orgId, name, state })) !== undefined) return true;
    }
  }
  return false;
}

const organizationIds = nodes.pick("orgId");
const lateOrganizations = `SELECT DISTINCT org_id FROM nodes WHERE ${isUnpublished}`;
/** $2: the last id of the page before. */
const lateNodes = `SELECT ${nodeIds.select()} FROM nodes WHERE org_id = $1 AND id > $2 AND ${isUnpublished}
  ORDER BY id LIMIT ${publishedTogether}`;

/** Publishes changes that were made without `publishNames`. A part of the upkeep (see above). */
export async function publishLateNames({ db }: Pick<ServerOptions, "db">): Promise<void> {
  const publishAll = async (orgId: number) => {
    for (let after = 0; ;) {
      const ids = (await queryAll(db, nodeIds, lateNodes, [orgId, after])).map(({ id }) => id);
      const last = ids.at(-1);
      if (last === undefined) return;
      await db.writeFor({ org: orgId }, (tx) => publishNames(tx, orgId, ids));
      after = last;
    }
  };
  const found = await queryAll(db, organizationIds, lateOrganizations);
  await forAll(found, orgOf, ({ orgId }) => publishAll(orgId));
}
