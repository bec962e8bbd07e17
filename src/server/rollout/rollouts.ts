// Rollouts (updates in rings) for the API: list, create, pause, resume, abort. Between requests rollout-turn.ts advances them.

import * as v from "valibot";
import type { Rollout, rolloutActions, RolloutNode, RolloutRequest } from "../../api/rollouts.ts";
import type { ListQuery } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import { brand } from "../../brand.ts";
import { operator, record, type Actor } from "../audit/record.ts";
import { fitPage, pageOf, searchPattern, type Page } from "../http/lists.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole } from "../require-role.ts";
import type { Reader, Transaction } from "../store/database.ts";
import { counted } from "../store/list-rows.ts";
import {
  computed,
  integer,
  joined,
  queryAll,
  queryNumber,
  queryOne,
  text,
  textOrNull,
} from "../store/table.ts";
import { Overrides } from "../store/tables/organizations.ts";
import { rolloutNodes, rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { permissionOf } from "../store/tables/update-permission.ts";
import { chooseRings } from "./choose-rings.ts";
import { refuseBesideDrill, refuseBesideRollout } from "./refuse-beside.ts";
import { isOneSlice, readCandidates, writeSlice } from "./rollout-members.ts";
import { beginSettings, endSettings, whichSettings } from "./settings-in-rings.ts";
import { isWithin, nextHours, silentMs } from "./rollout-step.ts";

type Store = Pick<ServerOptions, "db" | "system">;
type Org = { id: number; slug: string };

const stateCount = computed({ ring: integer(), state: text(), n: integer() });
const countByRing = `SELECT ring, state, count(*) AS n FROM rollout_nodes WHERE rollout_id = $1 GROUP BY ring, state`;
/** Which states of nodes the API counts as `updating`, and which as `left_out`. */
const updating = ["told", "applied", "returning"];
const leftOut = ["failed", "returned", "refused", "skipped"];

async function show({ db: reader, system }: Store, row: RolloutRow): Promise<Rollout> {
  const counts = await queryAll(reader, stateCount, countByRing, [row.id]);
  const sum = (ring: number, states: readonly string[]) =>
    counts.reduce((all, each) => all + (each.ring === ring && states.includes(each.state) ? each.n : 0), 0);
  const failed =
    row.failedNode === null
      ? undefined
      : await queryOne(reader, computed({ name: text() }), "SELECT name FROM nodes WHERE id = $1", [
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
      waiting: sum(at + 1, ["waiting"]),
      updating: sum(at + 1, updating),
      passed: sum(at + 1, ["passed"]),
      left_out: sum(at + 1, leftOut),
    })),
    waits_until: await waitsUntil(reader, row, system.now()),
    reason: row.reason,
    failed_node: failed?.name ?? null,
    probe: row.probe,
    log: row.logLine,
    created_at: formatTime(row.createdAt),
    ended_at: row.endedAt === null ? null : formatTime(row.endedAt),
  };
}

const permissionPick = computed({ mayUpdate: textOrNull() });
/** $3: checked in since then. */
const readWaiting = `SELECT DISTINCT n.may_update FROM rollout_nodes m JOIN nodes n ON n.id = m.node_id
    JOIN sightings s ON s.node_id = m.node_id
  WHERE m.rollout_id = $1 AND m.ring = $2 AND m.state = 'waiting' AND s.last_checkin_at > $3`;

/** When the first waiting node comes into its hours; null unless the ring waits for hours only. */
async function waitsUntil(reader: Reader, row: RolloutRow, now: number): Promise<string | null> {
  const { id, ring, hours, state } = row;
  if (state !== "running" || hours.length === 0) return null;
  const waiting = await queryAll(reader, permissionPick, readWaiting, [id, ring, now - silentMs]);
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
  const long = ["settings", "groups", "hours", "reason", "probe", "log_line"];
  const { total, widest } = (await queryOne(reader, counted, widestOf(long, from), [org.id])) ?? noRows;
  const query = fitPage(asked, widest);
  const { limit, offset } = pageOf(query);
  const sql = `SELECT ${rollouts.select()} ${from} ORDER BY id DESC LIMIT ${limit} OFFSET ${offset}`;
  const items: Rollout[] = [];
  for (const row of await queryAll(reader, rollouts, sql, [org.id])) items.push(await show(store, row));
  return { items, total, query };
}

