// Drills: a lighthouse, a relay or the control plane is away for a while. The control plane only tells nodes when (live-drills.ts);
// each node ends its part by itself (src/node/drill/), and reports which peers it lost.

import type { Drill, DrillRequest } from "../../api/drills/drills.ts";
import { onlineMs } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import {
  drillLeadMs,
  mostDrillTimeMs,
  withDrill,
  type DrillReport,
  type DrillTime,
} from "../../protocol/updates/drill.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import type { Store } from "../options.ts";
import { writeAsAdmin } from "../require-role.ts";
import type { Database, Reader, Transaction } from "../store/database.ts";
import { computed, integer, places, queryAll, queryNumber, text, textOrNull } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { drillNodes, drills, type DrillLosses, type DrillRow } from "../store/tables/drills.ts";
import {
  candidate,
  selectCandidates,
  firstVersion,
  isTooOld,
  maxNamed,
  readSilent,
  showDrill,
} from "./drill-report.ts";
import { isOverdue, refuseBesideDrill, refuseBesideRollout } from "./refuse-beside.ts";
import type { Org } from "../http/route.ts";

/**
 * How many drills of an organization are kept, to count how much of the time they took (refuseTooMuch). Of even the shortest drills,
 * no more than this fit into the time that drills may take at once.
 */
const keptDrills = 60;
/** Reports of one drill that are stored. In a larger organization, further nodes count as silent. */
const maxReports = 10_000;

/** The nodes that will be away; none if the control plane is. Throws conflict if it is not clear which, or if one cannot be. */
async function chooseTargets(reader: Reader, org: Org, { kind, nodes: ids }: DrillRequest, now: number) {
  if (kind === "control-plane-away") {
    if (ids.length > 0) throw new AppError("conflict", "The control plane is away for all nodes: name none.");
    return [];
  }
  const role = kind === "lighthouse-away" ? "lighthouse" : "relay";
  const sql = selectCandidates(role === "lighthouse" ? "is_lighthouse = 1" : "is_relay = 1");
  const all = await queryAll(reader, candidate, sql, [org.id]);
  const names = all.map(({ name }) => name).slice(0, maxNamed);
  if (all.length === 0) throw new AppError("conflict", `No node of ${org.slug} is a ${role}.`);
  if (ids.length === 0 && all.length > 1)
    throw new AppError("conflict", `There are several: ${names.join(", ")}.`, {
      hint: "Say which is away: `--node NAME`, for several of them repeatedly.",
    });
  if (!ids.every((id) => all.some((node) => node.id === id)))
    throw new AppError("conflict", `Name nodes that are a ${role}: ${names.join(", ")}.`);
  const chosen = ids.length === 0 ? all : all.filter(({ id }) => ids.includes(id));
  for (const { name, agentVersion, lastCheckinAt } of chosen) {
    if (isTooOld(agentVersion))
      throw new AppError("conflict", `The agent of ${name} is too old for drills.`, {
        hint: `Update it to ${firstVersion} or a later version.`,
      });
    if (lastCheckinAt < now - onlineMs) throw new AppError("conflict", `${name} does not check in now.`);
  }
  return chosen;
}

