// Answers check-ins: takes the node's report and tells it about changes. A check-in may wait for a change (long poll). Three
// ways: `atOnce` from memory for nearly all, `checkin` with reads and writes, `held` for polls.

import { given } from "../../../base/given.ts";
import { defer } from "../../../base/defer.ts";
import { AppError } from "../../../base/errors.ts";
import { formatTime } from "../../../base/quantities.ts";
import { maxPollWaitS, type CheckinAnswer, type CheckinRequest } from "../../../protocol/checkin.ts";
import type { DrillOrder } from "../../../protocol/updates/drill.ts";
import type { HeldPolls } from "../../config/held-polls.ts";
import type { InTurn } from "../../http/fair-queue.ts";
import type { NamesNews } from "../../names/organization-names.ts";
import type { Names } from "../../names/names-cache.ts";
import { confirmationPage } from "../lifecycle/confirmations-due.ts";
import type { Live, LiveNode } from "./live-nodes.ts";
import { onlineMs } from "../../../api/values.ts";
import { versionOf } from "../../store/nodes.ts";
import { nodesWithSightings } from "../../store/sightings.ts";
import { revokedError } from "./orders.ts";
import { makeSealNotes } from "./refused-by-seal.ts";
import type { Reports } from "./reports.ts";
import type { ServerOptions } from "../../options.ts";
import { runDueUpkeep, shareRuns } from "../lifecycle/upkeep.ts";
import { readLastVersion } from "../../store/versions.ts";
import {
  applyConsequences,
  consequencesOf,
  makeChangeLimits,
  takeConfirmation,
  type ConsequenceDeps,
} from "./consequences.ts";
import type { Org } from "../../http/route.ts";

type Deps = ConsequenceDeps &
  Pick<ServerOptions, "secretKey" | "publicUrl"> & {
    changes: HeldPolls;
    live: Live;
    reports: Reports;
    names: Names;
    heavyWork: InTurn;
    drills: { orderFor(orgId: number, nodeId: number, taken: number | undefined): DrillOrder | undefined };
    /** Brings an ephemeral node back that has ended. */
    bringBack(orgId: number, nodeId: number): Promise<void>;
  };

export type Checkins = {
  /** The answer from memory. Undefined if the node is not cached or its report has consequences, which is rare. */
  atOnce(org: Org, nodeId: number, request: CheckinRequest): CheckinAnswer | undefined;
  /** Throws node_revoked with the order, or conflict for a node that is not registered. */
  checkin(org: Org, nodeId: number, request: CheckinRequest): Promise<CheckinAnswer>;
  /**
   * As `checkin`, after a wait of up to `waitS` seconds for a change, or until `aborted`. `isNews`: asked after each wake-up,
   * whether the caller has news of its own: another machine uses the keys of the node (call-routes.ts).
   */
  held(
    org: Org,
    nodeId: number,
    request: CheckinRequest,
    waiting: { waitS: number; aborted: AbortSignal; isNews(): boolean },
  ): Promise<CheckinAnswer>;
  /** Records that the node has exactly the files of this version. */
  takeApplied(org: Org, nodeId: number, version: number): Promise<void>;
};

/** How often a poll repeats a read that failed because the database was away. */
const readAgainMs = 1000;

/** A node as it is now, and the version that it should have. */
type Current = { node: LiveNode; version: number };

/** What the answer depends on beside the node: the request, the version that the node has, and names that are new to it. */
type Asked = { request: CheckinRequest; nodeVersion: number; names?: NamesNews | undefined };

