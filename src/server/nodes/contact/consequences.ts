// Consequences of a check-in's report, which are rare: another engine, other networks on offer, another TCP port, what a seal
// refuses, a confirmed version, certificates that are due for renewal.

import type { CheckinRequest } from "../../../protocol/checkin.ts";
import { atPlane } from "../../../protocol/organization-files.ts";
import type { Advertised } from "../../../protocol/routing/advertised.ts";
import { record } from "../../audit/record.ts";
import { engineClass } from "../../../engine/features.ts";
import type { Live, LiveNode } from "./live-nodes.ts";
import { changedRefusal, takeRefusal, type SealNotes } from "./refused-by-seal.ts";
import { recordRefusal, type RefusalNotes } from "./refused-engine.ts";
import { nodes, sightings } from "../../store/tables/nodes.ts";
import { notifyNode, raiseOwnVersion } from "../../store/versions.ts";
import { unlessStorageRefuses } from "./storage-refusal.ts";
import { permissionText } from "../../store/tables/update-permission.ts";
import { storeTcp } from "./plane-fallback.ts";
import { makeThrottle } from "../../http/throttle.ts";
import type { Store } from "../../options.ts";
import type { Renewals } from "../lifecycle/renewal.ts";

export type ConsequenceDeps = Store & {
  renewals: Renewals;
  refusals: RefusalNotes;
  admitsChange: AdmitsChange;
  sealNotes: SealNotes;
  live: Pick<Live, "confirm">;
  /** Does what is due when a node has confirmed a version, and continues work that waits for it. */
  afterConfirmation(orgId: number): Promise<void>;
};
type Org = { id: number };

/** What a report changes. Undefined: unchanged. Null: the node has it no longer, and the column is cleared. */
type Consequences = {
  engine: string | undefined;
  advertised: Advertised[] | undefined;
  tcp: string | null | undefined;
  mayUpdate: string | null | undefined;
  sealRefused: string | null | undefined;
  /** The version that it has confirmed. */
  confirmed: number | undefined;
  /** Its certificates are due for renewal. */
  isDue: boolean;
};

/** Undefined without consequences, as for nearly every report. `now`: ms. */
export function consequencesOf(
  node: LiveNode,
  request: CheckinRequest,
  now: number,
): Consequences | undefined {
  const engine = request.overlay_version === node.overlayVersion ? undefined : request.overlay_version;
  const version = confirmedVersion(request);
  const confirmed = version === node.confirmed ? undefined : version;
  const isDue = node.renewAt !== null && node.renewAt <= now;
  const advertised = changedOffer(node, request);
  const tcp = changedTcp(node, request);
  const mayUpdate = changedPermission(node, request);
  const sealRefused = changedRefusal(node, request);
  const changes = { engine, advertised, tcp, mayUpdate, sealRefused, confirmed };
  const isUnchanged = Object.values(changes).every((change) => change === undefined);
  return isUnchanged && !isDue ? undefined : { ...changes, isDue };
}

/** Only of lighthouses and relays. Where they use the control plane's own listener, plane-fallback.ts decides. */
function changedTcp({ isHub, tcp }: LiveNode, { tcp: port }: CheckinRequest): string | null | undefined {
  if (!isHub || port === undefined || tcp === atPlane) return undefined;
  const reported = port === 0 ? null : String(port);
  return reported === tcp ? undefined : reported;
}

/**
 * Without `updates` root permits none. A check-in that names no engine either says nothing of permissions, and what was permitted
 * stays: it is of a command beside the agent, or of a node whose directory is damaged.
 */
function changedPermission({ mayUpdate }: LiveNode, request: CheckinRequest): string | null | undefined {
  if (request.updates === undefined && request.overlay_version === undefined) return undefined;
  const reported = request.updates === undefined ? null : permissionText(request.updates);
  return reported === mayUpdate ? undefined : reported;
}

/**
 * Without `advertised` there are no offers, whoever sent the check-in: all processes of a node read them from its directory. One
 * whose directory is damaged makes none until that is repaired.
 */
function changedOffer(node: LiveNode, { advertised = [] }: CheckinRequest): Advertised[] | undefined {
  const text = advertised.length === 0 ? undefined : JSON.stringify(advertised);
  return text === node.advertised ? undefined : advertised;
}

/**
 * True if the node's row was changed, so that the caller reads it again. `heardAt`: the time of the report, ms; undefined: the report
 * is of an ephemeral node whose engine is stopped, which counts as silent (checkins.ts). Does not take `confirmed`: the caller begins
 * takeConfirmation afterwards, and a poll with news does not wait for it.
 */
export async function applyConsequences(
  deps: ConsequenceDeps,
  org: Org,
  node: LiveNode,
  consequences: Consequences | undefined,
  heardAt: number | undefined,
): Promise<boolean> {
  if (consequences === undefined) return false;
  const { engine, advertised, tcp, mayUpdate, sealRefused, isDue } = consequences;
  const tookOffer =
    advertised !== undefined && (await isStored(() => takeAdvertised(deps, node, advertised)));
  const tookEngine = engine !== undefined && (await isStored(() => takeEngine(deps, node, engine)));
  if (isDue) {
    // A node whose certificate has ended is cut off, so its answer waits for the new one.
    await deps.renewals.ensure(org.id, node.id, { wait: node.notAfter <= deps.system.now() });
  }
  const tookTcp = tcp !== undefined && (await takeTcp(deps, node, tcp));
  const tookPermission =
    mayUpdate !== undefined && (await isStored(() => takePermission(deps, node, mayUpdate, heardAt)));
  const tookRefusal =
    sealRefused !== undefined &&
    (await isStored(() => takeRefusal({ ...deps, notes: deps.sealNotes }, node, sealRefused)));
  return tookOffer || tookEngine || isDue || tookTcp || tookPermission || tookRefusal;
}

