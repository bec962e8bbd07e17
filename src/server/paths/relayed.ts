// Counts what relays forward for other nodes, by month, and pauses a relay that reaches its monthly limit, because traffic can cost
// money. No configuration names a paused relay, its own included. It relays again with its first report of the next month.

import type { Relay } from "../../api/paths/relays.ts";
import * as v from "valibot";
import { AppError, messageOf } from "../../base/errors.ts";
import { RelayedReport, type RelayedAnswer } from "../../protocol/traffic-reports.ts";
import { record, type Actor } from "../audit/record.ts";
import type { ServerOptions, Store } from "../options.ts";
import type { Transaction } from "../store/database.ts";
import { findNode } from "../store/nodes.ts";
import { nodes } from "../store/tables/nodes.ts";
import { relayTraffic } from "../store/tables/paths.ts";
import { raiseConfigVersion } from "../store/versions.ts";
import { listRelays, monthOf } from "./relay-list.ts";

type Deps = Pick<ServerOptions, "db" | "log" | "system">;

export type Relayed = {
  /** Undefined: not valid, not from a relay, or it cannot be written now. The node reports again with its next check-in. */
  take(orgId: number, nodeId: number, report: unknown): Promise<RelayedAnswer | undefined>;
};

/**
 * The last report of a relay and its answer, so that the same report costs no write. `counter`: the id of the relay's counter, which
 * changes when it begins at 0 again. `counted`: its bytes.
 */
type Known = { counter: string; counted: number; month: string; version: number; answer: RelayedAnswer };

/** Nodes whose last report is kept in memory. */
const maxKnown = 10_000;

export function makeRelayed({ db, log, system }: Deps): Relayed {
  const known = new Map<number, Known>();
  /** Answers of an earlier version may have an old limit. */
  let version = 0;
  // A limit that is changed on any replica notifies the organization.
  db.listen("organization", () => void (version += 1));
  return {
    async take(orgId, nodeId, sent) {
      const parsed = v.safeParse(RelayedReport, sent, { abortEarly: true });
      if (!parsed.success) return undefined;
      const { counter, bytes: counted } = parsed.output;
      const at = system.now();
      const month = monthOf(at);
      const last = known.get(nodeId);
      const isSame = last?.counter === counter && last.counted === counted && last.month === month;
      if (last !== undefined && isSame && last.version === version) return last.answer;
      try {
        const versionBefore = version;
        const write = (tx: Transaction) => addReport(tx, { orgId, nodeId, at, month, counter, counted });
        const taken = await db.writeFor({ org: orgId }, write);
        if (taken === undefined) return undefined;
        const { answer, isLate } = taken;
        if (known.size >= maxKnown) known.clear();
        if (!isLate) known.set(nodeId, { counter, counted, month, version: versionBefore, answer });
        return answer;
      } catch (error) {
        log.warn("The traffic of a relay cannot be written now", { reason: messageOf(error) });
        return undefined;
      }
    },
  };
}

/** A report as it came, at the time `at`, ms, in the month `month`. `counter`, `counted`: as in `Known`. */
type Sent = {
  orgId: number;
  nodeId: number;
  at: number;
  month: string;
  counter: string;
  counted: number;
};

/**
 * Check-ins of a node overlap, so that an older report may come after a newer one. A report that does not continue the last one, and
 * comes so soon after it, counts as such. If it is really of a new counter, the next report counts all of it.
 */
const overtakenWithinMs = 10_000;

/** `isLate`: a newer report came before this one, which was dropped. */
type Taken = { answer: RelayedAnswer; isLate: boolean };

/** Adds what was forwarded since the last report. Undefined: the node is no relay. */
async function addReport(tx: Transaction, sent: Sent): Promise<Taken | undefined> {
  const { orgId, nodeId, at, month, counter, counted } = sent;
  const node = await nodes.find(tx, { orgId, id: nodeId, state: "active" });
  if (node?.isRelay !== true) return undefined;
  const before = await rowOf(tx, orgId, nodeId);
  const isSameCounter = before.counter === counter && counted >= before.counted;
  const { reportedAt } = before;
  const bytesOfMonth = before.month === month ? before.bytes : 0;
  const answerOf = (bytes: number, paused: boolean) => ({ bytes, limit_bytes: before.limitBytes, paused });
  const isLate = reportedAt !== null && !isSameCounter && at < reportedAt + overtakenWithinMs;
  if (isLate) return { answer: answerOf(bytesOfMonth, before.isPaused), isLate };
  // The first report counts nothing: it may cover traffic of another month.
  const more = reportedAt === null ? 0 : counted - (isSameCounter ? before.counted : 0);
  const bytes = Math.min(Number.MAX_SAFE_INTEGER, bytesOfMonth + more);
  await relayTraffic.update(tx, { nodeId }, { month, bytes, counter, counted, reportedAt: at });
  const actor: Actor = { kind: "node", id: nodeId, ip: null };
  const isPaused = await pauseOrResume(tx, { ...before, month, bytes }, actor, at);
  return { answer: answerOf(bytes, isPaused), isLate };
}

type Row = NonNullable<Awaited<ReturnType<typeof relayTraffic.find>>>;

async function rowOf(tx: Transaction, orgId: number, nodeId: number): Promise<Row> {
  const row = await relayTraffic.find(tx, { nodeId });
  return row ?? (await relayTraffic.insertReturning(tx, { nodeId, orgId }));
}

/** Pauses or resumes the relay as its limit says; then all nodes get new configurations. Returns whether it is paused. */
async function pauseOrResume(tx: Transaction, row: Row, actor: Actor, at: number): Promise<boolean> {
  const { nodeId, orgId, bytes, limitBytes, month } = row;
  const isReached = limitBytes !== null && month === monthOf(at) && bytes >= limitBytes;
  if (isReached === row.isPaused) return isReached;
  await relayTraffic.update(tx, { nodeId }, { isPaused: isReached });
  await record(tx, {
    orgId,
    at,
    type: isReached ? "node.relay_paused" : "node.relay_resumed",
    actor,
    subject: `node/${nodeId}`,
    after: { month, bytes, limit_bytes: limitBytes },
  });
  await raiseConfigVersion(tx, orgId);
  return isReached;
}

/** Sets the monthly limit. Throws not_found, and conflict for a node that is no relay. */
export async function limitRelay(
  { db, system }: Store,
  orgId: number,
  nodeId: number,
  limitBytes: number | null,
  actor: Actor,
): Promise<Relay> {
  const at = system.now();
  await db.writeFor({ org: orgId }, async (tx) => {
    const node = await findNode(tx, orgId, nodeId);
    if (!node.isRelay || node.state === "revoked")
      throw new AppError("conflict", `The node ${node.name} is no relay.`);
    const before = await rowOf(tx, orgId, nodeId);
    if (before.limitBytes === limitBytes) return;
    await relayTraffic.update(tx, { nodeId }, { limitBytes });
    await record(tx, {
      orgId,
      at,
      type: "node.relay_limited",
      actor,
      subject: `node/${nodeId}`,
      before: { limit_bytes: before.limitBytes },
      after: { limit_bytes: limitBytes },
    });
    await pauseOrResume(tx, { ...before, limitBytes }, actor, at);
    await tx.notify("organization", String(orgId));
  });
  const [relay] = await listRelays(db, orgId, at, nodeId);
  if (relay === undefined) throw new AppError("not_found", "There is no such relay.");
  return relay;
}
