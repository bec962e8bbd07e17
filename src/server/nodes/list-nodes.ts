// Lists the nodes of an organization.

import type { Node } from "../../protocol/node.ts";
import { fitPage, pageOf, searchPattern, type Page } from "../http/lists.ts";
import type { ListQuery } from "../../api/values.ts";
import { nodeColumns, nodeRecord } from "../store/nodes.ts";
import type { NodeStore } from "./node-store.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { widestNode } from "../store/tables/nodes.ts";
import { showAll } from "./show-nodes.ts";

/** Which nodes to list. */
type Filter = {
  /** Only the revoked ones; otherwise all others. */
  revoked: boolean;
  /** Only the nodes of this user. */
  ownerId: number | undefined;
  /** Only exits. */
  isExit: boolean;
  ids: readonly number[] | undefined;
};

/** Sorted by id. The search of `query` looks in names, aliases and addresses. Ephemeral nodes that ended are not listed. */
export async function listNodes(
  services: NodeStore,
  org: { id: number },
  query: ListQuery,
  { revoked, ownerId, isExit, ids }: Filter,
): Promise<Page<Node>> {
  const { db } = services;
  const params: (string | number)[] = [org.id];
  /** Adds a parameter, and returns its place in the SQL. */
  const place = (value: string | number) => `$${params.push(value)}`;
  let where = `org_id = $1 AND state ${revoked ? "= 'revoked' AND ended_at IS NULL" : "<> 'revoked'"}`;
  if (query.search !== "") {
    const pattern = place(searchPattern(query));
    where += ` AND (name LIKE ${pattern} ESCAPE '!' OR ip LIKE ${pattern} ESCAPE '!' OR id IN
      (SELECT node_id FROM name_aliases WHERE org_id = $1 AND deleted_at IS NULL AND name LIKE ${pattern} ESCAPE '!'))`;
  }
  if (ownerId !== undefined) where += ` AND owner_id = ${place(ownerId)}`;
  if (isExit) where += " AND exit_groups <> '[]'";
  if (ids !== undefined) where += ` AND id IN (${ids.map(place).join(", ")})`;
  const total = await queryNumber(db, `SELECT count(*) AS n FROM nodes WHERE ${where}`, params);
  // Fewer nodes a page, if the longest texts of nodes would make it larger than an answer may be.
  const fitted = fitPage(query, await widestNode(db, org.id, revoked));
  const { limit, offset } = pageOf(fitted);
  const page = await queryAll(
    db,
    nodeRecord,
    // The subquery uses only an index: wide rows are read for one page alone.
    `SELECT ${nodeColumns} FROM ${nodesWithSightings} WHERE id IN
       (SELECT id FROM nodes WHERE ${where} ORDER BY id LIMIT ${limit} OFFSET ${offset}) ORDER BY id`,
    params,
  );
  return { items: await showAll(services, org.id, page), total, query: fitted };
}
