// Drills: a lighthouse, a relay or the control plane is away for a while. The control plane only tells nodes when; each node
// ends its part by itself (src/node/drill/), and reports which peers it lost.

import type { Drill, DrillRequest } from "../../api/drills/drills.ts";
import { onlineMs } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import { formatTime } from "../../base/quantities.ts";
import {
  drillLeadMs,
  mostDrillTimeMs,
  withDrill,
  type DrillOrder,
  type DrillReport,
  type DrillTime,
} from "../../protocol/updates/drill.ts";
import { ourselves, record, type Actor } from "../audit/record.ts";
import type { ServerOptions } from "../options.ts";
import { requireRole } from "../require-role.ts";
import type { Changes } from "../config/held-polls.ts";
import type { Database, Reader, Transaction } from "../store/database.ts";
import { computed, integer, places, queryAll, queryNumber, text, textOrNull } from "../store/table.ts";
import { nodes } from "../store/tables/nodes.ts";
import { drillNodes, drills, type DrillLosses, type DrillRow } from "../store/tables/drills.ts";
import {
  candidate,
  candidates,
  firstVersion,
  isTooOld,
  maxNamed,
  readSilent,
  showDrill,
} from "./drill-report.ts";
import { isOverdue, refuseBesideDrill, refuseBesideRollout } from "./refuse-beside.ts";

type Store = Pick<ServerOptions, "db" | "system">;
type Org = { id: number; slug: string };

/** More than may begin at once, of the shortest: how much of the time drills took is counted of these. */
const keptDrills = 60;
/** Reports of one drill. Of a larger organization, further nodes count as silent. */
const maxReports = 10_000;

export type LiveDrills = {
  /** What the node has to be told; undefined: nothing. `taken`: the number of the order that it took last. */
  orderFor(orgId: number, nodeId: number, taken: number | undefined): DrillOrder | undefined;
};

/** The running drills, in memory: no check-in reads them. */
export function makeLiveDrills(
  { db, system }: Store,
  changes: Pick<Changes, "wakeOrganization">,
): LiveDrills {
  let running = new Map<number, DrillRow>();
  const load = async () => {
    const sql = `SELECT ${drills.select()} FROM drills
      WHERE ended_at IS NULL AND (ends_at > $1 OR aborted_at IS NOT NULL)`;
    const rows = await queryAll(db, drills, sql, [system.now()]);
    running = new Map(rows.map((row) => [row.orgId, row]));
  };
  db.listen("drill", (payload) => {
    // Without the database nodes are not told: then the drill ends without them.
    void load().then(
      () => changes.wakeOrganization(Number(payload)),
      () => undefined,
    );
  });
  void load().catch(() => undefined);
  return {
    orderFor(orgId, nodeId, taken) {
      const row = running.get(orgId);
      if (row === undefined || taken === undefined) return undefined;
      // Only nodes that have taken the drill are told that it is aborted.
      if (row.abortedAt !== null) return taken === row.beginsAt ? abortOf(row) : undefined;
      if (taken >= row.beginsAt) return undefined;
      const now = system.now();
      if (row.endsAt <= now) return undefined;
      return {
        order: row.beginsAt,
        kind: row.kind,
        ...(row.targets.includes(nodeId) ? { dead: true } : {}),
        begins_in_ms: row.beginsAt - now,
        ends_in_ms: row.endsAt - now,
      };
    },
  };
}

const abortOf = ({ beginsAt, kind }: DrillRow): DrillOrder => ({
  order: beginsAt + 1,
  kind,
  begins_in_ms: 0,
  ends_in_ms: 0,
});

