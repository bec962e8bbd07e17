// Check-ins: who is there, with what. What nodes report is kept in memory and written together within a second; what
// they are answered comes from a small cache that news throw away.

import { AppError } from "../errors.ts";
import { formatTime } from "../duration.ts";
import { maxPollWaitS, type CheckinAnswer, type CheckinRequest } from "../protocol.ts";
import type { NodeRecord } from "./node-records.ts";
import type { NodeServices } from "./node-services.ts";
import { writeSightings, type Sighting } from "./store/sightings.ts";
import { numberOf, textOf, textOrNull, type Transaction } from "./store/database.ts";

export type Checkins = {
  /** `signal` is asked for only where the answer has to wait. */
  checkin(
    org: { id: number },
    nodeId: number,
    request: CheckinRequest,
    waitS: number,
    signal: () => AbortSignal,
  ): Promise<CheckinAnswer>;
  /** A node has the configuration of this version. */
  applied(nodeId: number, version: number): void;
};

/** As little as an answer needs: with 100,000 nodes each byte counts. */
type Known = {
  revoked: Pick<NodeRecord, "name" | "revokeReason" | "orderJws"> | undefined;
  overlayVersion: string | null;
  certificateNotAfter: string;
  order: string | undefined;
};

const flushMs = 500;
/** A write of so many is short enough for everybody else's to wait behind it. */
const maxTogether = 256;
const maxKnown = 200_000;

export function makeCheckins(services: NodeServices): Checkins {
  const { db, system, changes } = services;
  const known = new Map<number, Known>();
  const versions = new Map<number, number>();
  const time = makeClock(system.now);
  const reports = makeReports(services);
  // What was read before the news must not be kept after them.
  let generation = 0;

  db.listen("organization", (payload) => {
    generation++;
    versions.delete(Number(payload));
  });
  db.listen("node", (payload) => {
    generation++;
    const [orgId, nodeId] = payload.split("/").map(Number);
    versions.delete(orgId ?? 0);
    known.delete(nodeId ?? 0);
  });
  db.listen("auth", () => {
    generation++;
    known.clear();
  });

  const lookUp = async (orgId: number, nodeId: number): Promise<Known> => {
    const before = generation;
    const row = await db.get(
      `SELECT name, state, overlay_version, revoke_reason, order_jws, (SELECT coalesce(max(not_after), 0) FROM certificates
         WHERE node_id = nodes.id AND state = 'current' AND kind = 'overlay') AS not_after
       FROM nodes WHERE org_id = $1 AND id = $2`,
      [orgId, nodeId],
    );
    if (row === undefined) throw new AppError("not_found", "There is no such node.");
    const orderJws = textOrNull(row, "order_jws");
    const isRevoked = textOf(row, "state") === "revoked";
    const fresh: Known = {
      revoked: isRevoked
        ? { name: textOf(row, "name"), revokeReason: textOrNull(row, "revoke_reason"), orderJws }
        : undefined,
      overlayVersion: textOrNull(row, "overlay_version"),
      certificateNotAfter: formatTime(numberOf(row, "not_after")),
      order: orderJws ?? undefined,
    };
    if (known.size >= maxKnown) known.clear();
    if (before === generation) known.set(nodeId, fresh);
    return fresh;
  };
  const readVersion = async (orgId: number): Promise<number> => {
    const before = generation;
    const row = await db.get("SELECT config_version FROM organizations WHERE id = $1", [orgId]);
    const version = numberOf(row ?? {}, "config_version");
    if (before === generation) versions.set(orgId, version);
    return version;
  };
  // Another engine reads other keys: the node's configuration is rendered for it anew.
  const takeEngine = (orgId: number, nodeId: number, version: string) =>
    db.write(async (tx) => {
      await tx.run("UPDATE nodes SET overlay_version = $2 WHERE id = $1", [nodeId, version]);
      await raiseForNode(tx, orgId, nodeId);
    });

  /** What the node is answered if it is answered now. */
  const look = async (orgId: number, nodeId: number, request: CheckinRequest): Promise<CheckinAnswer> => {
    const found = known.get(nodeId) ?? (await lookUp(orgId, nodeId));
    if (found.revoked !== undefined) throw revoked(found.revoked);
    const { overlay_version: engine } = request;
    if (engine !== undefined && engine !== found.overlayVersion) await takeEngine(orgId, nodeId, engine);
    const version = versions.get(orgId) ?? (await readVersion(orgId));
    const now = time();
    return {
      last_checkin_at: now,
      server_time: now,
      config_version: version,
      config_changed: request.config_version !== version,
      certificate_not_after: found.certificateNotAfter,
      ...(found.order === undefined ? {} : { order: found.order }),
    };
  };

  return {
    applied: (nodeId, version) => reports.add(nodeId, system.now(), undefined, version),
    async checkin(org, nodeId, request, waitS, signal) {
      if (waitS <= 0) {
        const answer = await look(org.id, nodeId, request);
        reports.add(nodeId, system.now(), request, request.config_version);
        return answer;
      }
      // Opened before the look, so that no news slips in between.
      const poll = changes.open(org.id, nodeId);
      const end = system.now() + Math.min(waitS, maxPollWaitS) * 1000;
      const aborted = signal();
      aborted.addEventListener("abort", poll.close, { once: true });
      try {
        for (;;) {
          const answer = await look(org.id, nodeId, request);
          reports.add(nodeId, system.now(), request, request.config_version);
          const left = end - system.now();
          if (answer.config_changed || left <= 0 || !(await poll.wait(left))) {
            return { ...answer, last_checkin_at: time(), server_time: time() };
          }
        }
      } finally {
        aborted.removeEventListener("abort", poll.close);
        poll.close();
      }
    },
  };
}

