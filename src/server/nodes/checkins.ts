// A check-in: who is there, with what, and what it should know. It may be held until there is news for the node.

import { AppError } from "../../errors.ts";
import { formatTime } from "../../duration.ts";
import { maxPollWaitS, type CheckinAnswer, type CheckinRequest } from "../../protocol.ts";
import type { Changes } from "../config/changes.ts";
import { engineClass } from "../../engine-features.ts";
import type { Live, LiveNode } from "./live.ts";
import { versionOf } from "../store/nodes.ts";
import { revokedError } from "./orders.ts";
import type { Renewals } from "./renewal.ts";
import type { Reports } from "./reports.ts";
import type { ServerOptions } from "../options.ts";
import { settle } from "./upkeep.ts";
import { raiseOwnVersion, tellNode } from "../store/versions.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "secretKey"> & {
  changes: Changes;
  live: Live;
  renewals: Renewals;
  reports: Reports;
  /** Continues what waited for a node of the organization to confirm a version. */
  afterConfirmation(orgId: number): Promise<void>;
};
type Org = { id: number; slug: string };

export type Checkins = {
  /** The answer, where all that it takes is in memory and nothing follows from what the node says: nearly always. */
  atOnce(org: Org, nodeId: number, request: CheckinRequest): CheckinAnswer | undefined;
  /** Throws node_revoked with the order, and conflict for a node that is not registered. */
  checkin(org: Org, nodeId: number, request: CheckinRequest): Promise<CheckinAnswer>;
  /** Waits up to `waitS` seconds for news, unless it is `aborted` before. */
  held(
    org: Org,
    nodeId: number,
    request: CheckinRequest,
    waiting: { waitS: number; aborted: AbortSignal },
  ): Promise<CheckinAnswer>;
  /** The node has the very files of this version. */
  takeApplied(org: Org, nodeId: number, version: number): Promise<void>;
};

/** What a look at the node gives: the version it should have, and its answer if it is answered now. */
type Look = { node: LiveNode; version: number };

export function makeCheckins(deps: Deps): Checkins {
  const { system, changes, live, reports } = deps;
  const time = makeClock(system.now);
  const look = async (org: Org, nodeId: number): Promise<Look> => {
    const node = await activeNode(deps, org, nodeId);
    return { node, version: versionOf(node, await live.version(org.id)) };
  };
  const answer = (node: LiveNode, version: number, seen: number): CheckinAnswer => {
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
  const report = async (org: Org, nodeId: number, request: CheckinRequest) => {
    const found = await look(org, nodeId);
    const seen = seenVersion(found.node, request, found.version);
    reports.add(found.node, system.now(), request);
    const isChanged = await follow(deps, org, found.node, followsOf(found.node, request, system.now()));
    return { found: isChanged ? await look(org, nodeId) : found, seen };
  };

  return {
    atOnce(org, nodeId, request) {
      const node = live.knownNode(org.id, nodeId);
      const newest = live.knownVersion(org.id);
      if (node === undefined || newest === undefined || !isActive(node)) return undefined;
      if (followsOf(node, request, system.now()) !== undefined) return undefined;
      const version = versionOf(node, newest);
      const seen = seenVersion(node, request, version);
      reports.add(node, system.now(), request);
      return answer(node, version, seen);
    },
    async checkin(org, nodeId, request) {
      const { found, seen } = await report(org, nodeId, request);
      return answer(found.node, found.version, seen);
    },
    async held(org, nodeId, request, { waitS, aborted }) {
      // Opened before the look, so that no news slips in between.
      const poll = changes.open(org.id, nodeId);
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
        reports.add(found.node, system.now(), {});
        return answer(found.node, found.version, seen);
      } finally {
        aborted.removeEventListener("abort", onAbort);
        poll.close();
      }
    },
    async takeApplied(org, nodeId, version) {
      reports.add(await live.node(org.id, nodeId), system.now(), { config_version: version });
    },
  };
}

function isActive(node: LiveNode): boolean {
  return node.revoked === undefined && !node.isPending;
}

async function activeNode(deps: Deps, org: Org, nodeId: number): Promise<LiveNode> {
  const node = await deps.live.node(org.id, nodeId);
  if (node.revoked !== undefined) throw await revokedError(deps, org, node.revoked);
  if (node.isPending) throw new AppError("conflict", "The node is not registered yet.");
  return node;
}

/** Who does not say its version has the one it said last; who never said any is not told of a change. */
function seenVersion(node: LiveNode, request: CheckinRequest, version: number): number {
  return request.config_version ?? node.applied ?? version;
}

/** What a report brings about: another engine, a version now in force, certificates whose time has come. */
type Follows = { engine: string | undefined; confirmed: number | undefined; isDue: boolean };

/** Nothing, nearly always. */
function followsOf(node: LiveNode, request: CheckinRequest, now: number): Follows | undefined {
  const engine = request.overlay_version === node.overlayVersion ? undefined : request.overlay_version;
  const version = confirmedVersion(request);
  const confirmed = version === node.confirmed ? undefined : version;
  const isDue = node.renewAt !== null && node.renewAt <= now;
  return engine === undefined && confirmed === undefined && !isDue ? undefined : { engine, confirmed, isDue };
}

/** True where the node was changed by it. */
async function follow(deps: Deps, org: Org, node: LiveNode, follows: Follows | undefined): Promise<boolean> {
  if (follows === undefined) return false;
  const { engine, confirmed, isDue } = follows;
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
  await deps.afterConfirmation(org.id);
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
