// Creates, pauses, resumes and aborts rollouts (updates in rings). Between requests rollout-turn.ts advances them.

import * as v from "valibot";
import type { Rollout, rolloutActions, RolloutRequest } from "../../api/rollouts.ts";
import { AppError } from "../../base/errors.ts";
import { brand } from "../../brand.ts";
import { operator, record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import { writeAsAdmin } from "../require-role.ts";
import type { Transaction } from "../store/database.ts";
import { queryAll, queryNumber } from "../store/table.ts";
import { Overrides } from "../store/tables/organizations.ts";
import { rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { chooseRings } from "./choose-rings.ts";
import { refuseBesideDrill, refuseBesideRollout } from "./refuse-beside.ts";
import { isOneSlice, readCandidates, writeSlice } from "./rollout-members.ts";
import { beginSettings, endSettings, settingsField } from "./settings-in-rings.ts";
import { findRollout, requireRollout } from "./show-rollouts.ts";
import type { Org } from "../http/route.ts";

/**
 * Starts a rollout. Throws conflict while another one or a drill is open, and if no node may be updated. Of a large
 * organization, the loop of rollout-turn.ts writes the nodes, in slices.
 */
export async function createRollout(
  services: Store,
  org: Org,
  request: RolloutRequest,
  actor: Actor,
): Promise<Rollout> {
  const { db, system } = services;
  const { agent = null, engine = null, groups, hours, watch_s: watchS } = request;
  const settings = storedSettings(request);
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
    ...settingsField({ settings }),
    hours: [...hours],
    watchS,
    state: "running",
    // No ring yet: its nodes are being written.
    ring: 0,
    rings: 0,
    since: now,
  };
  const id = await writeAsAdmin(db, org.id, actor, async (tx) => {
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
  const after = { agent, engine, ...settingsField(row), groups, ...count };
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

const countOpenSql = `SELECT count(*) AS n FROM rollout_nodes WHERE rollout_id = $1 AND ring = $2
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
  await writeAsAdmin(db, org.id, actor, async (tx) => {
    const row = await requireRollout(tx, org, id);
    const now = system.now();
    const open = await queryNumber(tx, countOpenSql, [id, row.ring]);
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
      after: { ring, agent, engine, ...settingsField(row) },
    });
  });
  return findRollout(store, org, id);
}

/**
 * What the action changes in the row. `isOpen`: the current ring has nodes that wait, or have neither passed nor failed. Throws
 * conflict.
 */
function changeFor(
  row: RolloutRow,
  action: (typeof rolloutActions)[number],
  { now, isOpen }: { now: number; isOpen: boolean },
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
    // Without a reason, an administrator has paused it, and the ring goes on.
    if (reason === "" || isOpen) return { state: "running", ...noCause };
    // It paused at the end of a ring, which proved nothing: the administrator decides that the ring counts as good.
    if (ring >= rings) return { state: "passed", ...noCause, endedAt: now };
    return { state: "running", ...noCause, ring: ring + 1 };
  }
  if (state !== "running" && state !== "paused") throw refuse("has ended, or is being taken back");
  return { state: "returning", ...noCause, reason: "An administrator ended it" };
}

/** Withdraws the orders to change. Nodes that go back (`returning`) keep their order. */
const clearOrdersSql = `UPDATE nodes SET update_order = NULL
  WHERE id IN (SELECT node_id FROM rollout_nodes WHERE rollout_id = $1 AND state IN ('told', 'applied', 'passed'))`;

/**
 * Ends the rollouts of a restored backup, apart from those that go back: these finish. Since the backup a node may have failed, and what the
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
    await tx.run(clearOrdersSql, [id]);
    await endSettings(tx, row, "stopped", { actor: operator, now });
    const shown = { ring, agent, engine, ...settingsField(row) };
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