/** The present second as text, made once a second. */
function makeClock(now: () => number): () => string {
  let second = Number.NaN;
  let text = "";
  return () => {
    const ms = now();
    if (Math.floor(ms / 1000) !== second) {
      second = Math.floor(ms / 1000);
      text = formatTime(ms);
    }
    return text;
  };
}

/** Keeps the last report of each node until it is written. */
function makeReports({ db, log, atStop }: Pick<NodeServices, "db" | "log" | "atStop">) {
  const waiting = new Map<number, Sighting>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const schedule = () => {
    // Half a second of check-ins may be lost with the process; nodes report again.
    timer ??= setTimeout(() => void flush(), flushMs).unref();
  };
  let running: Promise<void> | undefined;
  const flush = () => (running ??= write().finally(() => (running = undefined)));
  const write = async () => {
    // In the order of the table, so that a group touches few of its pages.
    const all = [...waiting.values()].sort((a, b) => a.nodeId - b.nodeId);
    waiting.clear();
    for (let first = 0; first < all.length; first += maxTogether) {
      const batch = all.slice(first, first + maxTogether);
      try {
        await db.write((tx) => writeSightings(tx, batch));
      } catch (error) {
        // The disk refuses: all is kept for the next time, but what came later wins over it.
        for (const each of all.slice(first)) if (!waiting.has(each.nodeId)) waiting.set(each.nodeId, each);
        log.warn("check-ins cannot be written now", { reason: String(error) });
        break;
      }
    }
    timer = undefined;
    if (waiting.size > 0) schedule();
  };
  atStop(async () => {
    await running;
    await flush();
    clearTimeout(timer);
  });
  return {
    add(nodeId: number, at: number, request: CheckinRequest | undefined, applied: number | undefined) {
      const before = waiting.get(nodeId);
      const said = request ?? before;
      waiting.set(nodeId, {
        nodeId,
        at,
        version: request?.version ?? before?.version ?? null,
        uptime: said?.uptime ?? null,
        overlayState: request?.overlay_state ?? before?.overlayState ?? null,
        applied: applied ?? before?.applied ?? null,
        confirmed: request?.confirmed_config_version ?? before?.confirmed ?? null,
      });
      schedule();
    },
  };
}

/** What concerns one node alone: the version rises, and only that node's polls are woken. */
export async function raiseForNode(tx: Transaction, orgId: number, nodeId: number): Promise<void> {
  await tx.run("UPDATE organizations SET config_version = config_version + 1 WHERE id = $1", [orgId]);
  await tx.notify("node", `${orgId}/${nodeId}`);
}

export function revoked(node: Pick<NodeRecord, "name" | "revokeReason" | "orderJws">): AppError {
  return new AppError(
    "node_revoked",
    `The node ${node.name} is revoked: ${node.revokeReason ?? "no reason given"}.`,
    node.orderJws === null ? {} : { order: node.orderJws },
  );
}