/** How often a node may change something by its reports. */
const changeRules = {
  /** All nodes of the organization get it, so a node that changes its mind all the time must not keep them busy. */
  tcp: { windows: [{ times: 1, withinMs: 30_000 }], reason: "Too many TCP ports." },
  /** Events of networks on offer: a node must not fill the audit log. */
  offer: { windows: [{ times: 20, withinMs: 86_400_000 }], reason: "Too many offers of networks." },
} as const;
/** Counts a change of a node. False, and not counted, if the node had too many. */
export type AdmitsChange = (kind: keyof typeof changeRules, nodeId: number) => boolean;
/** `now`: a monotonic clock, ms. */
export function makeChangeLimits(now: () => number): AdmitsChange {
  const throttle = makeThrottle(now, changeRules);
  return (kind, nodeId) => {
    if (throttle.counted(kind, String(nodeId)) >= changeRules[kind].windows[0].times) return false;
    throttle.count(kind, String(nodeId));
    return true;
  };
}

/** True if the node was changed. Beyond the limit nothing is stored: a later check-in reports the port again. */
async function takeTcp(
  { db, admitsChange }: ConsequenceDeps,
  node: LiveNode,
  tcp: string | null,
): Promise<boolean> {
  if (!admitsChange("tcp", node.id)) return false;
  return isStored(() => storeTcp(db, node, tcp));
}

/**
 * Whether the change was stored. If the disk is full it is not, and the check-in is answered all the same, because nodes must
 * learn of a revocation. They repeat their reports at the next check-in.
 */
function isStored(change: () => Promise<void>): Promise<boolean> {
  return unlessStorageRefuses(async () => {
    await change();
    return true;
  }, false);
}

/**
 * The version in force on the node. With a running engine the agent reads it from the engine's log and reports it
 * separately. Without one, the applied version is in force.
 */
function confirmedVersion(request: CheckinRequest): number | undefined {
  if (request.confirmed_config_version !== undefined) return request.confirmed_config_version;
  return request.overlay_state === undefined || request.overlay_state === "stopped"
    ? request.config_version
    : undefined;
}

/**
 * Stores the version that the node has confirmed, and does the work that waited for it. An answer without news waits for this,
 * because other nodes may depend on that work.
 */
export async function takeConfirmation(
  deps: ConsequenceDeps,
  org: Org,
  node: LiveNode,
  version: number | undefined,
): Promise<void> {
  if (version === undefined) return;
  await isStored(async () => {
    await deps.live.confirm(node, version);
    await deps.afterConfirmation(org.id);
  });
}

/**
 * Stores the engine's version. An engine of another class needs another configuration, for this node alone. One that the control
 * plane refuses (refused-engine.ts) gets an event, at most once a day for a node.
 */
async function takeEngine(
  { db, system, refusals }: ConsequenceDeps,
  node: LiveNode,
  overlayVersion: string,
): Promise<void> {
  const { id, orgId } = node;
  const isNoted = await db.writeFor({ org: orgId }, async (tx) => {
    await nodes.update(tx, { id }, { overlayVersion });
    if (engineClass(overlayVersion) === engineClass(node.overlayVersion)) await notifyNode(tx, orgId, id);
    else await raiseOwnVersion(tx, orgId, id);
    return !refusals.has(id) && recordRefusal(tx, node, overlayVersion, system.now());
  });
  if (isNoted) refusals.add(id);
}

/**
 * Stores the permission. A rollout may take the node from then on, and reads the row of its last check-in. Reports are written only
 * later (reports.ts), so a first row is stored here. It has the time of the report, `heardAt`: with a later time, the report would
 * count as overtaken by this row, and be dropped.
 */
async function takePermission(
  { db }: ConsequenceDeps,
  { id, orgId }: LiveNode,
  mayUpdate: string | null,
  heardAt: number | undefined,
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    await nodes.update(tx, { id }, { mayUpdate });
    if (heardAt !== undefined) {
      const first = { nodeId: id, lastCheckinAt: heardAt };
      await sightings.upsert(tx, first, "ON CONFLICT (node_id) DO NOTHING");
    }
    await notifyNode(tx, orgId, id);
  });
}

/**
 * Stores the networks that the node offers to route. Only networks that are new, and that no administrator has approved, are an
 * event: the state of an offer changes often.
 */
async function takeAdvertised(
  { db, system, admitsChange }: ConsequenceDeps,
  { id, orgId }: LiveNode,
  list: Advertised[],
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    const before = await nodes.find(tx, { orgId, id });
    if (before === undefined) return;
    await nodes.update(tx, { id }, { advertised: list });
    await notifyNode(tx, orgId, id);
    const known = [...before.subnets, ...before.advertised.map(({ network }) => network)];
    const networks = list.map(({ network }) => network).filter((network) => !known.includes(network));
    if (networks.length === 0 || !admitsChange("offer", id)) return;
    await record(tx, {
      orgId,
      at: system.now(),
      type: "node.route_offered",
      actor: { kind: "node", id, ip: null },
      subject: `node/${id}`,
      after: { networks },
    });
  });
}