export function makeCheckins(services: Omit<Deps, "admitsChange" | "sealNotes">): Checkins {
  // Both bound how often the reports of one node may change something, or make an event.
  const admitsChange = makeChangeLimits(services.system.monotonic);
  const sealNotes = makeSealNotes(services.system);
  const deps: Deps = { ...services, afterConfirmation: workAfter(services), admitsChange, sealNotes };
  const { system, changes, live, reports, publicUrl } = deps;
  const time = makeClock(system.now);

  const answer = ({ slug }: Org, current: Current, asked: Asked) =>
    withConfirmation(answerOf(time(), current, asked, deps), current.node, { publicUrl, slug });
  const answerWithOthers = async (org: Org, nodeId: number, current: Current, asked: Asked) => ({
    ...answer(org, current, asked),
    ...(await othersOf(deps, org, nodeId, asked.request)),
  });

  return {
    atOnce(org, nodeId, request) {
      const node = live.knownNode(org.id, nodeId);
      const newest = live.knownVersion(org.id);
      if (node === undefined || newest === undefined || !isActive(node)) return undefined;
      const version = versionOf(node, newest);
      if (isAhead(request, version)) return undefined;
      if (consequencesOf(node, request, system.now()) !== undefined) return undefined;
      if (needsQuery(deps, org, nodeId, request)) return undefined;
      const nodeVersion = nodeVersionOf(node, request, version);
      noteReport(deps, node, request);
      return answer(org, { node, version }, { request, nodeVersion });
    },
    async checkin(org, nodeId, request) {
      const { current, nodeVersion, confirming } = await takeReport(deps, org, nodeId, request);
      await confirming;
      const names = await newsOfNames(deps, org, nodeId, request);
      return answerWithOthers(org, nodeId, current, { request, nodeVersion, names });
    },
    async held(org, nodeId, request, { waitS, aborted, isNews }) {
      // Open the poll before the first read: then no change in between is missed.
      const poll = changes.open(org.id, nodeId);
      const onAbort = () => poll.close();
      aborted.addEventListener("abort", onAbort, { once: true });
      using _ = defer(() => {
        aborted.removeEventListener("abort", onAbort);
        poll.close();
      });
      // A signal that is aborted already fires no event.
      if (aborted.aborted) onAbort();
      const endsAt = system.monotonic() + Math.min(waitS, maxPollWaitS) * 1000;
      const { nodeVersion, confirming } = await takeReport(deps, org, nodeId, request);
      for (let isWoken = true; ;) {
        const { current, names, isOutdated } = await readNews(deps, org, nodeId, { request, nodeVersion });
        const hasNews = (isOutdated && !current.node.isEnded) || names !== undefined || isNews();
        // Without a wake-up, the time is over or the poll was closed.
        if (hasNews || !isWoken) {
          // With news, the answer does not wait for the write, whose lock may be held: the node confirms again at its next check-in.
          if (!hasNews) await confirming;
          // The node was there during the poll. An ephemeral node counts as heard only by its reports (noteReport).
          if (!current.node.isEphemeral) reports.add(current.node, system.now(), {});
          return answerWithOthers(org, nodeId, current, { request, nodeVersion, names });
        }
        readAgainIfOld(deps, org, nodeId);
        isWoken = await poll.wait(endsAt - system.monotonic());
      }
    },
    async takeApplied(org, nodeId, version) {
      const node = await live.node(org.id, nodeId);
      if (!node.isEnded) reports.add(node, system.now(), { config_version: version });
    },
  };
}

/** Takes the report. Returns the node's state after it, the version that it has, and the write of what it confirms. */
async function takeReport(deps: Deps, org: Org, nodeId: number, sent: CheckinRequest) {
  let current = await readCurrent(deps, org, nodeId);
  if (current.node.isEnded) {
    if (!isRunning(sent)) {
      const nodeVersion = nodeVersionOf(current.node, sent, current.version);
      return { current, nodeVersion, confirming: Promise.resolve() };
    }
    await deps.bringBack(org.id, nodeId);
    current = await readCurrent(deps, org, nodeId);
  }
  // As the node sent it: a version that was not reached differs from the present one, so the node gets the files again.
  const nodeVersion = nodeVersionOf(current.node, sent, current.version);
  const request = isAhead(sent, current.version) ? await withoutUnreached(deps, org, sent) : sent;
  const heardAt = noteReport(deps, current.node, request);
  const consequences = consequencesOf(current.node, request, deps.system.now());
  const isChanged = await applyConsequences(deps, org, current.node, consequences, heardAt);
  const confirming = takeConfirmation(deps, org, current.node, consequences?.confirmed);
  // A poll with news is answered without waiting for it: nobody would take its failure.
  confirming.catch(() => undefined);
  return { current: isChanged ? await readCurrent(deps, org, nodeId) : current, nodeVersion, confirming };
}

