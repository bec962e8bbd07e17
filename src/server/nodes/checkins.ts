// A check-in: who is there, with what, and what it should know. It may be held until there is news for the node.

import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { maxPollWaitS, type CheckinAnswer, type CheckinRequest } from "../../protocol.ts";
import type { Authorities } from "../certificates/authorities.ts";
import { engineClass } from "../config/config.ts";
import { advanceMoves } from "../certificates/move-turns.ts";
import { once } from "../once.ts";
import type { Live, LiveNode } from "./live.ts";
import type { NodeRecord } from "./node-records.ts";
import { revokedError } from "./orders.ts";
import type { Renewals } from "../certificates/renewal.ts";
import type { Reports } from "./reports.ts";
import type { Services } from "../services.ts";
import { settle } from "../config/upkeep.ts";
import { raiseOwnVersion, tellNode } from "../config/versions.ts";

type Deps = Pick<Services, "db" | "system" | "secretKey" | "changes"> & {
  authorities: Authorities;
  live: Live;
  renewals: Renewals;
  reports: Reports;
};
type Org = { id: number; slug: string };

export type Checkins = {
  /**
   * Waits up to `waitS` seconds for news; `signal` is asked for only then. Throws node_revoked with the order, and
   * conflict for a node that is not registered.
   */
  checkin(
    org: Org,
    nodeId: number,
    request: CheckinRequest,
    waiting: Waiting,
  ): CheckinAnswer | Promise<CheckinAnswer>;
  /** The node has the very files of this version. */
  takeApplied(org: Org, nodeId: number, version: number): Promise<void>;
};

type Waiting = { waitS: number; signal: () => AbortSignal };

/** What a look at the node gives: the version it should have, and its answer if it is answered now. */
type Look = { node: LiveNode; version: number };
/** `seen`: the version that the node has. */
type Report = { found: Look; seen: number };

export function makeCheckins(deps: Deps): Checkins {
  const { system, changes, reports } = deps;
  const time = makeClock(system.now);
  const look = (org: Org, nodeId: number): Look | Promise<Look> =>
    once(activeNode(deps, org, nodeId), (node) =>
      once(deps.live.version(org.id), (version) => ({ node, version: Math.max(node.ownVersion, version) })),
    );
  const answer = ({ node, version }: Look, seen: number): CheckinAnswer => {
    const now = time();
    const usual = {
      last_checkin_at: now,
      server_time: now,
      config_version: version,
      config_changed: seen !== version,
      certificate_not_after: node.certificateNotAfter,
    };
    // Until it has the version that came with its restore, the node is told to start again.
    const { order } = node;
    return order !== undefined && (node.applied ?? 0) < node.ownVersion ? { ...usual, order } : usual;
  };

  /** Takes in what the node says; what it should know then, and the version that it has. */
  const report = (org: Org, nodeId: number, request: CheckinRequest): Report | Promise<Report> =>
    once(look(org, nodeId), (found) => {
      // Who does not say its version has the one it said last; who never said any is not told of a change.
      const seen = request.config_version ?? found.node.applied ?? found.version;
      return once(take(deps, org, found.node, request), (isChanged) =>
        once(isChanged ? look(org, nodeId) : found, (present) => ({ found: present, seen })),
      );
    });
  const held = async (
    org: Org,
    nodeId: number,
    request: CheckinRequest,
    { waitS, signal }: Waiting,
  ): Promise<CheckinAnswer> => {
    // Opened before the look, so that no news slips in between.
    const poll = changes.open(org.id, nodeId);
    const aborted = signal();
    const onAbort = () => poll.close();
    aborted.addEventListener("abort", onAbort, { once: true });
    // Whoever has hung up before makes no event any more.
    if (aborted.aborted) onAbort();
    try {
      const end = system.now() + Math.min(waitS, maxPollWaitS) * 1000;
      let { found, seen } = await report(org, nodeId, request);
      for (let goesOn = true; goesOn && seen === found.version;) {
        goesOn = await poll.wait(end - system.now());
        found = await look(org, nodeId);
      }
      reports.add(found.node.said, system.now());
      return answer(found, seen);
    } finally {
      aborted.removeEventListener("abort", onAbort);
      poll.close();
    }
  };

  return {
    checkin: (org, nodeId, request, waiting) =>
      waiting.waitS > 0
        ? held(org, nodeId, request, waiting)
        : once(report(org, nodeId, request), ({ found, seen }) => answer(found, seen)),
    async takeApplied(org, nodeId, version) {
      const node = await deps.live.node(org.id, nodeId);
      node.applied = version;
      reports.add(node.said, system.now(), undefined, version);
    },
  };
}

