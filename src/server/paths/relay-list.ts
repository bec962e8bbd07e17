// Lists the relays of an organization as the API shows them, and reads their figures for the metrics.

import type { Relay } from "../../api/paths/relays.ts";
import { timeOrNull } from "../../base/quantities.ts";
import type { Reader } from "../store/database.ts";
import {
  computed,
  integer,
  integerOrNull,
  joined,
  orNull,
  queryAll,
  text,
  textOrNull,
  truth,
} from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";

/** `2026-11` (UTC), of a time in ms. */
export const monthOf = (at: number) => new Date(at).toISOString().slice(0, 7);

const relayPick = joined(
  "n",
  nodes.pick("id", "name"),
  "x",
  computed({
    month: textOrNull(),
    bytes: integerOrNull(),
    limitBytes: integerOrNull(),
    isPaused: orNull(truth(0)),
    reportedAt: integerOrNull(),
  }),
);

/** The relays of an organization by id. They are few. */
export async function listRelays(
  reader: Reader,
  orgId: number,
  now: number,
  nodeId?: number,
): Promise<Relay[]> {
  const rows = await queryAll(
    reader,
    relayPick,
    `SELECT n.id, n.name, x.month, x.bytes, x.limit_bytes, x.is_paused, x.reported_at
     FROM nodes n LEFT JOIN relay_traffic x ON x.node_id = n.id
     WHERE n.org_id = $1 AND n.is_relay = 1 AND n.state <> 'revoked' ${nodeId === undefined ? "" : "AND n.id = $2"}
     ORDER BY n.id LIMIT 1000`,
    nodeId === undefined ? [orgId] : [orgId, nodeId],
  );
  const month = monthOf(now);
  /** A relay whose last report is of an earlier month has forwarded nothing in this one. */
  const bytesOf = (row: (typeof rows)[number]) => (row.month === month ? (row.bytes ?? 0) : 0);
  return rows.map((row) => ({
    node: row.id,
    node_name: row.name,
    month,
    bytes: row.reportedAt === null ? null : bytesOf(row),
    limit_bytes: row.limitBytes,
    paused: row.isPaused === true,
    reported_at: timeOrNull(row.reportedAt),
  }));
}

const figurePick = computed({
  slug: text(),
  name: text(),
  month: textOrNull(),
  bytes: integer(),
  limitBytes: integerOrNull(),
});

/** All relays that reported, for the metrics: forwarded this month, and the limit. */
export async function relayFigures(
  reader: Reader,
  now: number,
): Promise<{ slug: string; node: string; bytes: number; limitBytes: number | null }[]> {
  const rows = await queryAll(
    reader,
    figurePick,
    `SELECT o.slug, n.name, x.month, x.bytes, x.limit_bytes
     FROM relay_traffic x JOIN nodes n ON n.id = x.node_id JOIN organizations o ON o.id = x.org_id
     WHERE x.reported_at IS NOT NULL AND n.is_relay = 1 AND n.state <> 'revoked' AND o.deleted_at IS NULL
     ORDER BY o.slug, n.id`,
  );
  const month = monthOf(now);
  return rows.map(({ slug, name: node, month: reported, bytes, limitBytes }) => ({
    slug,
    node,
    bytes: reported === month ? bytes : 0,
    limitBytes,
  }));
}