export async function findRollout(store: Store, org: Org, id: number): Promise<Rollout> {
  return show(store, await requireRollout(store.db, org, id));
}

async function requireRollout(reader: Reader, org: Org, id: number): Promise<RolloutRow> {
  const row = await rollouts.find(reader, { orgId: org.id, id });
  if (row === undefined) throw new AppError("not_found", "There is no such rollout.");
  return row;
}

const namedMember = joined("m", rolloutNodes, "n", computed({ name: text() }));

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
  const long = ["m.reason", "m.probe", "m.log_line"];
  const { total, widest } = (await queryOne(reader, counted, widestOf(long, from), params)) ?? noRows;
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

/**
 * Starts a rollout. Throws conflict while another one or a drill is open, and if no node may be updated. Of a large
 * organization, the loop of rollout-turn.ts writes the nodes, in slices.
 */
export async function createRollout(
  services: Store,
  org: Org,
  wanted: RolloutRequest,
  actor: Actor,
): Promise<Rollout> {
  const { db, system } = services;
  const { agent = null, engine = null, groups, hours, watch_s: watchS } = wanted;
  const settings = storedSettings(wanted);
  if (agent === null && engine === null && settings === null)
    throw new AppError(
      "validation_failed",
      "Say which version, of the agent or the engine, or which settings.",
      {
        errors: { agent: ["A version of the agent or of the engine, or settings are required."] },
      },
    );
  // The numbers of orders derive from `createdAt` (orderOf), so it must rise, also if the clock was set back.
  const last = "SELECT coalesce(max(created_at), 0) AS n FROM rollouts WHERE org_id = $1";
  const now = Math.max(system.now(), 1 + (await queryNumber(db, last, [org.id])));
  const fields = { orgId: org.id, agent, engine, groups: [...groups], createdAt: now };
  const { candidates, isPermitted } = await readCandidates(
    services,
    { ...fields, settings },
    { isForStart: true },
  );
  const newRow: NewRow = {
    ...fields,
    ...whichSettings({ settings }),
    hours: [...hours],
    watchS,
    state: "running",
    // No ring yet: its nodes are being written.
    ring: 0,
    rings: 0,
    since: now,
  };
  const id = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    await refuseBesideRollout(tx, org);
    await refuseBesideDrill(tx, org, system.now());
    await beginSettings(tx, { ...fields, settings });
    if (candidates.length === 0)
      throw settings === null ? nothingToUpdate(isPermitted, org.slug) : noneTriesSettings(org.slug);
    return insertRollout(tx, newRow, candidates, actor);
  });
  return findRollout(services, org, id);
}

type NewRow = Parameters<typeof rollouts.insertReturning>[1] & Pick<RolloutRow, "orgId" | "createdAt">;

/** Inserts the rollout with its nodes, if these are one slice, and the event. Returns its id. */
async function insertRollout(
  tx: Transaction,
  newRow: NewRow,
  candidates: Awaited<ReturnType<typeof readCandidates>>["candidates"],
  actor: Actor,
): Promise<number> {
  const row = await rollouts.insertReturning(tx, newRow);
  const { id, orgId, agent, engine, groups, createdAt: now } = row;
  const isWhole = isOneSlice(candidates);
  if (isWhole) await writeSlice(tx, row, chooseRings(candidates), now);
  const count = isWhole ? { nodes: candidates.length } : {};
  const after = { agent, engine, ...whichSettings(row), groups, ...count };
  await record(tx, { orgId, at: now, type: "rollout.created", actor, subject: `rollout/${id}`, after });
  return id;
}

/** Valid overrides, as the column of the organization holds them. */
const storedSettings = ({ settings }: RolloutRequest): RolloutRow["settings"] =>
  settings === undefined ? null : v.parse(Overrides, settings);

const noneTriesSettings = (slug: string) =>
  new AppError("conflict", "No node has an agent that tries settings.", {
    hint: `Change them for all nodes at once: \`${brand.executable} admin org update ${slug} --config-overrides FILE\`.`,
  });

