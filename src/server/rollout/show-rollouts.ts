// Shows the rollouts (updates in rings) of an organization, and their nodes, as the API answers.

import type { Rollout, RolloutNode } from "../../api/rollouts.ts";
import type { ListQuery } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime, timeOrNull } from "../../base/quantities.ts";
import { fitPage, pageOf, searchPattern, type Page } from "../http/lists.ts";
import type { Store } from "../options.ts";
import type { Reader } from "../store/database.ts";
import { counted } from "../store/list-rows.ts";
import { computed, integer, joined, queryAll, queryOne, text, textOrNull } from "../store/table.ts";
import { rolloutNodes, rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { permissionOf } from "../store/tables/update-permission.ts";
import { isWithin, nextHours, silentMs } from "./rollout-step.ts";

type Org = { id: number };

const stateCount = computed({ ring: integer(), state: text(), n: integer() });
const countByRingSql = `SELECT ring, state, count(*) AS n FROM rollout_nodes WHERE rollout_id = $1 GROUP BY ring, state`;
const namePick = computed({ name: text() });
/** Which states of nodes the API counts as `updating`, and which as `left_out`. */
const updating = ["told", "applied", "returning"];
const leftOut = ["failed", "returned", "refused", "skipped"];

async function showRollout({ db: reader, system }: Store, row: RolloutRow): Promise<Rollout> {
  const counts = await queryAll(reader, stateCount, countByRingSql, [row.id]);
  const countIn = (ring: number, states: readonly string[]) =>
    counts
      .filter((each) => each.ring === ring && states.includes(each.state))
      .reduce((sum, { n }) => sum + n, 0);
  const failedNode = await queryOne(reader, namePick, "SELECT name FROM nodes WHERE id = $1", [
    row.failedNode,
  ]);
  return {
    id: row.id,
    agent: row.agent,
    engine: row.engine,
    settings: row.settings,
    groups: row.groups,
    hours: row.hours,
    watch_s: row.watchS,
    state: row.state,
    ring: row.ring,
    rings: Array.from({ length: row.rings }, (_, at) => ({
      waiting: countIn(at + 1, ["waiting"]),
      updating: countIn(at + 1, updating),
      passed: countIn(at + 1, ["passed"]),
      left_out: countIn(at + 1, leftOut),
    })),
    waits_until: await waitsUntil(reader, row, system.now()),
    reason: row.reason,
    failed_node: failedNode?.name ?? null,
    probe: row.probe,
    log: row.logLine,
    created_at: formatTime(row.createdAt),
    ended_at: timeOrNull(row.endedAt),
  };
}

const permissionPick = computed({ mayUpdate: textOrNull() });
/** $3: checked in since then. */
const waitingPermissionsSql = `SELECT DISTINCT n.may_update FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2 AND m.state = 'waiting' AND s.last_checkin_at > $3`;

/** When the first waiting node comes into its hours; null unless the ring waits for hours only. */
async function waitsUntil(reader: Reader, row: RolloutRow, now: number): Promise<string | null> {
  const { id, ring, hours, state } = row;
  if (state !== "running" || hours.length === 0) return null;
  const waiting = await queryAll(reader, permissionPick, waitingPermissionsSql, [id, ring, now - silentMs]);
  /** How far the clocks of the nodes are from UTC, minutes. */
  const zones = waiting.map(({ mayUpdate }) => permissionOf(mayUpdate).zone);
  if (zones.some((zone) => isWithin(hours, now + zone * 60_000))) return null;
  const begins = zones.flatMap((zone) => nextHours(hours, zone, now) ?? []);
  return begins.length === 0 ? null : formatTime(Math.min(...begins));
}

/** The number of rows, and the bytes of these columns in the widest one: `fitPage` bounds an answer by it. */
const widestOf = (columns: readonly string[], from: string) =>
  `SELECT count(*) AS total, coalesce(max(${columns.map((each) => `octet_length(${each})`).join(" + ")}), 0) AS widest ${from}`;
const noRows = { total: 0, widest: 0 };

export async function listRollouts(store: Store, org: Org, asked: ListQuery): Promise<Page<Rollout>> {
  const { db: reader } = store;
  const from = "FROM rollouts WHERE org_id = $1";
  const longColumns = ["settings", "groups", "hours", "reason", "probe", "log_line"];
  const { total, widest } =
    (await queryOne(reader, counted, widestOf(longColumns, from), [org.id])) ?? noRows;
  const query = fitPage(asked, widest);
  const { limit, offset } = pageOf(query);
  const sql = `SELECT ${rollouts.select()} ${from} ORDER BY id DESC LIMIT ${limit} OFFSET ${offset}`;
  const items: Rollout[] = [];
  for (const row of await queryAll(reader, rollouts, sql, [org.id]))
    items.push(await showRollout(store, row));
  return { items, total, query };
}

export async function findRollout(store: Store, org: Org, id: number): Promise<Rollout> {
  return showRollout(store, await requireRollout(store.db, org, id));
}

/** Throws not_found. */
export async function requireRollout(reader: Reader, org: Org, id: number): Promise<RolloutRow> {
  const row = await rollouts.find(reader, { orgId: org.id, id });
  if (row === undefined) throw new AppError("not_found", "There is no such rollout.");
  return row;
}

const namedMember = joined("m", rolloutNodes, "n", namePick);

export async function listMembers(
  reader: Reader,
  org: Org,
  id: number,
  asked: ListQuery,
): Promise<Page<RolloutNode>> {
  await requireRollout(reader, org, id);
  const from = `FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    WHERE m.rollout_id = $1 AND lower(n.name) LIKE $2 ESCAPE '!'`;
  const params = [id, searchPattern(asked)];
  const longColumns = ["m.reason", "m.probe", "m.log_line"];
  const { total, widest } = (await queryOne(reader, counted, widestOf(longColumns, from), params)) ?? noRows;
  const query = fitPage(asked, widest);
  const { limit, offset } = pageOf(query);
  const sql = `SELECT ${namedMember.select()} ${from}
    ORDER BY CASE m.state WHEN 'failed' THEN 0 ELSE 1 END, m.ring, n.name, m.node_id LIMIT ${limit} OFFSET ${offset}`;
  const rows = await queryAll(reader, namedMember, sql, params);
  return {
    total,
    query,
    items: rows.map((row) => ({
      node: row.nodeId,
      node_name: row.name,
      ring: row.ring,
      state: row.state,
      since: formatTime(row.at),
      reason: row.reason,
      probe: row.probe,
      log: row.logLine,
    })),
  };
}
