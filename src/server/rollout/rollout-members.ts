// Which nodes a rollout has. They are written in slices, each a short transaction, so that check-ins beside a start with
// 100,000 nodes are answered soon. After a kill between two slices the loop goes on with the nodes that are left.

import { rolledOut } from "../../api/rollouts.ts";
import { onlineMs } from "../../api/values.ts";
import { compareVersions } from "../../protocol/updates/version.ts";
import type { ServerOptions } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { isConfigured, nodeColumns, nodeRecord, type NodeRecord } from "../store/nodes.ts";
import { makeRowWriter } from "../store/row-writer.ts";
import { nodesWithSightings } from "../store/sightings.ts";
import { computed, integer, queryAll, queryNumber, textOrNull } from "../store/table.ts";
import { rolloutNodes, rollouts, type RolloutRow } from "../store/tables/rollouts.ts";
import { chooseRings, rankOf, type Candidate } from "./choose-rings.ts";

type Services = Pick<ServerOptions, "db" | "system">;
type Wanted = Pick<RolloutRow, "orgId" | "agent" | "engine" | "settings" | "groups" | "createdAt">;
type Versions = Record<"agent" | "engine", string | null>;
type Member = Candidate & Versions;

/** Nodes of one read, and of one transaction. */
const sliceSize = 500;
/** Others get their turn between two slices. */
const pauseMs = 5;

const seedOf = ({ orgId, createdAt }: Wanted): string => `${orgId}/${createdAt}`;

const permitting = `SELECT ${nodeColumns} FROM ${nodesWithSightings}
  WHERE org_id = $1 AND may_update LIKE $4 AND state = 'active' AND id > $2
    AND NOT EXISTS (SELECT 1 FROM rollout_nodes m WHERE m.node_id = id AND m.rollout_id = $3)
  ORDER BY id LIMIT ${sliceSize}`;

/** In server mode, a program that was replaced goes on to check in for up to a minute, with its own version. */
const formerSpeaksMs = 120_000;

const passedPick = computed({ nodeId: integer(), agent: textOrNull(), engine: textOrNull() });
const readPassed = `SELECT m.node_id, r.agent, r.engine FROM rollout_nodes m JOIN rollouts r ON r.id = m.rollout_id
  WHERE m.node_id BETWEEN $1 AND $2 AND m.state = 'passed' AND m.at > $3 AND r.org_id = $4`;

const higher = (a: string | null, b: string | null) =>
  a === null || (b !== null && compareVersions(b, a) > 0) ? b : a;

/** What these nodes run. A node that has just passed a rollout has its versions, whatever its former program says since. */
async function readVersions(
  { db, system }: Services,
  orgId: number,
  nodes: readonly NodeRecord[],
): Promise<(node: NodeRecord) => Versions> {
  const [first, last] = [nodes.at(0)?.id ?? 0, nodes.at(-1)?.id ?? 0];
  const since = system.now() - formerSpeaksMs;
  const rows = await queryAll(db, passedPick, readPassed, [first, last, since, orgId]);
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

/** The nodes that it concerns, without those that it has already; if these are many, only some of them with `isSome`. */
export async function readCandidates(
  { db, system }: Services,
  wanted: Wanted & { id?: number },
  isSome = false,
): Promise<{ candidates: Member[]; isPermitted: boolean }> {
  const { orgId, id = 0, createdAt } = wanted;
  const seed = seedOf(wanted);
  const candidates: Member[] = [];
  // As permissionText sorts them.
  const words = rolledOut.filter((what) => wanted[what] !== null).toSorted();
  const permits = `%${words.join("%")}%`;
  for (let last = 0; ; await system.sleep(pauseMs)) {
    const nodes = await queryAll(db, nodeRecord, permitting, [orgId, last, id, permits]);
    const versionsOf = await readVersions({ db, system }, orgId, nodes);
    for (const node of nodes) {
      const versions = versionsOf(node);
      if (!isConcerned(node, versions, wanted)) continue;
      candidates.push({
        id: node.id,
        rank: rankOf(node.id, seed),
        // The number of a rollout rises although the clock was set back.
        isOnline: (node.lastCheckinAt ?? 0) > Math.min(createdAt, system.now()) - onlineMs,
        isHub: isConfigured(node),
        kind: `${node.overlayVersion}/${node.platform}/${node.publicIp === null}`,
        ...versions,
      });
    }
    const isPermitted = last > 0 || nodes.length > 0;
    last = nodes.at(-1)?.id ?? last;
    if (nodes.length < sliceSize || (isSome && candidates.length > sliceSize))
      return { candidates, isPermitted };
  }
}

/** Never a lower version; and there must be something to do. */
function isConcerned(node: NodeRecord, versions: Versions, wanted: Wanted): boolean {
  const { agent, engine, settings, groups } = wanted;
  if (groups.length > 0 && !groups.some((each) => node.groups.includes(each))) return false;
  const isNewer = (wanted: string, present: string | null) =>
    present === null ? 1 : compareVersions(wanted, present);
  const steps = [
    ...(agent === null ? [] : [isNewer(agent, versions.agent)]),
    ...(engine === null ? [] : [isNewer(engine, versions.engine)]),
    ...(settings === null ? [] : [1]),
  ];
  return steps.every((step) => step >= 0) && steps.some((step) => step > 0);
}

const writeMembers = makeRowWriter(rolloutNodes, () => "");
const ofRollout = "FROM rollout_nodes WHERE rollout_id = $1";

/** Whether they are written at once. */
export const isOneSlice = (candidates: readonly Member[]): boolean => candidates.length <= sliceSize;

/** Writes the first nodes of these; with the last ones, its first ring begins. */
export async function writeSlice(
  tx: Transaction,
  row: Pick<RolloutRow, "id">,
  chosen: readonly (readonly [Member, number])[],
  now: number,
): Promise<void> {
  await writeMembers(
    tx,
    // In the order of the table's columns.
    chosen
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
  if (chosen.length > sliceSize) return;
  const rings = await queryNumber(tx, `SELECT max(ring) AS n ${ofRollout}`, [row.id]);
  await rollouts.update(tx, { id: row.id }, { ring: 1, rings, since: now });
}

/** Writes the nodes that a rollout does not have yet. */
export async function writeMissing(services: Services, row: RolloutRow): Promise<void> {
  const { db, system } = services;
  const count = `SELECT count(*) AS n ${ofRollout}`;
  let placed = await queryNumber(db, count, [row.id]);
  const { candidates } = await readCandidates(services, row);
  const chosen = chooseRings(candidates, placed);
  for (let at = 0; ; at += sliceSize) {
    const isOpen = await db.writeFor({ org: row.orgId }, async (tx) => {
      const present = await rollouts.find(tx, { id: row.id });
      // Another server may have gone on, and an administrator may have paused or ended it.
      const isMine = present?.state === "running" && present.ring === 0;
      if (!isMine || (await queryNumber(tx, count, [row.id])) !== placed) return false;
      await writeSlice(tx, row, chosen.slice(at), system.now());
      return true;
    });
    placed += sliceSize;
    if (!isOpen || at + sliceSize >= chosen.length) return;
    await system.sleep(pauseMs);
  }
}