/** Throws conflict while another drill or a rollout is open. */
export async function createDrill(
  { db, system }: Store,
  org: Org,
  request: DrillRequest,
  actor: Actor,
): Promise<Drill> {
  const now = system.now();
  const targets = await chooseTargets(db, org, request, now);
  const row = await writeAsAdmin(db, org.id, actor, async (tx) => {
    const open = await drills.find(tx, { orgId: org.id, endedAt: null });
    if (open !== undefined && isOverdue(open, now)) await endDrill(tx, open, now);
    await refuseBesideDrill(tx, org, now);
    await refuseBesideRollout(tx, org);
    const earlier = await drills.all(tx, { orgId: org.id });
    refuseTooMuch(earlier, request.for_s, now);
    const lastBeginsAt = Math.max(0, ...earlier.map((each) => each.beginsAt));
    // `beginsAt` is the number of the order, too, and nodes take only rising numbers. The number after it aborts the drill.
    const beginsAt = Math.max(now + drillLeadMs, lastBeginsAt + 2);
    if (beginsAt > now + 2 * drillLeadMs)
      throw new AppError("conflict", "The clock of the control plane was set back since the last drill.", {
        hint: `The next one can begin after ${formatTime(lastBeginsAt)}.`,
      });
    const drill = await drills.insertReturning(tx, {
      orgId: org.id,
      kind: request.kind,
      targets: targets.map(({ id }) => id),
      beginsAt,
      endsAt: beginsAt + request.for_s * 1000,
    });
    await deleteOld(tx, org.id);
    const after = { kind: request.kind, for_s: request.for_s, nodes: targets.map(({ name }) => name) };
    const subject = `drill/${drill.id}`;
    await record(tx, { orgId: org.id, at: now, type: "drill.began", actor, subject, after });
    await tx.notify("drill", String(org.id));
    return drill;
  });
  return showDrill(db, row, now);
}

/** Ends it before its time. Throws conflict if nodes cannot be told, or if it is over. */
export async function abortDrill({ db, system }: Store, org: Org, id: number, actor: Actor): Promise<Drill> {
  const now = system.now();
  const aborted = await writeAsAdmin(db, org.id, actor, async (tx) => {
    const row = await drills.find(tx, { orgId: org.id, id });
    if (row === undefined) throw new AppError("not_found", "There is no such drill.");
    if (row.endedAt !== null || row.endsAt <= now) throw new AppError("conflict", `Drill ${id} is over.`);
    if (row.kind === "control-plane-away")
      throw new AppError(
        "conflict",
        "Nodes cannot be told: they do not contact the control plane in this drill.",
        {
          hint: `It ends by itself at ${formatTime(row.endsAt)}.`,
        },
      );
    const change = { endsAt: now, abortedAt: now };
    await drills.update(tx, { id }, change);
    const subject = `drill/${id}`;
    await record(tx, {
      orgId: org.id,
      at: now,
      type: "drill.aborted",
      actor,
      subject,
      after: { kind: row.kind },
    });
    await tx.notify("drill", String(org.id));
    return { ...row, ...change };
  });
  return showDrill(db, aborted, now);
}

/**
 * Throws conflict if drills would take too much of the time. Nodes count it as well, so that a control plane cannot take them
 * away for long. `earlier`: by id.
 */
function refuseTooMuch(earlier: readonly DrillRow[], forS: number, now: number): void {
  // Older drills may have been deleted: assume that until the first one that is left, drills took all the time they may.
  const isCut = earlier.length >= keptDrills;
  let time: DrillTime = { ms: isCut ? mostDrillTimeMs : 0, at: earlier[0]?.beginsAt ?? 0 };
  // The lead, in which nodes learn of a drill, counts as a part of it, as nodes count it themselves.
  for (const { beginsAt, endsAt } of isCut ? earlier.slice(1) : earlier) {
    const at = beginsAt - drillLeadMs;
    // Leave out drills that lie in the future, because the clock was set back.
    if (at <= now) time = withDrill(time, endsAt - at, at);
  }
  const { waitMs } = withDrill(time, drillLeadMs + forS * 1000, now);
  if (waitMs === 0) return;
  throw new AppError(
    "conflict",
    "Drills took too much of the time: 10 minutes at once, then a tenth of it.",
    {
      hint: `A drill of ${forS} s can begin at ${formatTime(now + waitMs)}, a shorter one earlier.`,
    },
  );
}

async function deleteOld(tx: Transaction, orgId: number): Promise<void> {
  const old = `SELECT id FROM drills WHERE org_id = $1 ORDER BY id DESC LIMIT 1000 OFFSET ${keptDrills}`;
  for (const { id } of await queryAll(tx, computed({ id: integer() }), old, [orgId])) {
    await drillNodes.delete(tx, { drillId: id });
    await drills.delete(tx, { id });
  }
}