/** The work after a confirmed version: the upkeep of nodes, then that of the caller. */
const workAfter = (services: Pick<Deps, "db" | "system" | "afterConfirmation">) =>
  shareRuns(async (orgId) => {
    await runDueUpkeep(services, orgId);
    await services.afterConfirmation(orgId);
  });

/**
 * `isOutdated`: the node should have another version than the one that it has or refused, or an update or a drill that it has
 * not taken.
 */
async function readNews(deps: Deps, org: Org, nodeId: number, { request, nodeVersion }: Asked) {
  const namesBefore = await newsOfNames(deps, org, nodeId, request);
  const current = await readCurrent(deps, org, nodeId);
  const isOutdated =
    (request.refused_config_version ?? nodeVersion) !== current.version ||
    newUpdate(current.node, request) !== undefined ||
    newDrill(deps, current.node, request) !== undefined;
  // One change may concern configuration and names, and come between both reads: read names again.
  const names = namesBefore ?? (isOutdated ? await newsOfNames(deps, org, nodeId, request) : undefined);
  return { current, names, isOutdated };
}

/** Whether the answer needs a query, so that it cannot come from memory. */
function needsQuery({ names }: Deps, { id }: Org, nodeId: number, request: CheckinRequest): boolean {
  const { names: asked, others } = request;
  return others === true || (asked !== undefined && !names.isCurrent(id, nodeId, asked));
}

/** Whether a lighthouse should be in contact: another node that checks in has an engine that runs. */
async function othersOf(
  { db, system }: Deps,
  { id }: Org,
  nodeId: number,
  { others }: CheckinRequest,
): Promise<Pick<CheckinAnswer, "others_online">> {
  if (others !== true) return {};
  const sql = `SELECT id FROM ${nodesWithSightings}
    WHERE org_id = $1 AND id <> $2 AND state = 'active' AND phone IS NULL AND last_checkin_at > $3
      AND coalesce(overlay_state, '') NOT IN ('stopped', 'not_running') LIMIT 1`;
  // Null: the database cannot be read now, so the answer says nothing. Undefined: no other node is online.
  const found = await db.get(sql, [id, nodeId, system.now() - onlineMs]).catch(() => null);
  return found === null ? {} : { others_online: found !== undefined };
}

/** While the database is away, the node may have been read from outdated memory: wakes its poll again after a while, to read anew. */
function readAgainIfOld({ system, live, changes }: Deps, org: Org, nodeId: number): void {
  if (live.knownNode(org.id, nodeId) !== undefined && live.knownVersion(org.id) !== undefined) return;
  void system.sleep(readAgainMs).then(() => changes.wakeNode(org.id, nodeId));
}

function withConfirmation(
  usual: CheckinAnswer,
  { confirmBy: until }: LiveNode,
  { publicUrl, slug }: { publicUrl: string; slug: string },
): CheckinAnswer {
  if (until === undefined) return usual;
  return { ...usual, confirm: { until, url: confirmationPage(publicUrl, slug) } };
}

/** An update that the node has not taken yet. Older nodes do not say which one they took, and get none. */
function newUpdate({ updateOrder, isEnded }: LiveNode, { updates }: CheckinRequest) {
  if (updateOrder === undefined || updates === undefined || isEnded) return undefined;
  return updateOrder.order > updates.order ? updateOrder : undefined;
}

/** A drill that the node has not taken yet, or its end. `drill`: the last one that it took; older nodes do not say it, and get none. */
function newDrill({ drills }: Deps, { id, orgId, isEnded }: LiveNode, { drill }: CheckinRequest) {
  return isEnded ? undefined : drills.orderFor(orgId, id, drill);
}

