// Lists of an organization's rows, and deletions that may take nodes with them: what several routes files share.

import * as v from "valibot";
import { ListQuery, listReply, pageOf, searchPattern } from "../http/lists.ts";
import type { OrganizationCall, Reply } from "../http/route.ts";
import type { Services } from "../services.ts";
import { numberOf, type Params, type Row } from "../store/database.ts";

const Switch = v.optional(v.picklist(["true", "false"]), "false");
/** `report`: the answer is 200 with a body. */
export const Deletion = v.strictObject({ revoke_nodes: Switch, report: Switch });
export const TokenDeletion = v.strictObject({ ...Deletion.entries, revoke_webhooks: Switch });

export type Listed = {
  table: string;
  columns: string;
  /** Beyond the organization: `AND …` with $1 the organization and $2 the search pattern. */
  where: string;
  toItem(row: Row): unknown;
};

/** Lists the rows of one table of an organization, ordered by id. */
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
  const total = await db.get(`SELECT count(*) AS total ${from}`, params);
  const { pathname } = new URL(call.request.url);
  return listReply(rows.map(of.toItem), numberOf(total ?? {}, "total"), publicUrl + pathname, input);
}
