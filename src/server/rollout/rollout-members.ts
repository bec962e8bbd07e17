// Chooses the nodes of a rollout and writes them into `rollout_nodes`: in slices, each a short transaction, so that check-ins
// are answered soon while a rollout of 100,000 nodes starts. If the server is killed between two slices, the loop of
// rollout-turn.ts writes the rest (`writeMissing`).

import { rolledOut } from "../../api/rollouts.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { Store } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { isConfigured, isSeen, nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { makeRowWriter } from "../store/row-writer.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { computed, integer, queryAll, queryNumber, textOrNull } from "../store/table.ts";
import { rolloutNodes, rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { chooseRings, rankOf, type Candidate, type Placed } from "./choose-rings.ts";

/** Which nodes a rollout concerns, and what it gives them. */
type RolloutScope = Pick<RolloutRow, "orgId" | "agent" | "engine" | "settings" | "groups" | "createdAt">;
/** What a node runs; null: not reported. */
type Versions = Record<"agent" | "engine", string | null>;
type Member = Candidate & Versions;

/** Nodes of one read, and of one transaction. */
const sliceSize = 500;
/** Between two slices, so that other work of the database gets its turn. */
const pauseMs = 5;

const seedOf = ({ orgId, createdAt }: RolloutScope): string => `${orgId}/${createdAt}`;

/** Active nodes that permit the update and are not in the rollout. $2: after this id; $3: the rollout; $4: the permission, for LIKE. */
const permitting = `SELECT ${nodeColumns} FROM ${nodesWithSightings}
  WHERE org_id = $1 AND may_update LIKE $4 AND state = 'active' AND id > $2
    AND NOT EXISTS (SELECT 1 FROM rollout_nodes m WHERE m.node_id = id AND m.rollout_id = $3)
  ORDER BY id LIMIT ${sliceSize}`;

/** In server mode, a replaced program keeps checking in for up to a minute, and reports its own version. */
const formerReportsMs = 120_000;

const passedPick = computed({ nodeId: integer(), agent: textOrNull(), engine: textOrNull() });
const passedSql = `SELECT m.node_id, r.agent, r.engine FROM rollout_nodes m JOIN rollouts r ON r.id = m.rollout_id
  WHERE m.node_id BETWEEN $1 AND $2 AND m.state = 'passed' AND m.at > $3 AND r.org_id = $4`;

/** Null is no version, which is lower than each. */
const higher = (a: string | null, b: string | null) =>
  a === null || (b !== null && compareVersions(b, a) > 0) ? b : a;

/**
 * Tells what each of these nodes runs. A node that has just passed a rollout has at least its versions, although a replaced program
 * reports lower ones.
 */
async function readVersions(
  { db, system }: Store,
  orgId: number,
  nodes: readonly NodeRecord[],
): Promise<(node: NodeRecord) => Versions> {
  const [first, last] = [nodes.at(0)?.id ?? 0, nodes.at(-1)?.id ?? 0];
  const since = system.now() - formerReportsMs;
  const rows = await queryAll(db, passedPick, passedSql, [first, last, since, orgId]);
  const passed = Map.groupBy(rows, ({ nodeId }) => nodeId);
  return ({ id, agentVersion, overlayVersion }) => {
    const reported: Versions = { agent: agentVersion, engine: overlayVersion };
    return (passed.get(id) ?? []).reduce(
      (known, { agent, engine }) => ({
        agent: higher(known.agent, agent),
        engine: higher(known.engine, engine),
      }),
      reported,
    );
  };
}

/**
 * The nodes that the rollout concerns and does not have yet. `isForStart`: of many, stop at more than one slice, which is
 * enough to know that the loop has to write them. `isPermitted`: whether any node permits the update.
 */
export async function readCandidates(
  { db, system }: Store,
  scope: RolloutScope & { id?: number },
  { isForStart = false } = {},
): Promise<{ candidates: Member[]; isPermitted: boolean }> {
  const { orgId, id = 0, createdAt } = scope;
  const seed = seedOf(scope);
  const candidates: Member[] = [];
  // The column lists what is permitted in alphabetical order (permissionText).
  const words = rolledOut.filter((what) => scope[what] !== null).toSorted();
  const permits = `%${words.join("%")}%`;
  for (let last = 0; ; await system.sleep(pauseMs)) {
    const nodes = await queryAll(db, nodeRecord, permitting, [orgId, last, id, permits]);
    const versionsOf = await readVersions({ db, system }, orgId, nodes);
    for (const node of nodes) {
      const versions = versionsOf(node);
      if (!isConcerned(node, versions, scope)) continue;
      candidates.push({
        id: node.id,
        rank: rankOf(node.id, seed),
        // `createdAt` may be ahead of a clock that was set back: it is the number of the rollout, too, which always rises.
        isOnline: isSeen(node, Math.min(createdAt, system.now())),
        // Routers and exits, too: other nodes depend on them as on lighthouses and relays.
        isHub: isConfigured(node),
        // A node without a public address is behind a NAT (Candidate).
        kind: `${node.overlayVersion}/${node.platform}/${node.publicIp === null}`,
        ...versions,
      });
    }
    const isPermitted = last > 0 || nodes.length > 0;
    last = nodes.at(-1)?.id ?? last;
    if (nodes.length < sliceSize || (isForStart && candidates.length > sliceSize))
      return { candidates, isPermitted };
  }
}

/** Whether the rollout changes the node: it raises a version, or sets settings, and lowers no version. */
function isConcerned(node: NodeRecord, versions: Versions, scope: RolloutScope): boolean {
  const { agent, engine, settings, groups } = scope;
  if (groups.length > 0 && !groups.some((each) => node.groups.includes(each))) return false;
  /** Positive: the node gets something newer; 0: it has this already. */
  const compare = (next: string, current: string | null) =>
    current === null ? 1 : compareVersions(next, current);
  const comparisons = [
    ...(agent === null ? [] : [compare(agent, versions.agent)]),
    ...(engine === null ? [] : [compare(engine, versions.engine)]),
    ...(settings === null ? [] : [1]),
  ];
  return comparisons.every((sign) => sign >= 0) && comparisons.some((sign) => sign > 0);
}

const writeMembers = makeRowWriter(rolloutNodes, () => "");
const ofRollout = "FROM rollout_nodes WHERE rollout_id = $1";

/** Whether the request that starts the rollout writes all of them. */
export const isOneSlice = (candidates: readonly Member[]): boolean => candidates.length <= sliceSize;

/** Writes the first slice of these nodes. If no more are left, the first ring of the rollout begins. */
export async function writeSlice(
  tx: Transaction,
  row: Pick<RolloutRow, "id">,
  placed: readonly Placed<Member>[],
  now: number,
): Promise<void> {
  await writeMembers(
    tx,
    // In the order of the table's columns; the last five are those that reports fill.
    placed
      .slice(0, sliceSize)
      .map(([{ id, agent, engine }, ring]) => [
        row.id,
        id,
        ring,
        "waiting",
        now,
        agent,
        engine,
        0,
        0,
        "",
        "",
        "",
      ]),
  );
  if (placed.length > sliceSize) return;
  // 0: since its start no node is left to update. Then it pauses (rollout-step.ts).
  const rings = await queryNumber(tx, `SELECT coalesce(max(ring), 0) AS n ${ofRollout}`, [row.id]);
  await rollouts.update(tx, { id: row.id }, { ring: 1, rings, since: now });
}

/** Writes the nodes that a rollout does not have yet, slice after slice. Called while its ring is 0. */
export async function writeMissing(services: Store, row: RolloutRow): Promise<void> {
  const { db, system } = services;
  const count = `SELECT count(*) AS n ${ofRollout}`;
  let written = await queryNumber(db, count, [row.id]);
  const { candidates } = await readCandidates(services, row);
  const placed = chooseRings(candidates, written);
  for (let start = 0; ; start += sliceSize) {
    const isWritten = await db.writeFor({ org: row.orgId }, async (tx) => {
      const current = await rollouts.find(tx, { id: row.id });
      // Another server may have written a slice since, or an administrator paused or ended the rollout.
      const isUnchanged = current?.state === "running" && current.ring === 0;
      if (!isUnchanged || (await queryNumber(tx, count, [row.id])) !== written) return false;
      await writeSlice(tx, row, placed.slice(start), system.now());
      return true;
    });
    written += sliceSize;
    if (!isWritten || start + sliceSize >= placed.length) return;
    await system.sleep(pauseMs);
  }
}