function activeNode(deps: Deps, org: Org, nodeId: number): LiveNode | Promise<LiveNode> {
  return once(deps.live.node(org.id, nodeId), (node) => {
    if (node.revoked !== undefined) return refuse(deps, org, node.revoked);
    if (node.isPending) throw new AppError("conflict", "The node is not registered yet.");
    return node;
  });
}

async function refuse(deps: Deps, org: Org, revoked: NodeRecord): Promise<never> {
  throw await revokedError(deps, org, revoked);
}

/** Takes in what the node says of itself, and does what follows from it; true where the node was changed by that. */
function take(deps: Deps, org: Org, node: LiveNode, request: CheckinRequest): boolean | Promise<boolean> {
  const { system, reports } = deps;
  const { config_version: applied, overlay_version: engine } = request;
  const now = system.now();
  reports.add(node.said, now, request, applied);
  if (applied !== undefined) node.applied = applied;
  const confirmed = confirmedVersion(request);
  const follows: Follows = {
    engine: engine === node.overlayVersion ? undefined : engine,
    confirmed: confirmed === node.confirmed ? undefined : confirmed,
    isDue: node.renewAt !== null && node.renewAt <= now,
  };
  const isNothing = follows.engine === undefined && follows.confirmed === undefined && !follows.isDue;
  return isNothing ? false : follow(deps, org, node, follows);
}

/** What a report brings about: another engine, a version now in force, certificates whose time has come. */
type Follows = { engine: string | undefined; confirmed: number | undefined; isDue: boolean };

async function follow(
  deps: Deps,
  org: Org,
  node: LiveNode,
  { engine, confirmed, isDue }: Follows,
): Promise<boolean> {
  const isTaken = engine !== undefined && (await unlessStorageRefuses(() => takeEngine(deps, node, engine)));
  if (confirmed !== undefined) await unlessStorageRefuses(() => takeConfirmation(deps, org, node, confirmed));
  if (isDue) {
    await deps.renewals.ensure(org.id, node.id, { wait: node.notAfter <= deps.system.now() });
  }
  return isTaken || isDue;
}

/** A full disk must keep no node from hearing of a revocation: what it said of itself it says again the next time. */
async function unlessStorageRefuses(act: () => Promise<void>): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    if (error instanceof AppError && error.code === "storage_unavailable") return false;
    throw error;
  }
}

/**
 * The version that is in force on the node. Who runs an engine says it apart, from the engine's log; where no engine
 * runs there is nothing that could still follow an older one.
 */
function confirmedVersion(request: CheckinRequest): number | undefined {
  if (request.confirmed_config_version !== undefined) return request.confirmed_config_version;
  return request.overlay_state === undefined || request.overlay_state === "stopped"
    ? request.config_version
    : undefined;
}

/** Others may wait for this: it is on disk, and what follows from it is done, before the answer. */
async function takeConfirmation(deps: Deps, org: Org, node: LiveNode, version: number): Promise<void> {
  const { db } = deps;
  await db.write((tx) =>
    tx.run("UPDATE nodes SET confirmed_config_version = $2 WHERE id = $1", [node.id, version]),
  );
  node.confirmed = version;
  await settle(deps, org.id);
  await advanceMoves(deps, org.id);
}

/** An engine that reads other keys has the configuration of this node alone rendered for it anew. */
async function takeEngine({ db }: Deps, node: LiveNode, overlayVersion: string): Promise<void> {
  const { id, orgId } = node;
  await db.write(async (tx) => {
    await tx.run("UPDATE nodes SET overlay_version = $2 WHERE id = $1", [id, overlayVersion]);
    if (engineClass(overlayVersion) === engineClass(node.overlayVersion)) await tellNode(tx, orgId, id);
    else await raiseOwnVersion(tx, orgId, id);
  });
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