function nothingToUpdate(isPermitted: boolean, slug: string): AppError {
  return new AppError(
    "conflict",
    isPermitted
      ? "Each node that permits updates has this version or a higher one, or is in another group."
      : "No node permits updates by this control plane.",
    {
      hint: `On each machine, root permits them: \`sudo ${brand.executable} sync-config --org-slug ${slug} --allow-updates agent,engine\`.`,
    },
  );
}

const countOpen = `SELECT count(*) AS n FROM rollout_nodes WHERE rollout_id = $1 AND ring = $2
  AND state IN ('waiting', 'told', 'applied')`;

/** Throws conflict with the reason. */
export async function steerRollout(
  store: Store,
  org: Org,
  id: number,
  action: (typeof rolloutActions)[number],
  actor: Actor,
): Promise<Rollout> {
  const { db, system } = store;
  await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const row = await requireRollout(tx, org, id);
    const now = system.now();
    const open = await queryNumber(tx, countOpen, [id, row.ring]);
    const change = { since: now, ...changeFor(row, action, { now, isOpen: open > 0 }) };
    await rollouts.update(tx, { id }, change);
    const event = { orgId: org.id, at: now, actor, subject: `rollout/${id}` };
    await record(tx, { ...event, type: "rollout.changed", after: { action } });
    if (change.state !== "passed") return;
    const { ring, agent, engine } = row;
    await endSettings(tx, row, "passed", { actor, now });
    await record(tx, {
      ...event,
      type: "rollout.passed",
      after: { ring, agent, engine, ...whichSettings(row) },
    });
  });
  return findRollout(store, org, id);
}

function changeFor(
  row: RolloutRow,
  action: (typeof rolloutActions)[number],
  { now, isOpen }: { now: number; /** Nodes of the current ring have not passed yet. */ isOpen: boolean },
): Partial<RolloutRow> {
  const { state, ring, rings, reason } = row;
  /** Clears what an earlier pause found. */
  const noCause = { reason: "", failedNode: null, probe: "", logLine: "" };
  const refuse = (why: string) => new AppError("conflict", `Rollout ${row.id} ${why}.`);
  if (action === "pause") {
    if (state !== "running") throw refuse(state === "paused" ? "is paused already" : "is not running");
    return { state: "paused" };
  }
  if (action === "resume") {
    if (state !== "paused") throw refuse("is not paused");
    // Without a reason, an administrator has paused it.
    if (reason === "" || isOpen) return { state: "running", ...noCause };
    // It paused at the end of a ring, which proved nothing: the administrator decides that the ring counts as good.
    if (ring >= rings) return { state: "passed", ...noCause, endedAt: now };
    return { state: "running", ...noCause, ring: ring + 1 };
  }
  if (state !== "running" && state !== "paused") throw refuse("has ended, or is being taken back");
  return { state: "returning", ...noCause, reason: "An administrator ended it" };
}

const clearOrders = `UPDATE nodes SET update_order = NULL
  WHERE id IN (SELECT node_id FROM rollout_nodes WHERE rollout_id = $1 AND state IN ('told', 'applied', 'passed'))`;

/**
 * Ends the rollouts of a restored backup, apart from those that go back. Since the backup a node may have failed, and what the
 * nodes have done is unknown. Each node keeps what it runs.
 */
export async function endRestored(tx: Transaction, now: number): Promise<void> {
  const sql = `SELECT ${rollouts.select()} FROM rollouts WHERE ended_at IS NULL AND state <> 'returning'`;
  for (const row of await queryAll(tx, rollouts, sql)) {
    const { id, orgId, ring, agent, engine } = row;
    const cause = {
      reason: "The control plane was restored from a backup",
      failedNode: null,
      probe: "",
      logLine: "",
    };
    await rollouts.update(tx, { id }, { ...cause, state: "stopped", since: now, endedAt: now });
    await tx.run(clearOrders, [id]);
    await endSettings(tx, row, "stopped", { actor: operator, now });
    const shown = { ring, agent, engine, ...whichSettings(row) };
    const why = { reason: cause.reason, node: null, probe: "", log: "" };
    await record(tx, {
      orgId,
      at: now,
      type: "rollout.stopped",
      actor: operator,
      subject: `rollout/${id}`,
      after: { ...shown, ...why },
    });
  }
}
