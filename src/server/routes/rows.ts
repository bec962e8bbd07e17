// What several files of routes share: lists of an organization's rows, and the query of deletions that may revoke
// nodes.

import * as v from "valibot";
import { ListQuery, listReply, pageOf, searchPattern } from "../http/lists.ts";
import type { OrganizationCall, Reply } from "../http/route.ts";
import type { Services } from "../services.ts";
import type { Params, Row } from "../store/database.ts";
import { queryNumber } from "../store/table.ts";

const Switch = v.optional(v.picklist(["true", "false"]), "false");
/** `report`: answer 200 with a body instead of 204. */
export const Deletion = v.strictObject({ revoke_nodes: Switch, report: Switch });
export const TokenDeletion = v.strictObject({ ...Deletion.entries, revoke_webhooks: Switch });

export type Listed = {
  table: string;
  columns: string;
  /** More conditions: `AND …`. $1 is the organization, $2 the search pattern. */
  where: string;
  toItem(row: Row): unknown;
};

/** Lists an organization's rows of one table, ordered by id. */
export async function listRows(
  { db, publicUrl }: Services,
  call: OrganizationCall,
  of: Listed,
  input: ListQuery,
): Promise<Reply> {
  const from = `FROM ${of.table} WHERE org_id = $1 ${of.where}`;
  const params: Params = [call.org.id, searchPattern(input)];
  const { limit, offset } = pageOf(input);
  const rows = await db.all(`SELECT ${of.columns} ${from} ORDER BY id LIMIT $3 OFFSET $4`, [
    ...params,
    limit,
    offset,
  ]);
  const total = await queryNumber(db, `SELECT count(*) AS n ${from}`, params);
  return listReply(call, publicUrl, { items: rows.map(of.toItem), total }, input);
}