function answerOf(
  now: string,
  { node, version: newest }: Current,
  { request, nodeVersion, names }: Asked,
  deps: Deps,
): CheckinAnswer {
  // An ended node gets no files until it comes back.
  const version = node.isEnded ? nodeVersion : newest;
  const usual = {
    last_checkin_at: now,
    server_time: now,
    config_version: version,
    config_changed: nodeVersion !== version,
    certificate_not_after: node.certificateNotAfter,
    // The node may refuse this version: a poll that says so is held.
    ...(nodeVersion === version ? {} : { holds_refused: true }),
    ...given({ names, update: newUpdate(node, request), drill: newDrill(deps, node, request) }),
  };
  // Repeat the order of a restore until the node has the version that came with it.
  const { order } = node;
  return order !== undefined && (node.applied ?? 0) < node.ownVersion ? { ...usual, order } : usual;
}

/** Undefined without news, and if the names cannot be read now: a revocation must reach the node in any case. */
async function newsOfNames(
  { names, heavyWork }: Deps,
  org: Org,
  nodeId: number,
  { names: asked }: CheckinRequest,
): Promise<NamesNews | undefined> {
  if (asked === undefined || names.isCurrent(org.id, nodeId, asked)) return undefined;
  const read = () => names.news(org.id, nodeId, asked);
  // In turn: the whole list takes milliseconds.
  const isLong = asked.version === 0 || asked.part === true;
  const news = isLong ? heavyWork({ owner: org.id, caller: `node/${nodeId}` }, read) : read();
  return news.catch(() => undefined);
}

function isActive(node: LiveNode): boolean {
  return node.revoked === undefined && !node.isPending && !node.isEnded;
}

/**
 * Whether the engine runs, as far as the report says. The report of a stopped engine must not bring an ended node
 * back.
 */
function isRunning({ overlay_state: state, leaving }: CheckinRequest): boolean {
  return state !== "stopped" && leaving !== true;
}

/**
 * The time of the report, ms; undefined for an ephemeral node with a stopped engine, which is silent: older agents do not say that
 * they leave.
 */
function noteReport({ reports, system }: Deps, node: LiveNode, request: CheckinRequest): number | undefined {
  if (node.isEphemeral && !isRunning(request)) return undefined;
  const heardAt = system.now();
  reports.add(node, heardAt, request);
  return heardAt;
}

async function readCurrent(deps: Deps, org: Org, nodeId: number): Promise<Current> {
  const node = await activeNode(deps, org, nodeId);
  return { node, version: versionOf(node, await deps.live.version(org.id)) };
}

async function activeNode(deps: Deps, org: Org, nodeId: number): Promise<LiveNode> {
  const node = await deps.live.node(org.id, nodeId);
  if (node.revoked !== undefined) throw await revokedError(deps, org, node.revoked);
  if (node.isPending) throw new AppError("conflict", "The node is not registered yet.");
  return node;
}

/** Without `config_version`, assume the last reported one. If none was reported, report no change. */
function nodeVersionOf(node: LiveNode, request: CheckinRequest, version: number): number {
  return request.config_version ?? node.applied ?? version;
}

/** Whether the node reports a version that it cannot have, as far as this server knows. */
function isAhead(request: CheckinRequest, version: number): boolean {
  return (request.config_version ?? 0) > version || (request.confirmed_config_version ?? 0) > version;
}

/**
 * Leaves out versions that the organization has not reached: the node would count as up to date for ever, and nothing
 * would wait for it. Reads the database, because another server may have raised the version a moment ago.
 */
async function withoutUnreached({ db }: Deps, org: Org, request: CheckinRequest): Promise<CheckinRequest> {
  const last = await readLastVersion(db, org.id);
  const { config_version: applied = 0, confirmed_config_version: confirmed = 0, ...rest } = request;
  return {
    ...rest,
    ...(applied > 0 && applied <= last ? { config_version: applied } : {}),
    ...(confirmed > 0 && confirmed <= last ? { confirmed_config_version: confirmed } : {}),
  };
}

/** The current second as text, formatted once per second. */
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