/** Throws conflict if the node has no such order, or reports it too late. */
export async function takeDrillReport(
  { db, system }: Store,
  orgId: number,
  nodeId: number,
  report: DrillReport,
): Promise<void> {
  const row = await drills.find(db, { orgId, beginsAt: report.order });
  const isTarget = row?.kind === "control-plane-away" || row?.targets.includes(nodeId) === true;
  if (row === undefined || row.endedAt !== null || (report.state !== "ended" && !isTarget))
    throw new AppError("conflict", "The node has no such order.");
  const losses = await namedLosses(db, orgId, report);
  const { name } = (await nodes.find(db, { orgId, id: nodeId })) ?? { name: "" };
  await db.writeFor({ org: orgId }, async (tx) => {
    const key = { drillId: row.id, nodeId };
    const known = await drillNodes.find(tx, key);
    // The report of the end keeps what the node said before: that it was away, or refused to be.
    const fields =
      report.state === "ended"
        ? { peers: report.peers ?? 0, losses }
        : { state: report.state, reason: report.reason ?? "" };
    if (known !== undefined) await drillNodes.update(tx, key, { state: known.state, ...fields });
    else if ((await countReports(tx, row.id)) < maxReports)
      await drillNodes.insert(tx, { ...key, nodeName: name, state: report.state, ...fields });
    const now = system.now();
    if (now >= row.endsAt && (await readSilent(tx, row)).silent.count === 0) await endDrill(tx, row, now);
  });
}

/** `condition`: SQL that further limits the reports. */
const countReports = (reader: Reader, id: number, condition = "true") =>
  queryNumber(reader, `SELECT count(*) AS n FROM drill_nodes WHERE drill_id = $1 AND ${condition}`, [id]);

const peerPick = computed({ id: integer(), name: text(), ip: text(), ip6: textOrNull() });

/** Replaces the addresses of the report by the nodes that have them now: later other nodes may have them. */
async function namedLosses(
  reader: Reader,
  orgId: number,
  { losses = [] }: DrillReport,
): Promise<DrillLosses> {
  if (losses.length === 0) return [];
  const addresses = [...new Set(losses.map((each) => each.peer))];
  const listed = places(addresses, 2);
  const sql = `SELECT id, name, ip, ip6 FROM nodes WHERE org_id = $1 AND state = 'active'
    AND (ip IN (${listed}) OR ip6 IN (${listed}))`;
  const owners = new Map<string, { id: number; name: string }>();
  for (const node of await queryAll(reader, peerPick, sql, [orgId, ...addresses]))
    for (const address of [node.ip, node.ip6 ?? node.ip]) owners.set(address, node);
  return losses.flatMap((each) => {
    const owner = owners.get(each.peer);
    if (owner === undefined) return [];
    return [{ peer: owner.id, name: owner.name, fromMs: each.from_ms, untilMs: each.until_ms }];
  });
}

/** Stores the end of a drill, unless it is stored already, with the nodes that have not reported. */
async function endDrill(tx: Transaction, row: DrillRow, now: number): Promise<void> {
  const { id, orgId } = row;
  const silence = await readSilent(tx, row);
  if ((await drills.update(tx, { id, endedAt: null }, { endedAt: now, ...silence })) === 0) return;
  const withLosses = await countReports(tx, id, "losses <> '[]'");
  const after = { kind: row.kind, nodes_with_losses: withLosses, silent: silence.silent.count };
  await record(tx, { orgId, at: now, type: "drill.ended", actor: ourselves, subject: `drill/${id}`, after });
}

/** Ends drills whose reports are overdue. Returns the ids of organizations in which one is open. */
export async function openDrills(db: Database, now: number): Promise<ReadonlySet<number>> {
  const sql = `SELECT ${drills.select()} FROM drills WHERE ended_at IS NULL`;
  const open = new Set<number>();
  for (const row of await queryAll(db, drills, sql)) {
    if (!isOverdue(row, now)) open.add(row.orgId);
    else await db.writeFor({ org: row.orgId }, (tx) => endDrill(tx, row, now));
  }
  return open;
}