/** The nodes that are away meanwhile. Throws conflict if it is not clear which, or if one cannot be. */
async function chooseTargets(reader: Reader, org: Org, { kind, nodes: ids }: DrillRequest, now: number) {
  if (kind === "control-plane-away") {
    if (ids.length > 0) throw new AppError("conflict", "The control plane is away for all nodes: name none.");
    return [];
  }
  const role = kind === "lighthouse-away" ? "lighthouse" : "relay";
  const sql = candidates(role === "lighthouse" ? "is_lighthouse = 1" : "is_relay = 1");
  const all = await queryAll(reader, candidate, sql, [org.id]);
  const names = all.map(({ name }) => name).slice(0, maxNamed);
  if (all.length === 0) throw new AppError("conflict", `No node of ${org.slug} is a ${role}.`);
  if (ids.length === 0 && all.length > 1)
    throw new AppError("conflict", `There are several: ${names.join(", ")}.`, {
      hint: "Say which is away: `--node NAME`, for several of them repeatedly.",
    });
  if (ids.some((id) => all.every((each) => each.id !== id)))
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

/** Throws conflict while another one or a rollout is open. */
export async function createDrill(
  { db, system }: Store,
  org: Org,
  wanted: DrillRequest,
  actor: Actor,
): Promise<Drill> {
  const now = system.now();
  const targets = await chooseTargets(db, org, wanted, now);
  const row = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
    const open = await drills.find(tx, { orgId: org.id, endedAt: null });
    if (open !== undefined && isOverdue(open, now)) await endDrill(tx, open, now);
    await refuseBesideDrill(tx, org, now);
    await refuseBesideRollout(tx, org);
    const former = await drills.all(tx, { orgId: org.id });
    refuseTooMuch(former, wanted.for_s, now);
    const last = Math.max(0, ...former.map((each) => each.beginsAt));
    // The beginning is the number of the order, too, and nodes take only rising numbers. The next number aborts the drill.
    const beginsAt = Math.max(now + drillLeadMs, last + 2);
    if (beginsAt > now + 2 * drillLeadMs)
      throw new AppError("conflict", "The clock of the control plane was set back since the last drill.", {
        hint: `The next one can begin after ${formatTime(last)}.`,
      });
    const made = await drills.insertReturning(tx, {
      orgId: org.id,
      kind: wanted.kind,
      targets: targets.map(({ id }) => id),
      beginsAt,
      endsAt: beginsAt + wanted.for_s * 1000,
    });
    await deleteOld(tx, org.id);
    const after = { kind: wanted.kind, for_s: wanted.for_s, nodes: targets.map(({ name }) => name) };
    const subject = `drill/${made.id}`;
    await record(tx, { orgId: org.id, at: now, type: "drill.began", actor, subject, after });
    await tx.notify("drill", String(org.id));
    return made;
  });
  return showDrill(db, row, now);
}

/** Ends it before its time. Throws conflict if nodes cannot be told, or if it is over. */
export async function abortDrill({ db, system }: Store, org: Org, id: number, actor: Actor): Promise<Drill> {
  const now = system.now();
  const aborted = await db.writeFor({ org: org.id }, async (tx) => {
    await requireRole(tx, org.id, actor);
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

/** Throws conflict. Each node counts too, whatever its control plane says. */
function refuseTooMuch(former: readonly DrillRow[], forS: number, now: number): void {
  // How long the deleted drills were is not known: the most is assumed.
  const isCut = former.length >= keptDrills;
  let time: DrillTime = { ms: isCut ? mostDrillTimeMs : 0, at: former[0]?.beginsAt ?? 0 };
  for (const { beginsAt, endsAt } of isCut ? former.slice(1) : former) {
    const at = beginsAt - drillLeadMs;
    // The clock was set back since a drill that lies in the future.
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

/** Throws conflict if the node has no such order, or says it too late. */
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
    const own = { drillId: row.id, nodeId };
    const present = await drillNodes.find(tx, own);
    const ended = report.state === "ended" ? { peers: report.peers ?? 0, losses } : {};
    const said = report.state === "ended" ? {} : { state: report.state, reason: report.reason ?? "" };
    if (present !== undefined) await drillNodes.update(tx, own, { state: present.state, ...said, ...ended });
    else if ((await countReports(tx, row.id)) < maxReports)
      await drillNodes.insert(tx, { ...own, nodeName: name, state: report.state, ...said, ...ended });
    const now = system.now();
    if (now >= row.endsAt && (await readSilent(tx, row)).silent.count === 0) await endDrill(tx, row, now);
  });
}

const countReports = (reader: Reader, id: number, more = "") =>
  queryNumber(reader, `SELECT count(*) AS n FROM drill_nodes WHERE drill_id = $1${more}`, [id]);

const peer = computed({ id: integer(), name: text(), ip: text(), ip6: textOrNull() });

/** The addresses of the report belong to nodes now; later they may belong to others. */
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
  for (const node of await queryAll(reader, peer, sql, [orgId, ...addresses]))
    for (const address of [node.ip, node.ip6 ?? node.ip]) owners.set(address, node);
  return losses.flatMap((each) => {
    const owner = owners.get(each.peer);
    if (owner === undefined) return [];
    return [{ peer: owner.id, name: owner.name, fromMs: each.from_ms, untilMs: each.until_ms }];
  });
}

async function endDrill(tx: Transaction, row: DrillRow, now: number): Promise<void> {
  const { id, orgId } = row;
  const silent = await readSilent(tx, row);
  if ((await drills.update(tx, { id, endedAt: null }, { endedAt: now, ...silent })) === 0) return;
  const lost = await countReports(tx, id, " AND losses <> '[]'");
  const after = { kind: row.kind, nodes_with_losses: lost, silent: silent.silent.count };
  await record(tx, { orgId, at: now, type: "drill.ended", actor: ourselves, subject: `drill/${id}`, after });
}

/** The organizations in which a drill runs, and ends those whose reports are overdue. */
export async function openDrills(db: Database, now: number): Promise<ReadonlySet<number>> {
  const sql = `SELECT ${drills.select()} FROM drills WHERE ended_at IS NULL`;
  const open = new Set<number>();
  for (const row of await queryAll(db, drills, sql)) {
    if (!isOverdue(row, now)) open.add(row.orgId);
    else await db.writeFor({ org: row.orgId }, (tx) => endDrill(tx, row, now));
  }
  return open;
}
