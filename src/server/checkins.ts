// Check-ins: who is there, with what. What nodes report is kept in memory and written together within a second; what
// they are answered comes from a small cache that news throw away.

import { AppError } from "../errors.ts";
import { formatTime } from "../duration.ts";
import { maxPollWaitS, type CheckinAnswer, type CheckinRequest } from "../protocol.ts";
import { findNode, type NodeRecord } from "./node-records.ts";
import type { NodeServices } from "./node-services.ts";
import { numberOf, type Transaction } from "./store/database.ts";

export type Checkins = {
  checkin(
    org: { id: number },
    nodeId: number,
    request: CheckinRequest,
    waitS: number,
    signal: AbortSignal,
  ): Promise<CheckinAnswer>;
  /** A node has the configuration of this version. */
  applied(nodeId: number, version: number): void;
};

type Known = { node: NodeRecord; notAfter: number; order: string | undefined };
type Report = { at: number; request: CheckinRequest | undefined; applied: number | undefined };

const flushMs = 500;
const maxKnown = 200_000;

export function makeCheckins(services: NodeServices): Checkins {
  const { db, system, changes } = services;
  const known = new Map<number, Known>();
  const versions = new Map<number, number>();
  const reports = new Map<number, Report>();
  let timer: ReturnType<typeof setTimeout> | undefined;

  db.listen("organization", (payload) => {
    versions.delete(Number(payload));
  });
  db.listen("node", (payload) => {
    const [orgId, nodeId] = payload.split("/").map(Number);
    versions.delete(orgId ?? 0);
    known.delete(nodeId ?? 0);
  });
  db.listen("auth", () => known.clear());

  const flush = async () => {
    clearTimeout(timer);
    timer = undefined;
    const batch = [...reports];
    reports.clear();
    if (batch.length === 0) return;
    try {
      await db.write((tx) => writeReports(tx, batch));
    } catch (error) {
      // The disk refuses: what came later wins over what is put back.
      for (const [id, report] of batch) if (!reports.has(id)) reports.set(id, report);
      services.log.warn("check-ins cannot be written now", { reason: String(error) });
      schedule();
    }
  };
  const schedule = () => {
    // Half a second of check-ins may be lost with the process; nodes report again.
    timer ??= setTimeout(() => void flush(), flushMs).unref();
  };
  const report = (
    id: number,
    at: number,
    request: CheckinRequest | undefined,
    applied: number | undefined,
  ) => {
    const before = reports.get(id);
    reports.set(id, { at, request: request ?? before?.request, applied: applied ?? before?.applied });
    schedule();
  };

  const lookUp = async (orgId: number, nodeId: number): Promise<Known> => {
    const cached = known.get(nodeId);
    if (cached !== undefined) return cached;
    const node = await findNode(db, orgId, nodeId);
    const row = await db.get(
      "SELECT coalesce(max(not_after), 0) AS until FROM certificates WHERE node_id = $1 AND state = 'current' AND kind = 'overlay'",
      [nodeId],
    );
    const fresh = { node, notAfter: numberOf(row ?? {}, "until"), order: node.orderJws ?? undefined };
    if (known.size >= maxKnown) known.clear();
    known.set(nodeId, fresh);
    return fresh;
  };
  const versionOf = async (orgId: number): Promise<number> => {
    const cached = versions.get(orgId);
    if (cached !== undefined) return cached;
    const row = await db.get("SELECT config_version FROM organizations WHERE id = $1", [orgId]);
    const version = numberOf(row ?? {}, "config_version");
    versions.set(orgId, version);
    return version;
  };

  // Another engine reads other keys: the node's configuration is rendered for it anew.
  const takeEngine = (orgId: number, nodeId: number, version: string) =>
    db.write(async (tx) => {
      await tx.run("UPDATE nodes SET overlay_version = $2 WHERE id = $1", [nodeId, version]);
      await raiseForNode(tx, orgId, nodeId);
    });

  return {
    applied: (nodeId, version) => report(nodeId, system.now(), undefined, version),
    async checkin(org, nodeId, request, waitS, signal) {
      // Opened before the look, so that no news slips in between.
      const poll = waitS > 0 ? changes.open(org.id, nodeId) : undefined;
      const end = system.now() + Math.min(waitS, maxPollWaitS) * 1000;
      const onAbort = () => poll?.close();
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        for (;;) {
          const { node, notAfter, order } = await lookUp(org.id, nodeId);
          if (node.state === "revoked") throw revoked(node);
          report(nodeId, system.now(), request, request.config_version);
          if (isNewEngine(node, request)) await takeEngine(org.id, nodeId, request.overlay_version ?? "");
          const version = await versionOf(org.id);
          const changed = request.config_version !== version;
          const left = end - system.now();
          if (changed || poll === undefined || left <= 0 || !(await poll.wait(left))) {
            return {
              last_checkin_at: formatTime(system.now()),
              server_time: formatTime(system.now()),
              config_version: version,
              config_changed: changed,
              certificate_not_after: formatTime(notAfter),
              ...(order === undefined ? {} : { order }),
            };
          }
        }
      } finally {
        signal.removeEventListener("abort", onAbort);
        poll?.close();
      }
    },
  };
}

function isNewEngine(node: NodeRecord, request: CheckinRequest): boolean {
  return request.overlay_version !== undefined && request.overlay_version !== node.overlayVersion;
}

/** What concerns one node alone: the version rises, and only that node's polls are woken. */
export async function raiseForNode(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.run("UPDATE organizations SET config_version = config_version + 1 WHERE id = $1", [orgId]);
  await tx.notify("node", `${orgId}/${nodeId}`);
}

export function revoked(node: NodeRecord): AppError {
  return new AppError(
    "node_revoked",
    `The node ${node.name} is revoked: ${node.revokeReason ?? "no reason given"}.`,
    node.orderJws === null ? {} : { order: node.orderJws },
  );
}

async function writeReports(tx: Transaction, batch: readonly [number, Report][]): Promise<void> {
  for (const [id, { at, request, applied }] of batch) {
    await tx.run(
      `UPDATE nodes SET last_checkin_at = $2, agent_version = coalesce($3, agent_version), uptime = coalesce($4, uptime),
         overlay_version = coalesce($5, overlay_version), overlay_state = coalesce($6, overlay_state),
         applied_config_version = coalesce($7, applied_config_version), confirmed_config_version = coalesce($8, confirmed_config_version)
       WHERE id = $1`,
      [
        id,
        at,
        request?.version ?? null,
        request?.uptime ?? null,
        request?.overlay_version ?? null,
        request?.overlay_state ?? null,
        applied ?? null,
        request?.confirmed_config_version ?? null,
      ],
    );
  }
}
