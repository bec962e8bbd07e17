// Lists of an organization's rows, as answers of the API.

import { fitPage, listReply, pageOf, searchPattern } from "../http/lists.ts";
import type { ListQuery } from "../../api/values.ts";
import type { OrganizationCall } from "../http/route.ts";
import type { Params, Reader, Row } from "./database.ts";
import { computed, integer, queryOne } from "./table.ts";

export type Listed<Item = unknown> = {
  table: string;
  columns: string;
  /**
   * More conditions: `AND …`. $1 is the organization, $2 the search pattern. Use both: PostgreSQL knows no type of an unused
   * parameter.
   */
  where: string;
  /** SQL for the bytes of the columns that can be long: the wider the items, the fewer of them are on a page. */
  bytes?: string;
  toItem(row: Row): Item;
};

/** For a list: how many items, and the bytes of the widest. */
export const counted = computed({ total: integer(), widest: integer() });

/** Lists an organization's rows of one table, ordered by id. */
export async function listRows<Item>(
  { db, publicUrl }: { db: Reader; publicUrl: string },
  call: OrganizationCall,
  list: Listed<Item>,
  input: ListQuery,
) {
  const from = `FROM ${list.table} WHERE org_id = $1 ${list.where}`;
  const params: Params = [call.org.id, searchPattern(input)];
  const counting = `SELECT count(*) AS total, coalesce(max(${list.bytes ?? 0}), 0) AS widest ${from}`;
  const { total, widest } = (await queryOne(db, counted, counting, params)) ?? { total: 0, widest: 0 };
  const query = fitPage(input, widest);
  const { limit, offset } = pageOf(query);
  const rows = await db.all(`SELECT ${list.columns} ${from} ORDER BY id LIMIT $3 OFFSET $4`, [
    ...params,
    limit,
    offset,
  ]);
  return listReply(call, publicUrl, { items: rows.map(list.toItem), total, query });
}
