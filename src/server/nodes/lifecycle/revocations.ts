// The list of revocations: which active nodes have confirmed each, and which have not.

import { formatTime } from "../../../base/quantities.ts";
import type { ServerOptions } from "../../options.ts";
import { computed, integer, queryAll, queryNumber, text, textOrNull } from "../../store/table.ts";
import { type Page, fitPage, pageOf, searchPattern } from "../../http/lists.ts";
import type { ListQuery } from "../../../api/values.ts";

export type Revocation = {
  node_id: number;
  name: string;
  at: string;
  reason: string;
  by: string;
  /** How many active nodes have confirmed it, and how many there are. */
  applied: number;
  total: number;
  /** The ids of those that have not: the furthest behind, at most `maxNamed`. */
  waiting_for: number[];
};

/** Number of nodes in `waiting_for`. `applied` and `total` count all of them. */
const maxNamed = 100;

const revocationPick = computed({
  nodeId: integer(),
  name: text(),
  revokedAt: integer(),
  revokeReason: textOrNull(),
  revokedBy: textOrNull(),
  version: integer(),
});
const versionCount = computed({ version: integer(), n: integer() });
const lateNode = computed({ id: integer(), version: integer() });

/** Lists revocations with the active nodes that have confirmed them, and those that have not. */
export async function listRevocations(
  { db }: Pick<ServerOptions, "db">,
  orgId: number,
  query: ListQuery,
): Promise<Page<Revocation>> {
  // Not ephemeral nodes that ended by their silence (`ended_at`): none of their certificates is blocked.
  const revoked =
    "FROM nodes WHERE org_id = $1 AND state = 'revoked' AND ended_at IS NULL AND lower(name) LIKE $2 ESCAPE '!'";
  const pattern = searchPattern(query);
  const all = await queryNumber(db, `SELECT count(*) AS n ${revoked}`, [orgId, pattern]);
  const longest = `SELECT coalesce(max(octet_length(revoke_reason)), 0) AS n ${revoked}`;
  const fitted = fitPage(query, await queryNumber(db, longest, [orgId, pattern]));
  const { limit, offset } = pageOf(fitted);
  const rows = await queryAll(
    db,
    revocationPick,
    `SELECT n.id AS node_id, n.name, n.revoked_at, n.revoke_reason, coalesce(u.email, n.revoked_by) AS revoked_by,
       coalesce((SELECT max(c.blocked_at_version) FROM certificates c WHERE c.node_id = n.id), 0) AS version
     FROM (SELECT * ${revoked} ORDER BY id LIMIT $3 OFFSET $4) n LEFT JOIN users u ON n.revoked_by = 'person/' || u.id
     ORDER BY n.id`,
    [orgId, pattern, limit, offset],
  );
  const countActive =
    "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND state = 'active' AND phone IS NULL";
  const active = await queryNumber(db, countActive, [orgId]);
  const newest = Math.max(0, ...rows.map(({ version }) => version));
  // Counts only nodes that lag behind: usually none, however many nodes there are. Phones are not among them: they count as having
  // confirmed every version.
  const lateNodes = "FROM nodes WHERE org_id = $1 AND state = 'active' AND confirmed_config_version < $2";
  const counts = await queryAll(
    db,
    versionCount,
    `SELECT confirmed_config_version AS version, count(*) AS n ${lateNodes} GROUP BY confirmed_config_version`,
    [orgId, newest],
  );
  // The nodes furthest behind: they include all nodes that any of the revocations waits for, up to the limit.
  const furthest = await queryAll(
    db,
    lateNode,
    `SELECT id, confirmed_config_version AS version ${lateNodes} ORDER BY confirmed_config_version, id LIMIT ${maxNamed}`,
    [orgId, newest],
  );
  return { items: rows.map((row) => revocationOf(row, active, counts, furthest)), total: all, query: fitted };
}

function revocationOf(
  row: ReturnType<typeof revocationPick.parse>,
  total: number,
  counts: readonly ReturnType<typeof versionCount.parse>[],
  furthest: readonly ReturnType<typeof lateNode.parse>[],
): Revocation {
  const isLate = (each: { version: number }) => each.version < row.version;
  const waiting = counts.filter(isLate).reduce((sum, { n }) => sum + n, 0);
  return {
    node_id: row.nodeId,
    name: row.name,
    at: formatTime(row.revokedAt),
    reason: row.revokeReason ?? "",
    by: row.revokedBy ?? "",
    applied: total - waiting,
    total,
    waiting_for: furthest
      .filter(isLate)
      .map(({ id }) => id)
      .sort((a, b) => a - b),
  };
}
